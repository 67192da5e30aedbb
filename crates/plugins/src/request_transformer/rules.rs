//! The rules of request-transformer, compiled from its configuration.

use super::config::{Config, Entries, Replace};
use super::lua::RenderError;
use super::template::{Environment, Expressions, Template};
use compact_str::CompactString;
use std::borrow::Cow;

/// All rules of a configuration.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) uri: Option<Template>,
    pub(super) headers: RuleSet,
    pub(super) body: RuleSet,
    pub(super) query: RuleSet,
}

/// The rules for headers, for the body, or for the query. They apply in the order of the fields.
#[derive(Debug, Default)]
pub(super) struct RuleSet {
    pub(super) remove: Box<[CompactString]>,
    pub(super) rename: Box<[Rule]>,
    pub(super) replace: Box<[Rule]>,
    pub(super) add: Box<[Rule]>,
    pub(super) append: Box<[Rule]>,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: CompactString,
    pub(super) value: Template,
    /// Whether the configured value has line breaks or NUL. They are percent-encoded in headers, as in Kong. Those that
    /// come from a client are refused.
    pub(super) breaks: bool,
}

/// A value that cannot be rendered for this request.
#[derive(Debug, thiserror::Error)]
#[error("failed to render the template of {name}: {error}")]
pub(super) struct Failure {
    pub(super) name: CompactString,
    #[source]
    pub(super) error: RenderError,
}

impl Rules {
    pub(super) fn compile(config: &Config, expressions: Expressions<'_>) -> Self {
        let uri = config.replace.uri.as_deref().filter(|uri| !uri.is_empty());
        Self {
            uri: uri.map(|uri| Template::compile(uri, expressions)),
            headers: RuleSet::compile(config, &HEADERS, expressions),
            body: RuleSet::compile(config, &BODY, expressions),
            query: RuleSet::compile(config, &QUERY, expressions),
        }
    }
}

/// Where the rules for one part of the request are in the configuration.
struct Part {
    entries: fn(&Entries) -> &[String],
    replace: fn(&Replace) -> &[String],
}

const HEADERS: Part = Part {
    entries: |entries| &entries.headers,
    replace: |replace| &replace.headers,
};

const BODY: Part = Part {
    entries: |entries| &entries.body,
    replace: |replace| &replace.body,
};

const QUERY: Part = Part {
    entries: |entries| &entries.querystring,
    replace: |replace| &replace.querystring,
};

impl RuleSet {
    fn compile(config: &Config, part: &Part, expressions: Expressions<'_>) -> Self {
        let compile = |entries| compile_pairs(entries, expressions);
        let removed = (part.entries)(&config.remove).iter();
        Self {
            remove: removed
                .filter_map(|entry| Some(split(entry)?.0.into()))
                .collect(),
            rename: compile((part.entries)(&config.rename)),
            replace: compile((part.replace)(&config.replace)),
            add: compile((part.entries)(&config.add)),
            append: compile((part.entries)(&config.append)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.remove.is_empty()
            && self.rename.is_empty()
            && self.replace.is_empty()
            && self.add.is_empty()
            && self.append.is_empty()
    }
}

/// Pairs without a value have no effect in Kong and are left out.
fn compile_pairs(entries: &[String], expressions: Expressions<'_>) -> Box<[Rule]> {
    let pairs = entries.iter().filter_map(|entry| split(entry));
    let pairs = pairs.filter(|(_, value)| !value.is_empty());
    let rule = |(name, value): (&str, &str)| Rule {
        name: name.into(),
        value: Template::compile(value, expressions),
        breaks: has_breaks(value.as_bytes()),
    };
    pairs.map(rule).collect()
}

/// Whether a text has characters that end a header line for some servers.
pub(super) fn has_breaks(text: &[u8]) -> bool {
    memchr::memchr3(b'\r', b'\n', 0, text).is_some()
}

/// Splits `name:value` at its first colons. Returns `None` if there is no name.
fn split(entry: &str) -> Option<(&str, &str)> {
    let (name, value) = entry.split_once(':').unwrap_or((entry, ""));
    (!name.is_empty()).then(|| (name, value.trim_start_matches(':')))
}

impl Rule {
    pub(super) fn render<'v>(
        &'v self,
        environment: &'v dyn Environment,
    ) -> Result<Cow<'v, [u8]>, Failure> {
        self.value.render(environment).map_err(|error| Failure {
            name: self.name.clone(),
            error,
        })
    }

    /// Renders the value as a text for JSON, with invalid UTF-8 replaced.
    pub(super) fn render_text<'v>(
        &'v self,
        environment: &'v dyn Environment,
    ) -> Result<CompactString, Failure> {
        Ok(CompactString::from_utf8_lossy(&self.render(environment)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_split_at_its_first_colons() {
        assert_eq!(split("h:value:2"), Some(("h", "value:2")));
        assert_eq!(split("h::v:"), Some(("h", "v:")));
        assert_eq!(split("h:"), Some(("h", "")));
        assert_eq!(split("h"), Some(("h", "")));
        assert_eq!(split(":v"), None);
    }
}
