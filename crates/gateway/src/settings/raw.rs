//! Settings as texts with their sources, merged in Kong's order: flags win over the environment, the environment over
//! the file, and the file over defaults. `SILVERBACK_` variables win over `KONG_` variables.

use super::directives::{self, Block};
use super::file;
use super::table::{Kind, Setting, Table, directive_of, is_dynamic, table};
use super::values;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Variables that Kong's container images and tools set, but that are not settings.
const FOREIGN_VARIABLES: [&str; 6] = [
    "version",
    "sha256",
    "license_data",
    "license_path",
    "build_version",
    "docker_tag",
];

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    File { path: Arc<Path>, line: usize },
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("its default"),
            Self::File { path, line } => write!(formatter, "{}:{line}", path.display()),
            Self::Variable(name) => write!(formatter, "environment variable {name}"),
            Self::Flag(flag) => write!(formatter, "flag {flag}"),
        }
    }
}

/// A problem with the settings, and the source to correct.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The setting, by the name that the user wrote. Without a source, the settings file.
    pub(crate) subject: String,
    pub(crate) source: Option<Source>,
    pub(crate) message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.subject)?;
        if let Some(source) = &self.source {
            write!(formatter, " ({source})")?;
        }
        write!(formatter, ": {}", self.message)
    }
}

impl Problem {
    /// Returns the text of an error or a warning. It says whether a setting or the settings file is meant.
    pub(crate) fn in_full(&self) -> String {
        match self.source {
            Some(_) => format!("setting {self}"),
            None => format!("settings file {self}"),
        }
    }
}

/// The name that the user wrote for each given setting, and its source. Messages use both.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origins(HashMap<&'static str, (String, Source)>);

impl Origins {
    /// Returns the words for a setting at the start of a message: `setting NAME (where it was set)`.
    pub(crate) fn of(&self, name: &str) -> String {
        match self.0.get(name) {
            Some((written, source)) => format!("setting {written} ({source})"),
            None => format!("setting {name} ({})", Source::Default),
        }
    }

    /// Returns the words for a changed setting. If it is no longer given, it has the name under which it was given
    /// `before`.
    pub(crate) fn of_changed(&self, name: &str, before: &Self) -> String {
        match (self.0.get(name), before.0.get(name)) {
            (None, Some((written, _))) => format!("setting {written} ({})", Source::Default),
            _ => self.of(name),
        }
    }
}

/// Everything that the program was given, before any check.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// Path and text of the settings file.
    pub(crate) file: Option<(PathBuf, String)>,
    pub(crate) variables: Vec<(String, String)>,
    /// Name, value, and the flag that has set them.
    pub(crate) flags: Vec<(String, String, &'static str)>,
}

#[derive(Debug)]
struct Value {
    text: String,
    /// The name that the user wrote. It may be another name of the setting.
    written: String,
    /// Present if the value has a reference such as `{vault://env/...}`. The text may then be a secret, whatever the
    /// setting, and is never shown.
    reference: Option<Reference>,
    source: Source,
    rank: Rank,
}

/// A value with references, before they were resolved.
#[derive(Debug)]
pub(crate) struct Reference {
    /// The whole value, such as `{vault://env/a}, /b.pem`. Its other parts may be secret if the setting is.
    pub(crate) written: String,
    /// Only the references, for messages.
    pub(crate) names: Arc<str>,
}

/// Precedence of a value: the highest rank wins. Within a layer, a setting's own name wins over its aliases. A
/// directive of an inner block wins over that of an outer block in any layer, because nginx treats them as separate
/// settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank(Block, Layer, Spelling);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    File,
    KongVariable,
    OwnVariable,
    Flag,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Spelling {
    Alias,
    Own,
}

/// The effective value of every setting that was given.
#[derive(Debug)]
pub(crate) struct RawSettings {
    given: HashMap<&'static str, Value>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) warnings: Vec<Problem>,
}

impl RawSettings {
    /// Merges the inputs, and checks every name and value against the table.
    pub(crate) fn gather(inputs: Inputs) -> Self {
        let mut raw = Self {
            given: HashMap::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
        };
        let mut variables = HashMap::new();
        if let Some((path, text)) = inputs.file {
            raw.add_file(&path, &text);
        }
        for (name, value) in inputs.variables {
            // If a variable occurs twice, its first value counts, as for `getenv`.
            if !variables.contains_key(&name) {
                variables.insert(name.clone(), value.clone());
                raw.add_variable(name, value);
            }
        }
        for (name, value, flag) in inputs.flags {
            raw.add(table(), &name, value, Source::Flag(flag), Layer::Flag);
        }
        raw.resolve_references(&variables);
        raw.check();
        raw
    }

    /// Returns the given value of a setting or its default. An empty value is `None`.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let text = match self.given.get(name) {
            Some(value) => value.text.as_str(),
            None => table().by_name(name)?.default.as_deref()?,
        };
        (!text.is_empty()).then_some(text)
    }

    pub(crate) fn source(&self, name: &str) -> Source {
        self.given
            .get(name)
            .map_or(Source::Default, |value| value.source.clone())
    }

    pub(crate) fn origins(&self) -> Origins {
        let given = self.given.iter();
        let origins =
            given.map(|(name, value)| (*name, (value.written.clone(), value.source.clone())));
        Origins(origins.collect())
    }

    /// Returns the references of a value, if it has any. They must be shown in place of [`Self::text`].
    pub(crate) fn reference(&self, name: &str) -> Option<&Reference> {
        self.given.get(name)?.reference.as_ref()
    }

    /// Reports a problem with the value of a setting. If the value comes from a reference, all its problems become one
    /// without their messages, which may contain the value.
    pub(crate) fn problem(&mut self, name: &str, message: impl fmt::Display) {
        match self.reference(name) {
            None => self.problem_without_value(name, message),
            Some(_) if is_last(&self.problems, name) => {}
            Some(reference) => {
                let message = format!("the value of {} is not valid here", reference.names);
                self.problem_without_value(name, message);
            }
        }
    }

    /// Reports a problem with a message that does not contain the value of the setting.
    pub(crate) fn problem_without_value(&mut self, name: &str, message: impl fmt::Display) {
        let problem = self.about(name, message);
        self.problems.push(problem);
    }

    /// Reports a warning about the value of a setting. Values that come from references are treated as by
    /// [`Self::problem`].
    pub(crate) fn warn(&mut self, name: &str, message: impl fmt::Display) {
        match self.reference(name) {
            None => self.warn_without_value(name, message),
            Some(_) if is_last(&self.warnings, name) => {}
            Some(reference) => {
                let names = &reference.names;
                let message = format!("the value of {names} has only a part of its effect here");
                self.warn_without_value(name, message);
            }
        }
    }

    /// Reports a warning with a message that does not contain the value of the setting.
    pub(crate) fn warn_without_value(&mut self, name: &str, message: impl fmt::Display) {
        let warning = self.about(name, message);
        self.warnings.push(warning);
    }

    fn about(&self, name: &str, message: impl fmt::Display) -> Problem {
        let written = self.given.get(name).map(|value| value.written.as_str());
        Problem {
            subject: written.unwrap_or(name).to_owned(),
            source: Some(self.source(name)),
            message: message.to_string(),
        }
    }

    fn add_file(&mut self, path: &Path, text: &str) {
        let (lines, errors) = file::parse(text);
        let path: Arc<Path> = path.into();
        for error in errors {
            self.problems.push(Problem {
                subject: path.display().to_string(),
                source: None,
                message: error.to_string(),
            });
        }
        for line in lines {
            let source = Source::File {
                path: Arc::clone(&path),
                line: line.number,
            };
            self.add(table(), &line.name, line.value, source, Layer::File);
        }
    }

    fn add_variable(&mut self, variable: String, value: String) {
        let (layer, rest) = match variable.split_once('_') {
            Some(("KONG", rest)) => (Layer::KongVariable, rest),
            Some(("SILVERBACK", rest)) => (Layer::OwnVariable, rest),
            _ => return,
        };
        let name = rest.to_ascii_lowercase();
        let known = table().by_name(&name);
        if known.is_none() && is_foreign(&name, &value) {
            return;
        }
        if known.is_some_and(is_port) && is_service_link(&value) {
            let service = variable.trim_end_matches("_PORT").replace('_', "-");
            self.warnings.push(Problem {
                subject: name,
                message: format!(
                    "ignored: Kubernetes sets this variable for a service named {}; \
                     `enableServiceLinks: false` in the pod's specification keeps it out",
                    service.to_ascii_lowercase()
                ),
                source: Some(Source::Variable(variable)),
            });
            return;
        }
        self.add(table(), &name, value, Source::Variable(variable), layer);
    }

    fn add(
        &mut self,
        table: &'static Table,
        name: &str,
        text: String,
        source: Source,
        layer: Layer,
    ) {
        let known = table.canonical(name).map(|setting| (setting, Block::Own));
        let Some((setting, block)) = known.or_else(|| directives::inherited(table, name)) else {
            return self.add_unknown(table, name, source);
        };
        let spelling = if setting.name == name {
            Spelling::Own
        } else {
            Spelling::Alias
        };
        if let Some(given) = table.by_name(name).filter(|given| given.deprecated) {
            self.warnings.push(Problem {
                subject: given.name.clone(),
                source: Some(source.clone()),
                message: format!("deprecated name, use {}", setting.name),
            });
        }
        let rank = Rank(block, layer, spelling);
        let wins = self
            .given
            .get(setting.name.as_str())
            .is_none_or(|present| rank >= present.rank);
        if wins {
            let value = Value {
                text,
                written: name.to_owned(),
                reference: None,
                source,
                rank,
            };
            self.given.insert(setting.name.as_str(), value);
        }
    }

    fn add_unknown(&mut self, table: &Table, name: &str, source: Source) {
        if is_dynamic(name) {
            return self.add_directive(name, source);
        }
        // Other programs read variables with these prefixes too, so an unknown variable never stops the start.
        let is_variable = matches!(source, Source::Variable(_));
        let unknown = if is_variable {
            "unknown setting, ignored"
        } else {
            "unknown setting"
        };
        let message = match table.nearest(name) {
            Some(known) => format!("{unknown}; did you mean {known}?"),
            None => unknown.to_owned(),
        };
        let problem = Problem {
            subject: name.to_owned(),
            source: Some(source),
            message,
        };
        if is_variable {
            self.warnings.push(problem);
        } else {
            self.problems.push(problem);
        }
    }

    /// Reports a directive of nginx that does not work here.
    fn add_directive(&mut self, name: &str, source: Source) {
        let directive = directive_of(name);
        let (list, message) = match directives::refused(directive) {
            Some(instead) => (
                &mut self.problems,
                format!("the directive {directive} is not available: {instead}"),
            ),
            None => {
                let reason = directives::why_ignored(directive);
                let message = format!("this directive has no effect here: {reason}");
                (&mut self.warnings, message)
            }
        };
        list.push(Problem {
            subject: name.to_owned(),
            source: Some(source),
            message,
        });
    }

    /// Resolves references: `{vault://env/my-secret}` is the environment variable `MY_SECRET`. Each part of a list may
    /// be a reference.
    fn resolve_references(&mut self, variables: &HashMap<String, String>) {
        let mut failed = Vec::new();
        for (name, value) in &mut self.given {
            let is_list = table()
                .by_name(name)
                .is_some_and(|setting| setting.kind == Kind::Array);
            let parts: Vec<&str> = if is_list {
                values::list(&value.text).collect()
            } else {
                vec![&value.text]
            };
            let references = parts.iter().filter(|part| referred(part).is_some());
            let names: Vec<&str> = references.copied().collect();
            if names.is_empty() {
                continue;
            }
            let names = names.join(", ").into();
            let parts = parts.into_iter().map(|part| resolve(part, variables));
            match parts.collect::<Result<Vec<_>, _>>() {
                Ok(parts) => {
                    let text = parts.join(",");
                    let written = std::mem::replace(&mut value.text, text);
                    value.reference = Some(Reference { written, names });
                }
                Err(message) => failed.push((*name, message)),
            }
        }
        for (name, message) in failed {
            self.problem(name, message);
            self.given.remove(name);
        }
    }

    fn check(&mut self) {
        for setting in table().iter() {
            let Some(value) = self.given.get(setting.name.as_str()) else {
                continue;
            };
            let optional = matches!(setting.kind, Kind::String | Kind::Array);
            if !(value.text.is_empty() && optional)
                && let Err(error) = values::check(setting, &value.text)
            {
                let message = describe(setting, value, &error);
                self.problem_without_value(&setting.name, message);
                // Later checks use the default, so that one mistake is reported only once.
                self.given.remove(setting.name.as_str());
            } else if let Some(reason) = &setting.no_effect {
                self.warn_without_value(
                    &setting.name,
                    format!("this setting has no effect here: {reason}"),
                );
            }
        }
    }
}

/// Whether the newest report is about this setting.
fn is_last(reports: &[Problem], name: &str) -> bool {
    reports.last().is_some_and(|last| last.subject == name)
}

fn describe(setting: &Setting, value: &Value, error: &values::ValueError) -> String {
    if setting.sensitive || value.reference.is_some() {
        error.to_string()
    } else {
        format!("{error}, found `{}`", value.text)
    }
}

/// Returns the vault and the secret that a text refers to, or `None` if it is not a reference.
fn referred(text: &str) -> Option<&str> {
    text.strip_prefix("{vault://")?.strip_suffix('}')
}

/// Returns the value that a text refers to, or the text itself.
fn resolve<'t>(text: &'t str, variables: &'t HashMap<String, String>) -> Result<&'t str, String> {
    let Some(reference) = referred(text) else {
        return Ok(text);
    };
    let Some(secret) = reference.strip_prefix("env/") else {
        return Err("only {vault://env/...} references are available yet".to_owned());
    };
    let secret = secret.replace('-', "_").to_uppercase();
    match variables.get(&secret) {
        Some(value) => Ok(value),
        None => Err(format!(
            "the environment variable {secret} that it refers to is not set"
        )),
    }
}

/// Whether an unknown `KONG_…` variable is certainly not a setting. Kubernetes sets `KONG_SERVICE_HOST` for a service
/// named `kong`, and `KONG_PROXY_PORT_80_TCP` for one named `kong-proxy`. Container images set others. There is no
/// warning, because users did not write such variables.
fn is_foreign(name: &str, value: &str) -> bool {
    let after_service = format!("_{name}");
    let is_port = after_service.contains("_port_");
    FOREIGN_VARIABLES.contains(&name)
        || is_service_link(value)
        || after_service.ends_with("_service_host")
        || after_service.contains("_service_port")
        || (is_port && (name.contains("_tcp") || name.contains("_udp")))
}

/// Whether Kubernetes can overwrite a setting: for a service named `kong-pg` it sets `KONG_PG_PORT`.
fn is_port(setting: &Setting) -> bool {
    setting.kind == Kind::Number && setting.name.ends_with("_port")
}

/// Whether a value is a service address, as Kubernetes writes it to variables that end with `_PORT`.
fn is_service_link(value: &str) -> bool {
    ["tcp://", "udp://", "sctp://"]
        .iter()
        .any(|scheme| value.starts_with(scheme))
}
