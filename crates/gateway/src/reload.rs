//! Reads the settings again from their sources. SIGHUP and `POST /reload` over the local socket start this. The command
//! `silverback reload` sends that request. Changes that a running process can apply take effect, and warnings name the
//! others.

use crate::check;
use crate::commands::{Failure, StartInputs, accepted};
use crate::control::writer::{Input, Writer};
use crate::control::{Gateway, Reloadable};
use crate::declarative_file::{self, Text};
use crate::logging;
use crate::settings::{self, Database, ModelSettings, Settings};
use crate::start::describe;
use admin::control::{Control, Loaded, LoadedConfiguration, Reload, Reloading};
use model::EntityKind;
use model::declarative::Source;
use model::entities::Plugin;
use proxy::snapshot::BuildError;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use store::{Counts, Origin, Revision, Store};
use tokio::sync::{mpsc, oneshot};

/// Maximum number of requests that wait for the main thread.
const WAITING: usize = 16;

/// The effects of a reload, or the reason why it failed.
type Outcome = Result<Reloading, String>;

/// A request to reload, whose client waits for the outcome.
pub(crate) struct Request {
    given: Reload,
    answer: oneshot::Sender<Outcome>,
}

/// Passes requests from the Admin API to the main thread.
#[derive(Clone)]
pub(crate) struct Desk(mpsc::Sender<Request>);

impl Desk {
    pub(crate) fn open() -> (Self, mpsc::Receiver<Request>) {
        let (sender, requests) = mpsc::channel(WAITING);
        (Self(sender), requests)
    }

    /// Requests a reload and waits for its outcome.
    pub(crate) async fn ask(&self, given: Reload) -> Outcome {
        let (answer, outcome) = oneshot::channel();
        if self.0.send(Request { given, answer }).await.is_err() {
            return Err("this process is ending, or another one has taken over from it".to_owned());
        }
        let lost = |_| Err("the reload has broken off; the log tells why".to_owned());
        outcome.await.unwrap_or_else(lost)
    }
}

/// Reloads at SIGHUP. The outcome is logged.
pub(crate) fn at_signal(inputs: &StartInputs, current: &Settings, gateway: &Arc<Gateway>) {
    run(inputs, current, gateway, &Reload::default(), |_| {});
}

/// Reloads and sends the outcome to the client. The outcome is also logged.
pub(crate) fn at_request(
    inputs: &StartInputs,
    current: &Settings,
    gateway: &Arc<Gateway>,
    request: Request,
) {
    let Request { given, answer } = request;
    run(inputs, current, gateway, &given, |outcome| {
        // Sending fails if the client no longer waits.
        let _ = answer.send(outcome);
    });
}

/// Loads the declarative configuration and applies the settings that can change. If anything is wrong, nothing changes.
fn run(
    inputs: &StartInputs,
    current: &Settings,
    gateway: &Arc<Gateway>,
    given: &Reload,
    answer: impl FnOnce(Outcome) + Send + 'static,
) {
    match read(inputs, current, gateway, given) {
        Ok(read) => load(read, gateway, answer),
        Err(failure) => {
            tracing::error!("the settings are not reloaded:\n{failure}");
            answer(Err(failure.reasons()));
        }
    }
}

/// Everything that a reload changes, valid except for the content of the declarative configuration.
struct Read {
    settings: Reloadable,
    /// The declarative configuration to load.
    text: Option<Text>,
    /// The settings to compile the configuration with, if its warnings refuse the reload.
    strict: Option<Settings>,
    warnings: Vec<String>,
}

fn read(
    inputs: &StartInputs,
    current: &Settings,
    gateway: &Gateway,
    given: &Reload,
) -> Result<Read, Failure> {
    if let Some(file) = &given.settings_file {
        check_file(file, inputs.settings_file()).map_err(Failure::new)?;
    }
    let resolved = inputs.resolve()?;
    let new = accepted(resolved.settings)?;
    let text = match &new.store.database {
        Database::Off(declarative) => declarative_file::read(declarative).map_err(Failure::new)?,
        Database::Lmdb => None,
    };
    if new.model.plugins != current.model.plugins {
        check_plugins(&new.model, text.as_ref(), gateway.store())?;
    }
    let output = logging::open(&new.log).map_err(Failure::new)?;
    let waiting = needs_restart(current, &new);
    let later = waiting.iter().map(|name| {
        format!(
            "{}: the new value takes effect at a restart or `silverback upgrade`",
            new.origins.of_changed(name, &current.origins)
        )
    });
    let warnings = other_variables(given).chain(later).collect();
    // If the DNS client changes, the new DNS settings are for the new client, which is used only after a restart.
    let is_same_client = !waiting.iter().any(|name| name == "new_dns_client");
    Ok(Read {
        settings: Reloadable {
            log: new.log,
            output,
            dns: is_same_client.then_some(new.dns),
        },
        text: text.filter(|_| matches!(current.store.database, Database::Off(_))),
        strict: given.strict.then(|| current.clone()),
        warnings,
    })
}

/// Fails if the configuration has a plugin that the new settings do not enable. Otherwise the next restart would fail,
/// because it applies the new list of plugins.
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

/// Fails if `given` is not the gateway's own settings file.
fn check_file(given: &Path, own: Option<&Path>) -> Result<(), String> {
    let absolute = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let own = own.map(absolute);
    if own.as_deref() == Some(&absolute(given)) {
        return Ok(());
    }
    let own = match own {
        Some(own) => format!("reads its settings from {}", own.display()),
        None => "was started without a settings file".to_owned(),
    };
    Err(format!(
        "the running gateway {own}, and a reload cannot give it {}. Run `silverback reload` without --conf, or start the \
         gateway with that file",
        given.display()
    ))
}

/// Returns a warning for each setting in the environment of the command that has another value in this process.
fn other_variables(given: &Reload) -> impl Iterator<Item = String> {
    let others = given.variables.iter().filter(|(name, value)| {
        let own = std::env::var_os(name);
        own.is_none_or(|own| own.to_str() != Some(value.as_str()))
    });
    others.map(|(name, _)| {
        format!(
            "environment variable {name} has no effect: the gateway has the environment that it was started with"
        )
    })
}

/// Loads the configuration after the changes that are already waiting, and then applies the settings. The writing thread
/// does both, so that reloads take effect one after the other, and signals need not wait for a large configuration.
fn load(read: Read, gateway: &Arc<Gateway>, answer: impl FnOnce(Outcome) + Send + 'static) {
    let own = Arc::clone(gateway);
    gateway.run(move |writer| {
        let Read {
            settings,
            text,
            strict,
            mut warnings,
        } = read;
        let loaded = match &text {
            Some(text) => accept(text, strict.as_ref()).and_then(|()| replace(writer, text, &own)),
            None => Ok(Reloading::default()),
        };
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(reason) => {
                tracing::error!("the settings and the configuration stay as they were: {reason}");
                return answer(Err(reason));
            }
        };
        own.apply(settings);
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        warnings.extend(loaded.warnings);
        tracing::info!(
            "{}",
            match text {
                Some(_) => "settings and declarative configuration reloaded",
                None => "settings reloaded",
            }
        );
        answer(Ok(Reloading {
            warnings,
            configuration: loaded.configuration,
        }));
    });
}

/// Refuses a configuration with warnings if the reload is strict.
fn accept(text: &Text, strict: Option<&Settings>) -> Result<(), String> {
    let checked = strict.map_or(Ok(()), |settings| check::without_warnings(text, settings));
    checked.map_err(|failure| failure.reasons())
}

/// Replaces the configuration with a text.
fn replace(writer: &mut Writer, text: &Text, gateway: &Gateway) -> Result<Reloading, String> {
    let before = writer.store.refresh().unwrap_or(Revision(0));
    let loaded = writer.replace(Input {
        source: Source::Text(&text.bytes, text.format),
        hash: model::declarative::hash(&text.bytes),
        flatten_errors: false,
        origin: Origin::program(&text.name),
    });
    match loaded {
        Ok(Loaded::Live {
            revision, warnings, ..
        }) => {
            gateway.links().tell(revision);
            Ok(Reloading {
                warnings,
                configuration: Some(describe_loaded(&writer.store, before, revision)),
            })
        }
        Ok(_) => Ok(Reloading::default()),
        Err(error) => Err(describe(text, writer.model.flavor, error)),
    }
}

/// Describes the revision that is live after a load. `before` is the newest revision before it.
fn describe_loaded(store: &Store, before: Revision, revision: Revision) -> LoadedConfiguration {
    let counts = || -> Option<Counts> {
        let view = store.view().ok()?;
        Some(view.history().ok()?.info(revision).ok()?.counts)
    };
    // Without a new revision nothing has changed.
    let counts = if revision > before { counts() } else { None };
    let Counts {
        created,
        updated,
        deleted,
    } = counts.unwrap_or_default();
    LoadedConfiguration {
        revision: revision.0,
        created,
        updated,
        deleted,
    }
}

/// Returns whether a reload applies a change of this setting. A change of `new_dns_client` needs a restart, because it
/// also changes the Admin API.
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
    let names = settings::names();
    let mut names: Vec<String> = names
        .filter(|name| current.shown.get(name) != new.shown.get(name))
        .filter(|name| !is_reloaded(name))
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Inputs;
    use std::fs;

    fn settings(file: &str) -> Settings {
        let inputs = Inputs {
            file: Some(("kong.conf".into(), file.to_owned())),
            ..Inputs::default()
        };
        settings::resolve(inputs, None).settings.expect("valid")
    }

    #[test]
    fn settings_that_need_a_restart_are_called_by_their_names() {
        let before = settings("database = off\n");
        let listeners = "0.0.0.0:9001 ssl";
        let after = format!(
            "database = lmdb\nlog_level = debug\ndns_order = A\nrouter_flavor = traditional\n\
             proxy_listen = {listeners}\nstream_listen = {listeners}\nadmin_listen = {listeners}\n\
             admin_gui_listen = {listeners}\nstatus_listen = {listeners}\ncluster_listen = {listeners}\n"
        );
        let names = needs_restart(&before, &settings(&after));
        let expected = [
            "admin_gui_listen",
            "admin_listen",
            "cluster_listen",
            "database",
            "proxy_listen",
            "router_flavor",
            "status_listen",
            "stream_listen",
        ];
        assert_eq!(names, expected);
        for name in names {
            assert!(settings::names().any(|known| known == name), "{name}");
        }
    }

    #[test]
    fn a_changed_setting_is_reported_once_by_the_name_that_the_user_wrote() {
        let before = settings("nginx_worker_processes = 1\n");
        let after = settings("\nnginx_worker_processes = 2\n");
        let names = needs_restart(&before, &after);
        assert_eq!(names, ["nginx_main_worker_processes"]);
        let words =
            |new: &Settings, old: &Settings| new.origins.of_changed(&names[0], &old.origins);
        assert_eq!(
            words(&after, &before),
            "setting nginx_worker_processes (kong.conf:2)"
        );
        assert_eq!(
            words(&settings(""), &before),
            "setting nginx_worker_processes (its default)"
        );
    }

    #[test]
    fn only_the_settings_file_of_the_gateway_is_accepted() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        for name in ["own.conf", "other.conf"] {
            fs::write(path(name), "").expect("writable");
        }
        std::os::unix::fs::symlink(path("own.conf"), path("link.conf")).expect("a link");
        let check = |given: &str, own: Option<&Path>| check_file(&path(given), own);
        let own = path("own.conf");
        assert_eq!(check("own.conf", Some(&own)), Ok(()));
        assert_eq!(check("link.conf", Some(&own)), Ok(()));
        let refused = check("other.conf", Some(&own)).expect_err("another file");
        assert!(
            refused.contains("own.conf") && refused.contains("other.conf"),
            "{refused}"
        );
        let refused = check("other.conf", None).expect_err("no file");
        assert!(refused.contains("without a settings file"), "{refused}");
    }

    #[test]
    fn a_variable_that_the_gateway_does_not_have_gets_a_warning_without_its_value() {
        let path = std::env::var("PATH").expect("cargo sets it");
        let variables = [("PATH", path.as_str()), ("KONG_PG_PASSWORD", "secret")];
        let given = Reload {
            variables: variables
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..Reload::default()
        };
        let warnings: Vec<String> = other_variables(&given).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with("environment variable KONG_PG_PASSWORD has no effect"));
        assert!(!warnings[0].contains("secret"));
    }
}
