//! Validators that are functions, by their names in the data files. [`text`] validates texts, [`tls`] keys and
//! certificates. [`rules`] validates several fields of an entity, and [`route`] paths and expressions of routes. Here
//! are those of this crate's entities, and those that schemas of several plugins name. A plugin brings its own.

mod route;
mod rules;
mod text;
mod tls;

use super::Context;
use super::source::{Checks, RuleFn, ValidatorFn};
use crate::value::Value;

/// The result of a validator.
type Verdict = Result<(), Value>;

/// A validator of a single value that is not null and has the right type.
#[derive(Clone, Copy)]
pub(crate) struct Validator {
    name: &'static str,
    run: ValidatorFn,
}

/// A rule over several fields of an entity.
#[derive(Clone, Copy)]
pub(crate) struct EntityRule {
    name: &'static str,
    run: RuleFn,
}

/// The names of the validators of this crate.
pub(super) fn names() -> impl Iterator<Item = &'static &'static str> {
    TEXTS.iter().chain(&OTHERS).map(|(name, _)| name)
}

/// The names of the rules of this crate.
pub(super) fn rule_names() -> impl Iterator<Item = &'static &'static str> {
    RULES.iter().map(|(name, _)| name)
}

impl Validator {
    /// Finds a validator of this crate, or one of the plugin's.
    pub(crate) fn from_name(name: &str, checks: &Checks) -> Option<Self> {
        let mut all = TEXTS.iter().chain(&OTHERS).chain(checks.validators);
        let (name, run) = all.find(|(known, _)| *known == name)?;
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
    /// Finds a rule of this crate, or one of the plugin's.
    pub(crate) fn from_name(name: &str, checks: &Checks) -> Option<Self> {
        let mut all = RULES.iter().chain(checks.rules);
        let (name, run) = all.find(|(known, _)| *known == name)?;
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

macro_rules! texts {
    ($($name:literal => $function:path),* $(,)?) => {
        [$(($name, |value, _| {
            $function(value.as_str().unwrap_or_default()).map_err(Value::from)
        })),*]
    };
}

static TEXTS: [(&str, ValidatorFn); 24] = texts![
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
    "url" => text::url,
    "regex_or_star" => text::regex_or_star,
    "header_pair" => text::header_pair,
    "header_rename" => text::header_rename,
    "lua" => text::lua,
    "certificate" => tls::certificate,
    "key" => tls::key,
    "public_key" => tls::public_key,
];

static OTHERS: [(&str, ValidatorFn); 1] = [("pem", |value, _| tls::pem(value))];

static RULES: [(&str, RuleFn); 7] = [
    ("keys", rules::keys),
    ("certificate_pair", rules::certificate_pair),
    ("certificate_alt_pair", rules::alternative_pair),
    ("certificate_types", rules::certificate_types),
    ("ca_certificate", rules::ca_certificate),
    ("wasm_filters", rules::wasm_filters),
    ("router_expression", route::router_expression),
];
