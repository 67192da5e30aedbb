//! Validators that are functions, by their names in the data files. [`text`] validates texts, [`tls`] keys and
//! certificates, and [`config`] whole plugin configurations. [`rules`] validates several fields of an entity, and
//! [`route`] paths and expressions of routes.

mod config;
mod route;
mod rules;
mod text;
mod tls;

use super::Context;
use crate::value::Value;

/// The result of a validator. A problem is a text, or a tree of texts if the value is a record.
pub(crate) type Verdict = Result<(), Value>;

/// A validator of a single value that is not null and has the right type.
#[derive(Clone, Copy)]
pub(crate) struct Validator {
    name: &'static str,
    run: fn(&Value, &Context) -> Verdict,
}

/// A rule over several fields of an entity.
#[derive(Clone, Copy)]
pub(crate) struct EntityRule {
    name: &'static str,
    run: fn(&[&Value], &Context) -> Result<(), String>,
}

impl Validator {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let (name, run) = VALIDATORS.iter().find(|(known, _)| *known == name)?;
        Some(Self { name, run: *run })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    #[inline]
    pub(crate) fn check(&self, value: &Value, context: &Context) -> Verdict {
        (self.run)(value, context)
    }
}

impl EntityRule {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let (name, run) = RULES.iter().find(|(known, _)| *known == name)?;
        Some(Self { name, run: *run })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    #[inline]
    pub(crate) fn check(&self, values: &[&Value], context: &Context) -> Result<(), String> {
        (self.run)(values, context)
    }
}

impl std::fmt::Debug for Validator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Validator({})", self.name)
    }
}

impl std::fmt::Debug for EntityRule {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "EntityRule({})", self.name)
    }
}

type ValidatorFn = fn(&Value, &Context) -> Verdict;
type RuleFn = fn(&[&Value], &Context) -> Result<(), String>;

macro_rules! texts {
    ($($name:literal => $function:path),* $(,)?) => {
        [$(($name, |value, _| {
            $function(value.as_str().unwrap_or_default()).map_err(Value::from)
        })),*]
    };
}

const TEXTS: [(&str, ValidatorFn); 27] = texts![
    "utf8_name" => text::utf8_name,
    "tag" => text::tag,
    "host" => text::host,
    "host_with_optional_port" => text::host_with_optional_port,
    "host_with_wildcards" => text::host_with_wildcards,
    "wildcard_host" => text::wildcard_host,
    "sni" => text::sni,
    "path" => text::path,
    "router_path" => route::router_path,
    "header_name" => text::header_name,
    "cookie_name" => text::cookie_name,
    "ip" => text::ip,
    "ip_or_cidr" => text::ip_or_cidr,
    "ip_or_cidr_range" => text::ip_or_cidr_range,
    "upstream_name" => text::upstream_name,
    "target" => text::target,
    "redirect_uri" => text::redirect_uri,
    "url" => text::url,
    "regex_or_star" => text::regex_or_star,
    "header_pair" => text::header_pair,
    "header_rename" => text::header_rename,
    "template_pair" => text::template_pair,
    "acme_namespace" => text::acme_namespace,
    "lua" => text::lua,
    "certificate" => tls::certificate,
    "key" => tls::key,
    "public_key" => tls::public_key,
];

const RECORDS: [(&str, ValidatorFn); 9] = [
    ("pem", |value, _| tls::pem(value)),
    ("rate_limits", |value, _| config::rate_limits(value)),
    ("response_rate_limits", |value, _| {
        config::response_rate_limits(value)
    }),
    ("rate_limiting_policy", config::rate_limiting_policy),
    ("request_termination", |value, _| {
        config::request_termination(value)
    }),
    ("oauth2_grants", |value, _| config::oauth2_grants(value)),
    ("http_log_credentials", |value, _| {
        config::http_log_credentials(value)
    }),
    ("unique_tag_names", |value, _| {
        config::unique_tag_names(value)
    }),
    ("resource_attributes", |value, _| {
        config::resource_attributes(value)
    }),
];

const fn all() -> [(&'static str, ValidatorFn); TEXTS.len() + RECORDS.len()] {
    let mut all = [TEXTS[0]; TEXTS.len() + RECORDS.len()];
    let mut index = 0;
    while index < all.len() {
        all[index] = if index < TEXTS.len() {
            TEXTS[index]
        } else {
            RECORDS[index - TEXTS.len()]
        };
        index += 1;
    }
    all
}

const VALIDATORS: [(&str, ValidatorFn); TEXTS.len() + RECORDS.len()] = all();

const RULES: [(&str, RuleFn); 10] = [
    ("keys", rules::keys),
    ("certificate_pair", rules::certificate_pair),
    ("certificate_alt_pair", rules::alternative_pair),
    ("certificate_types", rules::certificate_types),
    ("ca_certificate", rules::ca_certificate),
    ("wasm_filters", rules::wasm_filters),
    ("router_expression", route::router_expression),
    ("aws_proxy_url", rules::aws_proxy_url),
    ("acme_storage", rules::acme_storage),
    ("llm_statistics", rules::llm_statistics),
];
