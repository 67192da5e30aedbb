//! `silverback start`: from settings to a serving process, and what it does until it ends. Everything that can fail does so
//! before the first request is served.

use crate::commands::{Failure, StartInputs, accepted};
use crate::control::{Gateway, Parts, node, writer};
use crate::declarative_file::{self, Text};
use crate::instance::Instance;
use crate::logging::{self, Logs};
use crate::lookup::StoreLookup;
use crate::settings::{Database, Settings};
use crate::signals::{Request, Signals};
use crate::sockets::{self, Sockets};
use crate::workers::Workers;
use crate::{memory, plane, reload};
use admin::control::LoadError;
use model::declarative::{Loader, Source, format_cli_errors};
use net::tls::Certificates;
use proxy::session::DataPlane;
use proxy::snapshot::{BuildSettings, Live, Snapshot};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;
use store::{Recovery, Store};
use writer::{Input, Writer};

pub(crate) fn run(inputs: StartInputs) -> Result<(), Failure> {
    let resolved = inputs.resolve()?;
    let settings = accepted(resolved.settings)?;
    let instance = Instance::claim(&settings.prefix).map_err(Failure::new)?;
    let logs = logging::start(&settings.log).map_err(Failure::new)?;
    for warning in &resolved.warnings {
        tracing::warn!("setting {warning}");
    }
    raise_open_files();
    let mut signals = Signals::catch().map_err(Failure::new)?;
    let prepared = prepare(&settings, logs)?;
    let (gateway, workers) = serve(prepared, &settings, &instance)?;
    let mut current = settings;
    while signals.next() == Request::Reload {
        current = reload::run(&inputs, current, &gateway);
    }
    tracing::info!(limit = ?current.drain_timeout, "stopping: requests in flight may finish");
    workers.drain(current.drain_timeout);
    tracing::info!("stopped");
    Ok(())
}

/// All that a start needs before it may listen to clients.
struct Prepared {
    sockets: Sockets,
    ready: Ready,
}

/// The configuration, loaded and compiled, and who may change it.
struct Ready {
    parts: Parts,
    admin_certificate: Option<Arc<Certificates>>,
}

/// Sockets and configuration have nothing to do with each other: what is wrong with both is told at once.
fn prepare(settings: &Settings, logs: Logs) -> Result<Prepared, Failure> {
    let sockets = sockets::bind_all(settings);
    let ready = prepare_configuration(settings, logs);
    match (sockets, ready) {
        (Ok(sockets), Ok(ready)) => Ok(Prepared { sockets, ready }),
        (sockets, ready) => {
            let mut failure = Failure::default();
            failure.extend(sockets.err());
            failure.extend(ready.err());
            Err(failure)
        }
    }
}

fn prepare_configuration(settings: &Settings, logs: Logs) -> Result<Ready, Failure> {
    let node = node::identify(settings).map_err(Failure::new)?;
    let identity = plugin::Node {
        id: node.id.to_string(),
        hostname: node.hostname.clone(),
    };
    let build = plane::build_settings(settings, identity);
    let plane_settings = plane::settings(settings);
    let certificate = plane::admin_certificate(settings);
    let (build, plane_settings, certificate) = match (build, plane_settings, certificate) {
        (Ok(build), Ok(plane_settings), Ok(certificate)) => (build, plane_settings, certificate),
        (build, plane_settings, certificate) => {
            let mut failure = Failure::default();
            failure.extend(build.err());
            failure.extend(plane_settings.err());
            failure.extend(certificate.err());
            return Err(failure);
        }
    };
    let text = declarative_text(settings)?;
    let store = open_store(settings, text.is_some())?;
    let snapshot = served_snapshot(&store, &build, text.is_some())?;
    let lookup = Arc::new(StoreLookup::new(store.clone()));
    let plane = DataPlane::new(
        Live::new(snapshot),
        plane_settings,
        lookup,
        settings.workers,
    );
    let mut writer = Writer {
        store,
        plane: Arc::new(plane),
        model: settings.model.clone(),
        dbless: settings.store.database != Database::Lmdb,
        build,
        loader: Loader::new(),
        stages: Arc::default(),
    };
    if let Some(text) = text {
        load(&mut writer, &text)?;
    }
    // As after every change: what compiling took and serving does not need.
    memory::give_back();
    writer.store.release_resident_pages();
    Ok(Ready {
        parts: Parts { writer, node, logs },
        admin_certificate: certificate,
    })
}

fn declarative_text(settings: &Settings) -> Result<Option<Text>, Failure> {
    match &settings.store.database {
        Database::Lmdb => Ok(None),
        Database::Off(declarative) => declarative_file::read(declarative).map_err(Failure::new),
    }
}

/// Opens the store. One that cannot be read is never served as an empty configuration; with a file there is another source.
fn open_store(settings: &Settings, has_file: bool) -> Result<Store, Failure> {
    let mut options = store::Options::default();
    if let Some(size) = settings.store.max_size {
        options.max_size = usize::try_from(size).unwrap_or(options.max_size);
    }
    let (store, recovery) = Store::open(&settings.store.path, options).map_err(Failure::new)?;
    match recovery {
        Recovery::SetAside { aside, damage, .. } if !has_file => Err(Failure::new(format!(
            "the store in {} is unreadable: {damage}. It was kept as {}; nothing is served instead of it. Start with a \
             declarative file to begin anew, or put a copy of the store in its place",
            settings.store.path.display(),
            aside.display(),
        ))),
        Recovery::SetAside { aside, .. } => {
            let aside = aside.display();
            tracing::error!(%aside, "the store was unreadable; the declarative file takes its place");
            Ok(store)
        }
        Recovery::Opened | Recovery::Created => Ok(store),
    }
}

/// The snapshot of what the store holds. When a file replaces that anyway, an old state that can no longer be compiled
/// (a plugin that was removed from the settings) must not stop the start.
fn served_snapshot(
    store: &Store,
    build: &BuildSettings,
    has_file: bool,
) -> Result<Snapshot, Failure> {
    let view = store.view().map_err(Failure::new)?;
    match writer::compile(&view, None, build) {
        Ok(snapshot) => Ok(snapshot),
        Err(error) if has_file => {
            tracing::warn!(%error, "the stored configuration cannot be served; the declarative file replaces it");
            writer::empty_snapshot(build).map_err(Failure::new)
        }
        Err(error) => Err(Failure::new(format!(
            "the configuration in {} cannot be served: {error}",
            store_name(store)
        ))),
    }
}

fn store_name(store: &Store) -> String {
    use store::Journal;
    format!("the store (revision {})", store.head())
}

fn load(writer: &mut Writer, text: &Text) -> Result<(), Failure> {
    let input = Input {
        source: Source::Text(&text.bytes, text.format),
        hash: model::declarative::hash(&text.bytes),
        flatten_errors: false,
    };
    match writer.replace(input) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::new(describe(&text.name, error))),
    }
}

/// Why a declarative configuration was not loaded, in Kong's words where it has some.
pub(crate) fn describe(name: &str, error: LoadError) -> String {
    match error {
        LoadError::Invalid(error) => {
            format!(
                "error parsing declarative config {name}:\n{}",
                format_cli_errors(&error)
            )
        }
        LoadError::TooLarge => format!(
            "the declarative config {name} does not fit into the store; the setting lmdb_map_size limits it"
        ),
        LoadError::Internal(details) => {
            format!("cannot load the declarative config {name}: {details}")
        }
        other => format!("cannot load the declarative config {name}: {other:?}"),
    }
}

fn serve(
    prepared: Prepared,
    settings: &Settings,
    instance: &Instance,
) -> Result<(Arc<Gateway>, Workers), Failure> {
    let Prepared { sockets, ready } = prepared;
    let Ready {
        parts,
        admin_certificate,
    } = ready;
    let addresses = sockets.addresses();
    let plane = Arc::clone(&parts.writer.plane);
    let gateway = Arc::new(Gateway::start(parts, settings).map_err(Failure::new)?);
    let mut workers = Workers::new();
    workers.serve_proxy(&plane, sockets.proxy, settings.workers)?;
    workers.serve_admin(&gateway, sockets.admin, admin_certificate)?;
    instance
        .publish_addresses(&addresses)
        .map_err(|error| Failure::new(format!("cannot write to the prefix: {error}")))?;
    let mode = match &settings.store.database {
        Database::Lmdb => "lmdb",
        Database::Off(_) => "off",
    };
    let revision = plane.snapshot.peek().revision;
    tracing::info!(%addresses, workers = settings.workers, database = mode, revision, "silverback is serving");
    Ok((gateway, workers))
}

/// Every connection is a file: the soft limit is meant for programs that use `select`.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}
