//! SIGHUP: settings are read again from where they came; what can change while running does, the rest is named.

use crate::commands::{Failure, StartInputs, accepted};
use crate::control::Gateway;
use crate::control::writer::Input;
use crate::declarative_file::{self, Text};
use crate::settings::{Database, Settings};
use crate::start::describe;
use model::declarative::Source;

/// Takes over what can be, and gives the settings that hold from now on. Whatever is wrong, everything goes on as before.
pub(crate) fn run(inputs: &StartInputs, current: Settings, gateway: &Gateway) -> Settings {
    match reload(inputs, &current, gateway) {
        Ok(settings) => settings,
        Err(failure) => {
            tracing::error!("the settings are not reloaded:\n{failure}");
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
    gateway.apply_logs(&new.log)?;
    for name in needs_restart(current, &new) {
        tracing::warn!("setting {name}: the new value takes effect at a restart");
    }
    let settings = Settings {
        log: new.log,
        shown: current.shown.clone(),
        ..current.clone()
    };
    match text {
        Some(text) if matches!(current.store.database, Database::Off(_)) => load(text, gateway),
        _ => tracing::info!("settings reloaded"),
    }
    Ok(settings)
}

/// After the changes that wait already; the outcome is in the log.
fn load(text: Text, gateway: &Gateway) {
    gateway.run(move |writer| {
        let loaded = writer.replace(Input {
            source: Source::Text(&text.bytes, text.format),
            hash: model::declarative::hash(&text.bytes),
            flatten_errors: false,
        });
        match loaded {
            Ok(_) => tracing::info!("settings and declarative configuration reloaded"),
            Err(error) => tracing::error!(
                "the configuration stays as it was: {}",
                describe(&text.name, error)
            ),
        }
    });
}

/// Settings whose value has changed and that are read only at start.
fn needs_restart(current: &Settings, new: &Settings) -> Vec<String> {
    const RELOADED: [&str; 4] = [
        "log_level",
        "proxy_error_log",
        "declarative_config",
        "declarative_config_string",
    ];
    let (Some(before), Some(after)) = (current.shown.as_object(), new.shown.as_object()) else {
        return Vec::new();
    };
    let mut names: Vec<String> = before
        .keys()
        .chain(after.keys().filter(|name| !before.contains_key(*name)))
        .filter(|name| before.get(*name) != after.get(*name))
        .filter(|name| !RELOADED.contains(&name.as_str()))
        .cloned()
        .collect();
    names.sort();
    names
}
