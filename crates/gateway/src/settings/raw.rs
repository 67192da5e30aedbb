//! Settings as texts with where each came from: file, environment and flags laid over each other. Kong's order:
//! flags over environment over file over default; of the two environment spellings, `SILVERBACK_*` wins.

use super::file;
use super::table::{Setting, Table, is_dynamic, table};
use super::values;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Variables that Kong's container images and tools set and that are no settings.
const FOREIGN_VARIABLES: [&str; 6] = [
    "version",
    "sha256",
    "license_data",
    "license_path",
    "build_version",
    "docker_tag",
];

/// Where a value was written.
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

/// Something wrong with the settings, with the place to mend.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
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

/// What the program was given, before any of it is judged.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// The settings file, with its text.
    pub(crate) file: Option<(PathBuf, String)>,
    pub(crate) variables: Vec<(String, String)>,
    /// Name, value, and the flag they were given with.
    pub(crate) flags: Vec<(String, String, &'static str)>,
}

#[derive(Debug)]
struct Value {
    text: String,
    source: Source,
    rank: Rank,
}

/// Later wins. Within a layer a setting's own name wins over its other spellings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank(Layer, Spelling);

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

/// The value that counts of every setting that was given.
#[derive(Debug)]
pub(crate) struct RawSettings {
    given: HashMap<&'static str, Value>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) warnings: Vec<Problem>,
}

impl RawSettings {
    /// Lays the inputs over each other and checks every name and value against the table.
    pub(crate) fn gather(inputs: Inputs) -> Self {
        let mut raw = Self {
            given: HashMap::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
        };
        let variables = inputs.variables.clone();
        if let Some((path, text)) = inputs.file {
            raw.add_file(&path, &text);
        }
        for (name, value) in inputs.variables {
            raw.add_variable(name, value);
        }
        for (name, value, flag) in inputs.flags {
            raw.add(table(), &name, value, Source::Flag(flag), Layer::Flag);
        }
        raw.resolve_references(&variables);
        raw.check();
        raw
    }

    /// The value of a setting: given or default; empty is `None`.
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

    pub(crate) fn problem(&mut self, name: &str, message: impl fmt::Display) {
        let problem = Problem {
            subject: name.to_owned(),
            source: Some(self.source(name)),
            message: message.to_string(),
        };
        self.problems.push(problem);
    }

    pub(crate) fn warn(&mut self, name: &str, message: impl fmt::Display) {
        let warning = Problem {
            subject: name.to_owned(),
            source: Some(self.source(name)),
            message: message.to_string(),
        };
        self.warnings.push(warning);
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
        if table().by_name(&name).is_none() && is_foreign(&name, &value) {
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
        let Some(setting) = table.canonical(name) else {
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
        let rank = Rank(layer, spelling);
        let wins = self
            .given
            .get(setting.name.as_str())
            .is_none_or(|present| rank >= present.rank);
        if wins {
            let value = Value { text, source, rank };
            self.given.insert(setting.name.as_str(), value);
        }
    }

    fn add_unknown(&mut self, table: &Table, name: &str, source: Source) {
        if is_dynamic(name) {
            let message = "this directive has no effect here: there is no nginx underneath";
            self.warnings.push(Problem {
                subject: name.to_owned(),
                source: Some(source),
                message: message.to_owned(),
            });
            return;
        }
        let message = match table.nearest(name) {
            Some(known) => format!("unknown setting; did you mean {known}?"),
            None => "unknown setting".to_owned(),
        };
        self.problems.push(Problem {
            subject: name.to_owned(),
            source: Some(source),
            message,
        });
    }

    /// `{vault://env/my-secret}` is the environment variable `MY_SECRET`.
    fn resolve_references(&mut self, variables: &[(String, String)]) {
        let mut failed = Vec::new();
        for (name, value) in &mut self.given {
            let Some(reference) = value
                .text
                .strip_prefix("{vault://")
                .and_then(|rest| rest.strip_suffix('}'))
            else {
                continue;
            };
            let secret = reference
                .strip_prefix("env/")
                .map(|secret| secret.replace('-', "_").to_uppercase());
            match secret {
                None => failed.push((
                    *name,
                    "only {vault://env/...} references are available yet".to_owned(),
                )),
                Some(secret) => match lookup(variables, &secret) {
                    Some(text) => value.text = text,
                    None => failed.push((
                        *name,
                        format!("the environment variable {secret} that it refers to is not set"),
                    )),
                },
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
            let optional = matches!(
                setting.kind,
                super::table::Kind::String | super::table::Kind::Array
            );
            if !(value.text.is_empty() && optional)
                && let Err(error) = values::check(setting, &value.text)
            {
                let message = describe(setting, &value.text, &error);
                self.problem(&setting.name, message);
                // What depends on it goes on with the default, so that one mistake is reported once.
                self.given.remove(setting.name.as_str());
            } else if let Some(reason) = &setting.no_effect {
                self.warn(
                    &setting.name,
                    format!("this setting has no effect here: {reason}"),
                );
            }
        }
    }
}

fn describe(setting: &Setting, text: &str, error: &values::ValueError) -> String {
    if setting.sensitive {
        error.to_string()
    } else {
        format!("{error}, found `{text}`")
    }
}

fn lookup(variables: &[(String, String)], name: &str) -> Option<String> {
    let found = variables.iter().find(|(variable, _)| variable == name);
    found.map(|(_, value)| value.clone())
}

/// Whether an unknown `KONG_…` variable is no setting but one that Kubernetes writes for a service named `kong…`
/// (`KONG_PROXY_PORT_80_TCP=tcp://…`), or that an image carries. Refusing those would stop every such pod.
fn is_foreign(name: &str, value: &str) -> bool {
    FOREIGN_VARIABLES.contains(&name)
        || value.starts_with("tcp://")
        || value.starts_with("udp://")
        || name.ends_with("_service_host")
        || name.contains("_service_port")
        || (name.contains("_port_") && (name.contains("_tcp") || name.contains("_udp")))
}
