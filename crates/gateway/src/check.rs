//! `silverback check`: reports every problem that `start` would find in the settings and the configuration. It opens no
//! store and does not listen. It runs the same code as `start`, on an empty configuration.

use crate::access::Access;
use crate::commands::{Failure, warn};
use crate::control::config;
use crate::control::writer;
use crate::declarative_file::{self, Text};
use crate::plane;
use crate::settings::{Database, Declarative, ModelSettings, Settings};
use model::declarative::{Document, Loader, Nothing, Options, Put, Source, format_cli_errors};
use model::entities::{Config, Consumer, Plugin, Route, Service};
use model::plugins::PluginReader;
use model::schema::VaultReferences;
use model::{EntityKind, codec};
use plugin::{Node, notice};
use proxy::snapshot::{BuildSettings, Snapshot};
use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;
use uuid::Uuid;

/// The parts that a successful check has covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checked {
    Configuration,
    /// Neither the command line nor the settings name a configuration.
    SettingsOnly,
}

/// Reports the problems of all parts: a problem in one part does not stop the checks of the others. `file` is the
/// declarative file named on the command line. With `strict`, a plugin that is not implemented and a vault reference are errors.
pub(crate) fn run(
    settings: Result<Settings, Failure>,
    file: Option<&Path>,
    strict: bool,
) -> Result<Checked, Failure> {
    let mut failure = Failure::default();
    let mut model = ModelSettings::default();
    let mut build = BuildSettings {
        plugins: plugins::BUNDLED.to_vec(),
        ..BuildSettings::default()
    };
    let mut declarative = file.map(|file| Declarative::File(file.to_owned()));
    match settings {
        Ok(settings) => {
            match plane::build_settings(&settings, Node::default()) {
                Ok(settings) => build = settings,
                Err(problems) => failure.add(problems),
            }
            failure.extend(plane::settings(&settings).err());
            failure.extend(plane::api_certificates(&settings).err());
            failure.extend(Access::prepare(&settings).err());
            model = settings.model;
            if let Database::Off(source) = settings.store.database {
                declarative = declarative.or(Some(source));
            }
        }
        Err(problems) => failure.add(problems),
    }
    let mut checked = Checked::SettingsOnly;
    if let Some(declarative) = declarative {
        match declarative_file::read(&declarative) {
            Ok(Some(text)) => {
                checked = Checked::Configuration;
                failure.extend(check_text(&text, &model, &build, strict).err());
            }
            Ok(None) => {}
            Err(error) => failure.add(Failure::new(error)),
        }
    }
    if failure.is_empty() {
        Ok(checked)
    } else {
        Err(failure)
    }
}

fn check_text(
    text: &Text,
    model: &ModelSettings,
    build: &BuildSettings,
    strict: bool,
) -> Result<(), Failure> {
    let mut plugins: Vec<Plugin> = Vec::new();
    let mut names: HashMap<Uuid, String> = HashMap::new();
    let mut references = VaultReferences::default();
    let compiled = compile(text, model, build, &mut |put| {
        let looked = references.look(put.kind, &put.entity);
        looked.map_err(Failure::new)?;
        if put.kind == EntityKind::Plugins {
            plugins.push(decode(&put.entity)?);
        } else if let Some(name) = name_of(put.kind, &put.entity)? {
            names.insert(put.id, name);
        }
        Ok(())
    });
    for notice in references.notices() {
        warn(&notice);
    }
    compiled?;
    let notices = notice::of(&build.plugins, &plugins, |_, id| names.get(&id).cloned());
    for notice in &notices {
        warn(&notice.to_string());
    }
    let mut failure = Failure::default();
    if strict && !notices.is_empty() {
        failure.add(Failure::new(
            "the configuration has plugins that are not implemented",
        ));
    }
    if strict && references.notices().next().is_some() {
        failure.add(Failure::new(
            "the configuration has vault references, which are not resolved yet",
        ));
    }
    if failure.is_empty() {
        Ok(())
    } else {
        Err(failure)
    }
}

/// Returns the name of an entity that a plugin can be configured for.
pub(crate) fn name_of(kind: EntityKind, entity: &[u8]) -> Result<Option<String>, Failure> {
    let name = match kind {
        EntityKind::Routes => decode::<Route>(entity)?.name,
        EntityKind::Services => decode::<Service>(entity)?.name,
        EntityKind::Consumers => decode::<Consumer>(entity)?.username,
        _ => None,
    };
    Ok(name.map(String::from))
}

pub(crate) fn decode<T: serde::de::DeserializeOwned>(entity: &[u8]) -> Result<T, Failure> {
    codec::decode(entity).map_err(Failure::new)
}

/// Builds the snapshot that would serve this document. `look` is called with each of its entities.
pub(crate) fn compile(
    text: &Text,
    model: &ModelSettings,
    build: &BuildSettings,
    look: &mut dyn FnMut(&Put) -> Result<(), Failure>,
) -> Result<Snapshot, Failure> {
    let document = read(text, model)?;
    for warning in &document.warnings {
        warn(&format!("the declarative configuration: {warning}"));
    }
    let failed = |error: &dyn Display| Failure::new(format!("cannot load {}: {error}", text.name));
    let mut config = Config::default();
    let mut plugins = PluginReader::default();
    for put in &document.puts {
        config::add(&mut config, &mut plugins, put.kind, put.id, &put.entity)
            .map_err(|error| failed(&error))?;
        look(put)?;
    }
    Snapshot::build(config, 0, None, build).map_err(|error| failed(&error))
}

/// Reads a document and validates its entities by the schema.
pub(crate) fn read(text: &Text, model: &ModelSettings) -> Result<Document, Failure> {
    let options = Options {
        context: writer::context(model, true),
        flatten_errors: false,
    };
    let source = Source::Text(&text.bytes, text.format);
    let read = Loader::new().load(source, &options, &Nothing, 0);
    read.map_err(|error| {
        let errors = format_cli_errors(&error, &text.bytes, text.format, model.flavor);
        Failure::new(format!(
            "Failed parsing declarative config {}:\n{errors}",
            text.name
        ))
    })
}
