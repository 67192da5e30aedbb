//! `silverback check`: reports every problem that `start` would find in the settings and the configuration. It runs the
//! same code as `start`, but it does not listen, and it only reads the store.

use crate::access::Access;
use crate::commands::Failure;
use crate::control::{config, notices, rebuild, writer};
use crate::declarative_file::{self, Text};
use crate::plane;
use crate::settings::{Database, Declarative, ModelSettings, Settings, StoreSettings};
use crate::start::{self, StoredByOthers};
use model::declarative::{Document, Loader, Nothing, Options, Put, Source, format_cli_errors};
use model::entities::{Config, Consumer, Plugin, Route, Service};
use model::plugins::PluginReader;
use model::schema::VaultReferences;
use model::{EntityKind, Object, codec};
use plugin::{NodeIdentity, notice};
use proxy::snapshot::{BuildSettings, Snapshot};
use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;
use store::{Store, StoreError, View};
use uuid::Uuid;

/// The parts that a successful check has covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checked {
    Configuration,
    /// The settings, and the stored configuration, which `start` would serve.
    Store {
        entities: u64,
        revision: u64,
    },
    /// Neither the command line nor the settings name a configuration, and there is no store.
    SettingsOnly,
}

/// Reports the problems of all parts: a problem in one part does not stop the checks of the others. `file` is the
/// declarative file named on the command line.
pub(crate) fn run(
    settings: Result<Settings, Failure>,
    file: Option<&Path>,
    warnings: &mut Vec<String>,
) -> Result<Checked, Failure> {
    let mut failure = Failure::default();
    let mut model = ModelSettings::default();
    let mut build = BuildSettings {
        plugins: plugins::bundled().to_vec(),
        ..BuildSettings::default()
    };
    let mut declarative = file.map(|file| Declarative::File(file.to_owned()));
    let mut store = None;
    match settings {
        Ok(settings) => {
            match plane::build_settings(&settings, NodeIdentity::default()) {
                Ok(settings) => build = settings,
                Err(problems) => failure.add(problems),
            }
            failure.extend(plane::settings(&settings).err());
            failure.extend(plane::api_certificates(&settings).err());
            failure.extend(Access::prepare(&settings).err());
            model = settings.model;
            if let Database::Off(source) = &settings.store.database {
                declarative = declarative.or_else(|| Some(source.clone()));
            }
            store = Some(settings.store);
        }
        Err(problems) => failure.add(problems),
    }
    let text = match declarative.as_ref().map(declarative_file::read) {
        Some(Ok(text)) => text,
        Some(Err(error)) => {
            failure.add(Failure::new(error));
            return Err(failure);
        }
        None => None,
    };
    if let (Some(text), Some(store)) = (&text, &store) {
        warnings.extend(replaced(text, store));
    }
    let checked = match (text, store) {
        (Some(text), _) => check_text(&text, &model, &build, warnings),
        (None, Some(store)) if Store::exists(&store.path) => check_store(&store, &build, warnings),
        (None, _) => Ok(Checked::SettingsOnly),
    };
    match failure.keep(checked) {
        Some(checked) if failure.is_empty() => Ok(checked),
        _ => Err(failure),
    }
}

/// Returns a warning if a start with this configuration would replace entities that something else has written. A store
/// that cannot be read gives no warning: the configuration would take its place.
fn replaced(text: &Text, settings: &StoreSettings) -> Option<String> {
    if !Store::exists(&settings.path) {
        return None;
    }
    let inspection = start::inspect(settings).ok()?;
    let view = inspection.view().ok()?;
    let stored = StoredByOthers::find(&view).ok()??;
    Some(stored.warning(text))
}

/// Fails with the warnings of a declarative configuration, if there are any.
pub(crate) fn without_warnings(text: &Text, settings: &Settings) -> Result<(), Failure> {
    let build = plane::build_settings(settings, NodeIdentity::default())?;
    let mut warnings = Vec::new();
    check_text(text, &settings.model, &build, &mut warnings)?;
    if warnings.is_empty() {
        return Ok(());
    }
    let mut failure: Failure = warnings.into_iter().collect();
    failure.add(Failure::new(REFUSED_WARNINGS));
    Err(failure)
}

/// The error of a strict command after the warnings.
pub(crate) const REFUSED_WARNINGS: &str = "there are warnings, which --strict does not accept";

fn check_text(
    text: &Text,
    model: &ModelSettings,
    build: &BuildSettings,
    warnings: &mut Vec<String>,
) -> Result<Checked, Failure> {
    let mut plugins: Vec<Plugin> = Vec::new();
    let mut names: HashMap<Uuid, String> = HashMap::new();
    let mut references = VaultReferences::default();
    let mut unhashed = 0;
    let compiled = compile(text, model, build, warnings, &mut |put| {
        let looked = references.look(put.kind, &put.entity);
        looked.map_err(Failure::new)?;
        if put.kind == plugins::kinds::BASICAUTH_CREDENTIALS && !is_hashed(&put.entity)? {
            unhashed += 1;
        }
        if put.kind == EntityKind::Plugins {
            plugins.push(decode(&put.entity)?);
        } else if let Some(name) = name_of(put.kind, &put.entity)? {
            names.insert(put.id, name);
        }
        Ok(())
    });
    warnings.extend(references.notices());
    if unhashed > 0 {
        warnings.push(format!(
            "passwords of basic-auth that are no hash (40 hex digits): {unhashed}. With `_transform: false` passwords must be \
             hashes, so requests with these passwords get 401"
        ));
    }
    compiled?;
    let notices = notice::of(&build.plugins, &plugins, |_, id| names.get(&id).cloned());
    warnings.extend(notices.iter().map(ToString::to_string));
    Ok(Checked::Configuration)
}

/// Counts the entities of a revision. Workspaces are not counted, because the gateway creates the default workspace
/// itself.
pub(crate) fn entities(view: &View<'_>) -> Result<u64, StoreError> {
    let kinds = EntityKind::all();
    let counted = kinds.filter(|kind| *kind != EntityKind::Workspaces);
    counted.map(|kind| view.count(kind)).sum()
}

/// Whether the password of a basic-auth credential is a hash. Passwords are hashed when a document is loaded, unless it
/// says `_transform: false`.
fn is_hashed(credential: &[u8]) -> Result<bool, Failure> {
    let credential: Object = decode(credential)?;
    let password = credential.str("password").unwrap_or_default();
    Ok(password.len() == 40 && password.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Builds the snapshot that would serve the stored configuration. A running gateway can use the store meanwhile.
fn check_store(
    settings: &StoreSettings,
    build: &BuildSettings,
    warnings: &mut Vec<String>,
) -> Result<Checked, Failure> {
    let (config, entities, revision) = {
        let inspection = start::inspect(settings)?;
        let view = inspection.view().map_err(Failure::new)?;
        warnings.extend(notices::of_all(&view).map_err(Failure::new)?);
        let references = rebuild::vault_references(&view, None).map_err(Failure::new)?;
        warnings.extend(references.notices());
        let entities = entities(&view).map_err(Failure::new)?;
        let config = config::read(&view).map_err(Failure::new)?;
        // The view ends here, because it keeps replaced pages in the file of a running gateway.
        (config, entities, view.revision().0)
    };
    Snapshot::build(config, revision, None, build).map_err(|error| {
        Failure::new(format!(
            "the configuration in the store {} (revision {revision}) cannot be served: {error}",
            settings.path.display()
        ))
    })?;
    Ok(Checked::Store { entities, revision })
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
    warnings: &mut Vec<String>,
    look: &mut dyn FnMut(&Put) -> Result<(), Failure>,
) -> Result<Snapshot, Failure> {
    let document = read(text, model)?;
    let doubts = document.warnings.iter();
    warnings.extend(doubts.map(|doubt| format!("the declarative configuration: {doubt}")));
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
