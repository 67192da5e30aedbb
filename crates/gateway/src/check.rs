//! `silverback check`: everything that starting would say about settings and configuration, without a store and without
//! listening. The same code as starting uses, on an empty configuration.

use crate::access::Access;
use crate::commands::{Failure, warn};
use crate::control::config;
use crate::control::writer;
use crate::declarative_file::{self, Text};
use crate::plane;
use crate::settings::{Database, Declarative, ModelSettings, Settings};
use model::declarative::{Loader, Nothing, Options, Put, Source, format_cli_errors};
use model::entities::{Config, Consumer, Plugin, Route, Service};
use model::plugins::PluginReader;
use model::{EntityKind, codec};
use plugin::{Node, notice};
use proxy::snapshot::{BuildSettings, Snapshot};
use std::collections::HashMap;
use std::path::Path;
use uuid::Uuid;

/// Checks what can be checked even when something else is wrong. `file` is the one named on the command line. With `strict` a
/// configuration fails if it has plugins that are not implemented.
pub(crate) fn run(
    settings: Result<Settings, Failure>,
    file: Option<&Path>,
    strict: bool,
) -> Result<(), Failure> {
    let mut failure = Failure::default();
    let mut model = ModelSettings::default();
    let mut build = BuildSettings {
        plugins: plugins::BUNDLED,
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
    if let Some(declarative) = declarative {
        match declarative_file::read(&declarative) {
            Ok(Some(text)) => failure.extend(check_text(&text, &model, &build, strict).err()),
            Ok(None) => {}
            Err(error) => failure.add(Failure::new(error)),
        }
    }
    if failure.is_empty() {
        Ok(())
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
    compile(text, model, build, &mut |put| {
        if put.kind == EntityKind::Plugins {
            plugins.push(decode(&put.entity)?);
        } else if let Some(name) = name_of(put.kind, &put.entity)? {
            names.insert(put.id, name);
        }
        Ok(())
    })?;
    let notices = notice::of(build.plugins, &plugins, |_, id| names.get(&id).cloned());
    for notice in &notices {
        warn(&notice.to_string());
    }
    match notices.len() {
        1.. if strict => Err(Failure::new(
            "the configuration has plugins that are not implemented",
        )),
        _ => Ok(()),
    }
}

/// What people call an entity that a plugin can be configured for.
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

/// The snapshot that a document would be served by. `look` is shown its entities.
pub(crate) fn compile(
    text: &Text,
    model: &ModelSettings,
    build: &BuildSettings,
    look: &mut dyn FnMut(&Put) -> Result<(), Failure>,
) -> Result<Snapshot, Failure> {
    let options = Options {
        context: writer::context(model, true),
        flatten_errors: false,
    };
    let source = Source::Text(&text.bytes, text.format);
    let document = Loader::new()
        .load(source, &options, &Nothing, 0)
        .map_err(|error| Failure::new(format!("Failed parsing:\n{}", format_cli_errors(&error))))?;
    for warning in &document.warnings {
        warn(&format!("the declarative configuration: {warning}"));
    }
    let mut config = Config::default();
    let mut plugins = PluginReader::default();
    for put in &document.puts {
        config::add(&mut config, &mut plugins, put.kind, put.id, &put.entity)
            .map_err(Failure::new)?;
        look(put)?;
    }
    Snapshot::build(config, 0, None, build).map_err(Failure::new)
}
