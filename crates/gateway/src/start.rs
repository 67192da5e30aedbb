//! `silverback start`: from settings to a serving process, be it a new one or one that takes over from another. Everything
//! that can fail does so before the first request is served. What comes then is in `life`.

use crate::access::Access;
use crate::access_log::AccessLogs;
use crate::commands::{Failure, StartInputs, accepted};
use crate::control::{Gateway, Parts, node, rebuild, writer};
use crate::declarative_file::{self, Text};
use crate::instance::Instance;
use crate::life::Life;
use crate::logging::{self, Logs};
use crate::lookup::StoreLookup;
use crate::settings::{Database, Settings};
use crate::signals::Signals;
use crate::sockets::{self, Inherited, Sockets};
use crate::upgrade::{self, Estate, Event, Link, Program, UpgradeError};
use crate::workers::{self, ApiCertificates, Workers};
use crate::{local, memory, plane, service_manager};
use admin::control::{LoadError, Node};
use model::declarative::{Loader, Source, format_cli_errors};
use proxy::session::{self, DataPlane};
use proxy::snapshot::{BuildSettings, Live, Snapshot};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use store::{Origin, Recovery, Store};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use writer::{Input, Writer};

pub(crate) fn run(inputs: StartInputs) -> Result<(), Failure> {
    let program = Program::own().map_err(Failure::new)?;
    let Some((estate, stream)) = upgrade::predecessor().map_err(Failure::new)? else {
        return start(inputs, program, None);
    };
    let (events, told) = unbounded_channel();
    let link = Link::start(stream, events).map_err(Failure::new)?;
    let taking_over = TakingOver {
        estate,
        link: Arc::clone(&link),
        told,
    };
    let outcome = start(inputs, program, Some(taking_over));
    if let Err(failure) = &outcome {
        link.say_failed(&failure.to_string());
    }
    outcome
}

/// What a start has from the process before.
struct TakingOver {
    estate: Estate,
    link: Arc<Link>,
    told: UnboundedReceiver<Event>,
}

fn start(inputs: StartInputs, program: Program, before: Option<TakingOver>) -> Result<(), Failure> {
    let resolved = inputs.resolve()?;
    let settings = accepted(resolved.settings)?;
    let Claimed {
        mut instance,
        inherited,
        store,
        link,
    } = claim(&settings, before)?;
    // Dropped last, also when the start fails from here on.
    let (logs, _flush) = logging::start(&settings.log).map_err(Failure::new)?;
    for warning in &resolved.warnings {
        tracing::warn!("setting {warning}");
    }
    raise_open_files();
    let signals = Signals::catch().map_err(Failure::new)?;
    let prepared = prepare(&settings, logs, inherited, store)?;
    let line = link.as_ref().map(|(link, _)| link);
    let (gateway, workers) = serve(prepared, &settings, &mut instance, line)?;
    let life = Life {
        inputs,
        program,
        settings,
        instance,
        gateway,
        workers,
        signals,
    };
    life.run(link);
    Ok(())
}

/// The prefix, and what there is in it of a process before.
struct Claimed {
    instance: Instance,
    inherited: Inherited,
    /// Of a store that the process before has open, its lock.
    store: Option<File>,
    link: Option<(Arc<Link>, UnboundedReceiver<Event>)>,
}

fn claim(settings: &Settings, before: Option<TakingOver>) -> Result<Claimed, Failure> {
    let Some(TakingOver { estate, link, told }) = before else {
        return Ok(Claimed {
            instance: Instance::claim(&settings.prefix).map_err(Failure::new)?,
            inherited: Inherited::default(),
            store: None,
            link: None,
        });
    };
    if estate.prefix != settings.prefix {
        return Err(Failure::new(UpgradeError::Prefix {
            old: estate.prefix,
            new: settings.prefix.clone(),
        }));
    }
    let same_store = estate.store == settings.store.path;
    Ok(Claimed {
        instance: Instance::inherit(&settings.prefix, estate.process_file),
        inherited: estate.inherited,
        store: same_store.then_some(estate.store_lock),
        link: Some((link, told)),
    })
}

/// All that a start needs before it may listen to clients.
struct Prepared {
    sockets: Sockets,
    ready: Ready,
}

/// The configuration, loaded and compiled, and who may change it.
struct Ready {
    parts: Parts,
    certificates: ApiCertificates,
}

/// Sockets and configuration have nothing to do with each other: what is wrong with both is told at once. But a process that
/// cannot take over must not have changed the store of the one that goes on.
fn prepare(
    settings: &Settings,
    logs: Logs,
    inherited: Inherited,
    store: Option<File>,
) -> Result<Prepared, Failure> {
    let sockets = sockets::bind_all(settings, inherited);
    if let (Some(_), Err(failure)) = (&store, &sockets) {
        return Err(failure.clone());
    }
    let mut failure = Failure::default();
    let sockets = failure.keep(sockets);
    let ready = failure.keep(prepare_configuration(settings, logs, store));
    match (sockets, ready) {
        (Some(sockets), Some(ready)) => Ok(Prepared { sockets, ready }),
        _ => Err(failure),
    }
}

/// What the settings come to, before anything of the configuration is known.
struct Checked {
    build: BuildSettings,
    plane: session::Settings,
    certificates: ApiCertificates,
    access_logs: AccessLogs,
    access: Access,
}

/// Everything that is wrong with the settings is told at once.
fn check_settings(settings: &Settings, node: &Node) -> Result<Checked, Failure> {
    let identity = plugin::Node {
        id: node.id.to_string(),
        hostname: node.hostname.clone(),
    };
    let mut failure = Failure::default();
    let build = failure.keep(plane::build_settings(settings, identity));
    let plane = failure.keep(plane::settings(settings));
    let certificates = failure.keep(plane::api_certificates(settings));
    let access_logs = failure.keep(AccessLogs::start(settings));
    let access = failure.keep(Access::prepare(settings));
    let checked = || {
        Some(Checked {
            build: build?,
            plane: plane?,
            certificates: certificates?,
            access_logs: access_logs?,
            access: access?,
        })
    };
    checked().ok_or(failure)
}

fn prepare_configuration(
    settings: &Settings,
    logs: Logs,
    lock: Option<File>,
) -> Result<Ready, Failure> {
    let node = node::identify(settings).map_err(Failure::new)?;
    let Checked {
        mut build,
        plane: mut plane_settings,
        certificates,
        access_logs,
        access,
    } = check_settings(settings, &node)?;
    plane_settings.access_log = access_logs.proxy.clone();
    plane_settings.stream_log = access_logs.stream.clone();
    build.resolver = workers::serve_names(settings.dns.clone())?;
    let text = declarative_text(settings)?;
    let store = match lock {
        Some(lock) => join_store(settings, lock)?,
        None => open_store(settings, text.is_some())?,
    };
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
        parts: Parts {
            writer,
            node,
            logs,
            access_logs,
            access,
        },
        certificates,
    })
}

fn declarative_text(settings: &Settings) -> Result<Option<Text>, Failure> {
    match &settings.store.database {
        Database::Lmdb => Ok(None),
        Database::Off(declarative) => declarative_file::read(declarative).map_err(Failure::new),
    }
}

/// Opens the store. One that cannot be read is never served as an empty configuration; with a file there is another source.
pub(crate) fn open_store(settings: &Settings, has_file: bool) -> Result<Store, Failure> {
    let options = settings.store.options();
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

/// Opens the store beside the process before.
fn join_store(settings: &Settings, lock: File) -> Result<Store, Failure> {
    Store::join(&settings.store.path, settings.store.options(), lock).map_err(Failure::new)
}

/// The snapshot of what the store holds. When a file replaces that anyway, an old state that can no longer be compiled
/// (a plugin that was removed from the settings) must not stop the start.
fn served_snapshot(
    store: &Store,
    build: &BuildSettings,
    has_file: bool,
) -> Result<Snapshot, Failure> {
    let view = store.view().map_err(Failure::new)?;
    match rebuild::whole(&view, None, build) {
        Ok(snapshot) => Ok(snapshot),
        Err(error) if has_file => {
            tracing::warn!(%error, "the stored configuration cannot be served; the declarative file replaces it");
            rebuild::empty(build).map_err(Failure::new)
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
        origin: Origin::program(&text.name),
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
    instance: &mut Instance,
    before: Option<&Arc<Link>>,
) -> Result<(Arc<Gateway>, Workers), Failure> {
    let Prepared { sockets, ready } = prepared;
    let Ready {
        parts,
        certificates,
    } = ready;
    let addresses = sockets.addresses();
    let plane = Arc::clone(&parts.writer.plane);
    let resolver = parts.writer.build.resolver.clone();
    let gateway = Arc::new(Gateway::start(parts, settings).map_err(Failure::new)?);
    if let Some(link) = before {
        // First that it tells of changes from here on, then that those so far are there.
        link.follow_with(&gateway);
        gateway.links().add(link);
        gateway.follow();
        // A declarative file that was loaded here is live there as well before this process is the one that counts.
        let revision = plane.snapshot.peek().revision;
        let runtime = workers::current_thread_runtime().map_err(Failure::new)?;
        runtime.block_on(link.announce(revision));
    }
    let mut workers = Workers::new(sockets);
    workers.serve_proxy(&plane, settings)?;
    workers.check_health(&plane, &resolver, settings)?;
    {
        let mut sockets = workers.listeners.lock();
        sockets.local = listen_locally(settings, local::ADMIN);
        sockets.events = listen_locally(settings, local::EVENTS);
    }
    workers.serve_apis(&gateway, certificates, settings)?;
    instance.publish_addresses(&addresses);
    let addresses = sockets::in_words(&addresses);
    let written = instance.take_over();
    written.map_err(|error| Failure::new(format!("cannot write to the prefix: {error}")))?;
    if let Some(link) = before {
        link.say_serving();
    }
    let mode = match &settings.store.database {
        Database::Lmdb => "lmdb",
        Database::Off(_) => "off",
    };
    let revision = plane.snapshot.peek().revision;
    tracing::info!(%addresses, workers = settings.workers, database = mode, revision, "silverback is serving");
    service_manager::tell_ready();
    Ok((gateway, workers))
}

/// Not every file system has sockets; traffic is worth more than commands on this machine.
fn listen_locally(settings: &Settings, name: &str) -> Option<UnixListener> {
    let listener = local::listen(&settings.prefix, name);
    if let Err(error) = &listener {
        tracing::error!(%error, prefix = %settings.prefix.display(), "there is no {name} in the prefix, which commands need");
    }
    listener.ok()
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
