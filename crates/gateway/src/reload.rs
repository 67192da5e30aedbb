//! SIGHUP: reads the settings again from their sources. Changes that a running process can apply take effect; the log
//! names the others.

use crate::check;
use crate::commands::{Failure, StartInputs, accepted};
use crate::control::Gateway;
use crate::control::writer::Input;
use crate::declarative_file::{self, Text};
use crate::instance;
use crate::settings::{Database, ModelSettings, Settings};
use crate::start::describe;
use admin::control::{Control, Loaded};
use model::EntityKind;
use model::declarative::Source;
use model::entities::Plugin;
use proxy::snapshot::BuildError;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use store::{Origin, Store};

/// Applies the settings that can change, and returns those that are now in effect. If the settings are invalid or the
/// declarative file is unreadable, nothing changes and the log says why.
pub(crate) fn run(inputs: &StartInputs, current: Settings, gateway: &Gateway) -> Settings {
    match reload(inputs, &current, gateway) {
        Ok(settings) => settings,
        Err(failure) => {
            tracing::error!("the settings are not reloaded:\n{failure}");
            instance::publish_reload(&current.prefix, Err(&failure.reasons()));
            current
        }
    }
}

fn reload(
    inputs: &StartInputs,
    current: &Settings,
    gateway: &Gateway,
) -> Result<Settings, Failure> {
    let resolved = inputs.resolve()?;
    let new = accepted(resolved.settings)?;
    let text = match &new.store.database {
        Database::Off(declarative) => declarative_file::read(declarative).map_err(Failure::new)?,
        Database::Lmdb => None,
    };
    if new.model.plugins != current.model.plugins {
        check_plugins(&new.model, text.as_ref(), gateway.store())?;
    }
    gateway.apply_logs(&new.log)?;
    gateway.access_logs().reopen();
    let waiting = needs_restart(current, &new);
    let mut notes = String::new();
    for name in &waiting {
        let note = format!("setting {name}: the new value takes effect at a restart");
        tracing::warn!("{note}");
        notes.push_str(&note);
        notes.push('\n');
    }
    // The new values are for the other DNS client, which is used only after a restart.
    let dns = if waiting.iter().any(|name| name == "new_dns_client") {
        current.dns.clone()
    } else {
        new.dns
    };
    gateway.apply_dns(&dns);
    let settings = Settings {
        log: new.log,
        dns,
        shown: current.shown.clone(),
        ..current.clone()
    };
    match text {
        Some(text) if matches!(current.store.database, Database::Off(_)) => {
            load(text, gateway, current.prefix.clone(), notes);
        }
        _ => {
            tracing::info!("settings reloaded");
            instance::publish_reload(&current.prefix, Ok(&notes));
        }
    }
    Ok(settings)
}

/// Fails if the configuration has a plugin that the new settings do not enable. They take effect at a restart, which
/// would fail then.
fn check_plugins(model: &ModelSettings, text: Option<&Text>, store: &Store) -> Result<(), Failure> {
    if let Some(text) = text {
        return check::read(text, model).map(|_| ());
    }
    let view = store.view().map_err(Failure::new)?;
    let mut missing = BTreeSet::new();
    for entry in view.iter(EntityKind::Plugins).map_err(Failure::new)? {
        let (_, bytes) = entry.map_err(Failure::new)?;
        let name = check::decode::<Plugin>(bytes)?.name;
        if !model.plugins.contains(&name) {
            missing.insert(name.to_string());
        }
    }
    let problems = missing.into_iter();
    let problems = problems.map(|name| BuildError::NotEnabled { name }.to_string());
    let failure: Failure = problems.collect();
    if failure.is_empty() {
        Ok(())
    } else {
        Err(failure)
    }
}

/// Loads the configuration after the changes that are already waiting. The outcome is logged and published.
fn load(text: Text, gateway: &Gateway, prefix: PathBuf, notes: String) {
    let links = Arc::clone(gateway.links());
    gateway.run(move |writer| {
        let loaded = writer.replace(Input {
            source: Source::Text(&text.bytes, text.format),
            hash: model::declarative::hash(&text.bytes),
            flatten_errors: false,
            origin: Origin::program(&text.name),
        });
        match loaded {
            Ok(loaded) => {
                if let Loaded::Live { revision, .. } = loaded {
                    links.tell(revision);
                }
                tracing::info!("settings and declarative configuration reloaded");
                instance::publish_reload(&prefix, Ok(&notes));
            }
            Err(error) => {
                let reason = describe(&text, writer.model.flavor, error);
                tracing::error!("the configuration stays as it was: {reason}");
                instance::publish_reload(&prefix, Err(&reason));
            }
        }
    });
}

/// Whether a reload applies a change of this setting. `new_dns_client` is not among them, because it also changes the
/// Admin API.
fn is_reloaded(name: &str) -> bool {
    const RELOADED: [&str; 4] = [
        "log_level",
        "proxy_error_log",
        "declarative_config",
        "declarative_config_string",
    ];
    let of_dns = name.starts_with("dns_") || name.starts_with("resolver_");
    of_dns || RELOADED.contains(&name)
}

/// Returns the names of changed settings that are only read at start.
fn needs_restart(current: &Settings, new: &Settings) -> Vec<String> {
    let (Some(before), Some(after)) = (current.shown.as_object(), new.shown.as_object()) else {
        return Vec::new();
    };
    let mut names: Vec<String> = before
        .keys()
        .chain(after.keys().filter(|name| !before.contains_key(*name)))
        .filter(|name| before.get(*name) != after.get(*name))
        .filter(|name| !is_reloaded(name))
        .cloned()
        .collect();
    names.sort();
    names
}
