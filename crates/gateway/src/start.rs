//! `silverback start` turns settings into a serving process. The process is new, or takes over from a running one.
//! Everything that can fail does so before the first request is served. `life` runs the process from then on.

use crate::access::Access;
use crate::access_log::AccessLogs;
use crate::commands::{Failure, StartInputs, accepted, warn};
use crate::control::{Gateway, Parts, node, rebuild, writer};
use crate::declarative_file::{self, Text};
use crate::entities::StoreEntities;
use crate::instance::Instance;
use crate::life::Life;
use crate::logging::{self, Logs};
use crate::metrics::NodeMetrics;
use crate::reload::Desk;
use crate::settings::{Database, LogTarget, ModelSettings, Settings, StoreSettings};
use crate::signals::Signals;
use crate::sockets::{self, Inherited, Sockets};
use crate::upgrade::{self, Estate, Event, Link, Program, UpgradeError};
use crate::workers::{self, ApiCertificates, Workers};
use crate::{
    check, debug_token, local, memory, plane, service_manager, session_store, token_store,
};
use admin::Failure as Refusal;
use admin::control::{LoadError, Node};
use model::Error;
use model::declarative::{Format, Loader, Nothing, Options, Source, format_cli_errors};
use model::schema::RouterFlavor;
use plugin::NodeParts;
use plugin::services::Background;
use plugin::services::metrics::Page;
use proxy::session::{self, DataPlane};
use proxy::snapshot::{BuildSettings, Live, Snapshot};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use store::{
    Change, ChangeLog, Damage, Inspection, OpenError, Origin, Recovery, Revision, Store,
    StoreError, View,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use writer::{Input, Writer};

pub(crate) fn run(inputs: StartInputs) -> Result<(), Failure> {
    let program = Program::own().map_err(Failure::of("find the file of this program"))?;
    let Some((estate, stream)) = upgrade::predecessor().map_err(Failure::new)? else {
        return start(inputs, program, None).map_err(with_limit_of_files);
    };
    let (events, told) = unbounded_channel();
    let link = Link::start(stream, events).map_err(Failure::of("start a thread"))?;
    let taking_over = TakingOver {
        estate,
        link: Arc::clone(&link),
        told,
    };
    let outcome = start(inputs, program, Some(taking_over)).map_err(with_limit_of_files);
    if let Err(failure) = &outcome {
        link.say_failed(&failure.to_string());
    }
    outcome
}

/// Everything that a start receives from the previous process.
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
    // `_flush` is declared before the values below and therefore dropped after them. The log is thus flushed last, even
    // if the start fails.
    let (logs, _flush) = logging::start(&settings.log).map_err(Failure::new)?;
    for warning in &resolved.warnings {
        tracing::warn!("{}", warning.in_full());
    }
    raise_open_files();
    let signals = Signals::catch().map_err(Failure::of("receive signals"))?;
    let prepared = prepare(&settings, logs, inherited, store)?;
    let line = link.as_ref().map(|(link, _)| link);
    let (desk, reloads) = Desk::open();
    let (gateway, workers) = serve(prepared, &settings, &mut instance, line, desk)?;
    let life = Life {
        inputs,
        program,
        settings,
        instance,
        gateway,
        workers,
        signals,
        reloads,
    };
    life.run(link);
    Ok(())
}

/// The claimed prefix, and everything in it that belongs to a previous process.
struct Claimed {
    instance: Instance,
    inherited: Inherited,
    /// Lock of the store, if the previous process has the same store open.
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

/// Everything that a start needs before it may serve clients.
struct Prepared {
    sockets: Sockets,
    ready: Ready,
}

/// The loaded and compiled configuration, with everything that is needed to change it.
struct Ready {
    parts: Parts,
    certificates: ApiCertificates,
}

/// Binds the sockets and loads the configuration.
///
/// Binding and the checks of settings and file are independent, so their problems are reported together. The store is
/// opened only after all of them have succeeded. In an upgrade, a process that cannot take over must not change the
/// store of the process that keeps running.
fn prepare(
    settings: &Settings,
    logs: Logs,
    inherited: Inherited,
    store: Option<File>,
) -> Result<Prepared, Failure> {
    let mut failure = Failure::default();
    let sockets = failure.keep(sockets::bind_all(settings, inherited));
    let checked = failure.keep(check_settings(settings));
    let text = failure.keep(declarative_text(settings));
    match (sockets, checked, text) {
        (Some(sockets), Some(checked), Some(text)) => Ok(Prepared {
            sockets,
            ready: prepare_configuration(settings, logs, checked, text, store)?,
        }),
        (_, _, text) => {
            if let Some(Some(text)) = text {
                failure.extend(check::read(&text, &settings.model).err());
            }
            Err(failure)
        }
    }
}

/// Results of all checks that need the settings only, not the configuration.
struct Checked {
    node: Node,
    build: BuildSettings,
    plane: session::SessionSettings,
    certificates: ApiCertificates,
    access_logs: AccessLogs,
    access: Access,
}

/// Checks the settings and reports all problems together.
fn check_settings(settings: &Settings) -> Result<Checked, Failure> {
    let node = node::identify(settings).map_err(|error| {
        let path = settings.prefix.join(node::ID_FILE);
        Failure::new(format!("cannot read or write {}: {error}", path.display()))
    })?;
    let identity = plugin::NodeIdentity {
        tracing: settings.proxy.tracing,
        id: node.id.to_string(),
        hostname: node.hostname.clone(),
    };
    let mut failure = Failure::default();
    let build = failure.keep(plane::build_settings(settings, identity));
    let plane = failure.keep(plane::settings(settings));
    let certificates = failure.keep(plane::api_certificates(settings));
    let access_logs = failure.keep(AccessLogs::start(settings));
    let access = failure.keep(Access::prepare(settings));
    let checked = move || {
        Some(Checked {
            node,
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
    checked: Checked,
    text: Option<Text>,
    lock: Option<File>,
) -> Result<Ready, Failure> {
    let Checked {
        node,
        mut build,
        plane: mut plane_settings,
        certificates,
        access_logs,
        access,
    } = checked;
    plane_settings.access_log = access_logs.proxy.clone();
    plane_settings.stream_log = access_logs.stream.clone();
    plane_settings.debug_token = debug_token::of(settings);
    build.resolver = workers::serve_names(settings.dns.clone())?;
    let store = match lock {
        Some(lock) => join_store(settings, lock)?,
        None if text.is_some() => open_store(settings, Instead::File)?,
        None => open_store(settings, Instead::Nothing)?,
    };
    let snapshot = served_snapshot(&store, &build, text.is_some())?;
    let entities = Arc::new(StoreEntities::new(store.clone()));
    let background = Background::start().map_err(Failure::of("start the thread background"))?;
    plugin::services::egress::permit_link_local(settings.egress_link_local);
    let tokens = token_store::open(settings)?;
    token_store::expire(Arc::clone(&tokens), &background);
    let for_plugins = plugin::Node::new(NodeParts {
        identity: build.node.clone(),
        entities,
        tokens: Some(Arc::clone(&tokens)),
        sessions: Some(session_store::open(settings)?),
        metrics: services::Metrics::with(services::metrics::Settings {
            workers: settings.workers,
            max_series: settings.metrics.max_series,
            native: settings.metrics.native,
        }),
        trust: build.tls.trust_of_bundles(),
        resolver: build.resolver.clone(),
        background,
        cache_size: usize::try_from(settings.proxy.cache_size).unwrap_or(usize::MAX),
        trusted_ips: plane_settings.real_ip.trusted.clone(),
        configuration: settings.shown.to_string(),
        body_buffer: usize::try_from(settings.proxy.body_buffer).unwrap_or(usize::MAX),
        redacts_records: settings.redacts_records,
    });
    let mut for_plugins = for_plugins.map_err(Failure::of("read lua_ssl_trusted_certificate"))?;
    for_plugins.records_reason = settings.model.records_reason;
    let plane = DataPlane::new(
        Live::new(snapshot),
        plane_settings,
        Arc::new(for_plugins),
        build.plugins.clone(),
        settings.workers,
    );
    let plane = Arc::new(plane);
    count_connections(&plane);
    let mut writer = Writer {
        store,
        plane,
        model: settings.model.clone(),
        dbless: settings.store.database != Database::Lmdb,
        build,
        loader: Loader::new(),
        stages: Arc::default(),
    };
    if let Some(text) = text {
        load(&mut writer, &text, settings)?;
    }
    if let Ok(view) = writer.store.view() {
        token_store::warn_of_one_node(&view);
    }
    // Release the memory that only compiling needed, as after every change.
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

/// The configuration that a command uses if the store is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instead {
    /// Nothing, so the command fails. An empty store must not be served in place of a damaged one.
    Nothing,
    /// The declarative file, which is the whole configuration anyway.
    File,
    /// The file of an import. The import fails if it is the first command to find the damage, so that the user learns
    /// of it. The next import succeeds.
    Import,
}

/// Opens the store. If it is damaged, `instead` decides whether the new, empty store is used.
pub(crate) fn open_store(settings: &Settings, instead: Instead) -> Result<Store, Failure> {
    let store = open(settings, instead)?;
    if store.head() == Revision(0) {
        let entities = always_there(&settings.model).map_err(Failure::new)?;
        let founded = store.found(entities);
        founded.map_err(Failure::of("write to the new store"))?;
    }
    Ok(store)
}

/// Opens the store to read it, also while a gateway serves it. A damaged store is reported and left as it is.
pub(crate) fn inspect(settings: &StoreSettings) -> Result<Inspection, Failure> {
    let inspection = Inspection::open(&settings.path, settings.options());
    inspection.map_err(|error| unusable(settings, error))
}

/// Returns the entities of an empty configuration.
fn always_there(model: &ModelSettings) -> Result<Vec<Change>, Error> {
    let options = Options {
        context: writer::context(model, true),
        flatten_errors: false,
    };
    let empty = Source::Text(b"_format_version: '3.0'", Format::Yaml);
    let document = Loader::new().load(empty, &options, &Nothing, 0)?;
    let puts = document.puts.into_iter().map(|put| Change::Put {
        kind: put.kind,
        id: put.id,
        entity: put.entity,
    });
    Ok(puts.collect())
}

fn open(settings: &Settings, instead: Instead) -> Result<Store, Failure> {
    let directory = settings.store.path.display();
    let opened = Store::open(&settings.store.path, settings.store.options());
    let (store, recovery) = opened.map_err(|error| unusable(&settings.store, error))?;
    match (recovery, instead) {
        (Recovery::Opened | Recovery::Created, _) => Ok(store),
        (Recovery::SetAside { aside, .. }, Instead::File) => {
            let aside = aside.display();
            tracing::error!(%aside, "the store is damaged and was renamed; the declarative file takes its place");
            Ok(store)
        }
        (
            Recovery::SetAside {
                damage: Damage::Earlier,
                ..
            },
            Instead::Import,
        ) => Ok(store),
        (Recovery::SetAside { aside, damage, .. }, Instead::Import) => {
            warn(&format!(
                "the store in {directory} is damaged: {damage}. The damaged file is now {}. The import begins with an \
                 empty store, so the gateway will have the entities of the imported file only",
                aside.display()
            ));
            Ok(store)
        }
        (Recovery::SetAside { aside, damage, .. }, _) => Err(Failure::new(format!(
            "the store in {directory} is damaged: {damage}. The damaged file is now {aside}, and nothing is served in its \
                 place. {advice}",
            aside = aside.display(),
            advice = instead_of_damaged(&settings.store),
        ))),
    }
}

/// Says what the user can do about a damaged store.
fn instead_of_damaged(store: &StoreSettings) -> String {
    let other_sources = match store.database {
        Database::Lmdb => {
            ", import a backup into a new store (`silverback import FILE`), or start with a declarative file \
             (`silverback start FILE --set database=off`)"
        }
        Database::Off(_) => " or start with a declarative file (`silverback start FILE`)",
    };
    let directory = store.path.display();
    format!("Put a copy of the store back (`cp COPY {directory}/data.mdb`){other_sources}")
}

/// Describes why a store cannot be opened.
pub(crate) fn unusable(store: &StoreSettings, error: OpenError) -> Failure {
    match error {
        OpenError::Foreign { path, reason } => foreign(&path, &reason),
        error @ OpenError::Damaged { .. } => {
            Failure::new(format!("{error}. {}", instead_of_damaged(store)))
        }
        other => Failure::new(other),
    }
}

/// Describes why a store of another program or version is not opened, and what to do.
fn foreign(path: &Path, reason: &Damage) -> Failure {
    let advice = match reason {
        Damage::Format { found, expected } if found > expected => {
            "Start the newer version of Silverback that wrote it"
        }
        Damage::Format { .. } => {
            "Write its content to a file with `silverback export` of the older version, move the store away, and import the file"
        }
        Damage::NotLmdb => {
            "If it is Silverback's own store, its first page is damaged: stop the gateway if it runs, move the file away, \
             and import a backup or start with a declarative file. Else give Silverback another place by \
             `lmdb_environment_path` or `prefix`, or move the file away if nothing needs it"
        }
        _ => {
            "Give Silverback another place by `lmdb_environment_path` or `prefix`, or move the file away if nothing needs it"
        }
    };
    Failure::new(format!(
        "cannot use the store {}: {reason}. The file was left as it is. {advice}",
        path.display()
    ))
}

/// Opens the store that the previous process still has open.
fn join_store(settings: &Settings, lock: File) -> Result<Store, Failure> {
    Store::join(&settings.store.path, settings.store.options(), lock).map_err(Failure::new)
}

/// Builds the snapshot of the stored configuration. If a declarative file replaces it anyway, a stored configuration
/// that no longer compiles must not stop the start, for example after a plugin was removed from the settings.
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
    format!("the store (revision {})", store.head())
}

fn load(writer: &mut Writer, text: &Text, settings: &Settings) -> Result<(), Failure> {
    let before = {
        let view = writer.store.view().map_err(Failure::new)?;
        StoredByOthers::find(&view).map_err(Failure::new)?
    };
    let input = Input {
        source: Source::Text(&text.bytes, text.format),
        hash: model::declarative::hash(&text.bytes),
        flatten_errors: false,
        origin: Origin::program(&text.name),
    };
    match writer.replace(input) {
        Ok(_) => {
            if let Some(before) = before
                && writer.store.head() > before.revision
            {
                before.report(&writer.store, text, settings);
            }
            Ok(())
        }
        Err(error) => Err(Failure::new(describe(text, writer.model.flavor, error))),
    }
}

/// The entities of a store that were written by something else than a declarative file: the Admin API, an import or a
/// rollback.
pub(crate) struct StoredByOthers {
    entities: u64,
    revision: Revision,
    writer: String,
}

impl StoredByOthers {
    /// Returns `None` if the newest revision comes from a declarative file, or if there are no entities to lose.
    pub(crate) fn find(view: &View<'_>) -> Result<Option<Self>, StoreError> {
        let entities = check::entities(view)?;
        let revision = view.revision();
        let info = match view.history()?.info(revision) {
            Ok(info) if entities > 0 => info,
            _ => return Ok(None),
        };
        let Origin { source, actor, .. } = &info.origin;
        if declarative_file::is_source(source) {
            return Ok(None);
        }
        let writer = match actor {
            Some(actor) => format!("{} ({})", actor.escape_debug(), source.escape_debug()),
            None => source.escape_debug().to_string(),
        };
        Ok(Some(Self {
            entities,
            revision,
            writer,
        }))
    }

    /// Returns the warning of `check`, before a start with this file.
    pub(crate) fn warning(&self, text: &Text) -> String {
        let Self {
            entities,
            revision,
            writer,
        } = self;
        format!(
            "the store has {entities} entities at revision {revision}, last written by {writer}; a start with the \
             declarative config {} will replace them; to write them to a file first: `silverback export`",
            text.name
        )
    }

    /// Logs that a file has replaced the entities. If the log goes elsewhere, also prints it, because the user probably
    /// did not intend it.
    fn report(&self, store: &Store, text: &Text, settings: &Settings) {
        let Self {
            entities,
            revision,
            writer,
        } = self;
        let is_kept = || {
            let view = store.view().ok()?;
            Some(view.history().ok()?.oldest() <= *revision)
        };
        let advice = if is_kept().unwrap_or(false) {
            let prefix = settings.prefix.display();
            format!(
                "to go back: stop the gateway, run `silverback revisions rollback {revision} --prefix {prefix}`, and start \
                 without the file"
            )
        } else {
            "the history is too short to go back".to_owned()
        };
        let message = format!(
            "the store had {entities} entities at revision {revision}, last written by {writer}; the declarative config \
             {} has replaced them; {advice}",
            text.name
        );
        tracing::warn!("{message}");
        if settings.log.target != LogTarget::Stderr {
            warn(&message);
        }
    }
}

/// Describes why a declarative configuration was not loaded. If Kong has a message for the problem, Kong's wording is
/// used.
pub(crate) fn describe(text: &Text, flavor: RouterFlavor, error: LoadError) -> String {
    let name = &text.name;
    match error {
        LoadError::Invalid(error) => {
            let errors = format_cli_errors(&error, &text.bytes, text.format, flavor);
            format!("Failed parsing declarative config {name}:\n{errors}")
        }
        LoadError::TooLarge => format!(
            "the declarative config {name} does not fit into the store; the setting lmdb_map_size limits it"
        ),
        LoadError::Disk(error) => format!(
            "cannot load the declarative config {name}: the store cannot be written, the disk is full or failing: {error}"
        ),
        LoadError::Internal(details) | LoadError::Refused(Refusal::UnreadableStore(details)) => {
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
    reloads: Desk,
) -> Result<(Arc<Gateway>, Workers), Failure> {
    let Prepared { sockets, ready } = prepared;
    let Ready {
        parts,
        certificates,
    } = ready;
    let addresses = sockets.addresses();
    let plane = Arc::clone(&parts.writer.plane);
    let resolver = parts.writer.build.resolver.clone();
    let writer = &parts.writer;
    let listeners = [
        ("ssl_cert", &writer.build.default_certificate),
        ("admin_ssl_cert", &certificates.admin),
        ("status_ssl_cert", &certificates.status),
    ];
    let listeners = listeners.into_iter();
    let listeners = listeners.filter_map(|(setting, pair)| Some((setting, pair.clone()?)));
    let metrics = NodeMetrics::expose(&plane, &writer.store, listeners.collect());
    let gateway = Gateway::start(parts, metrics, settings, reloads);
    let gateway = gateway.map_err(Failure::of("start a thread"))?;
    let gateway = Arc::new(gateway);
    show_metrics(&gateway);
    if let Some(link) = before {
        // First follow later changes over the link, then read the earlier ones, so that none is missed.
        link.follow_with(&gateway);
        gateway.links().add(link);
        gateway.follow();
        // A declarative file that was loaded here must be live in the previous process too before this process takes
        // over.
        let revision = plane.snapshot.peek().revision;
        let runtime = workers::current_thread_runtime().map_err(Failure::of("start a runtime"))?;
        runtime.block_on(link.announce(revision));
    }
    let mut workers = Workers::new(sockets);
    workers.serve_proxy(&plane, settings)?;
    workers.watch(&plane)?;
    workers.check_health(&plane, &resolver, settings)?;
    {
        let mut sockets = workers.listeners.lock();
        sockets.local = listen_locally(settings, local::ADMIN);
        sockets.events = listen_locally(settings, local::EVENTS);
    }
    workers.serve_apis(&gateway, certificates, settings)?;
    debug_token::publish(&settings.prefix, plane.settings.debug_token.as_deref());
    let published = instance.publish_addresses(&addresses);
    published.map_err(|error| Failure::new(format!("cannot write to the prefix: {error}")))?;
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
    let prefix = settings.prefix.display();
    tracing::info!(%addresses, workers = settings.workers, database = mode, revision, %prefix, "silverback is serving");
    service_manager::tell_ready();
    Ok((gateway, workers))
}

/// Listens on a Unix socket in the prefix. A failure is only logged: some file systems do not support sockets, and
/// serving traffic is more important than local commands.
fn listen_locally(settings: &Settings, name: &str) -> Option<UnixListener> {
    let listener = local::listen(&settings.prefix, name);
    if let Err(error) = &listener {
        tracing::error!(%error, prefix = %settings.prefix.display(), "there is no {name} in the prefix, which commands need");
    }
    listener.ok()
}

/// Adds the limit of open files to a failure that is due to it. Many kinds of errors can have this cause, so it is
/// recognized by the system's text.
fn with_limit_of_files(mut failure: Failure) -> Failure {
    let code = format!("(os error {})", Errno::MFILE.raw_os_error());
    if failure.mentions(&code) {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or_default();
        failure.add(Failure::new(format!(
            "this process can have at most {limit} files open: raise the limit (`ulimit -n NUMBER`, LimitNOFILE of systemd)"
        )));
    }
    failure
}

/// Raises the soft limit of open files to the hard limit, because every connection is an open file. The soft limit only
/// protects programs that use `select`.
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

/// Shows the plugins the numbers of connections.
fn count_connections(plane: &Arc<DataPlane>) {
    let counted = Arc::downgrade(plane);
    let count = move || {
        let totals = counted.upgrade().map(|plane| plane.totals());
        totals.map_or_else(plugin::Connections::default, |totals| plugin::Connections {
            active: totals.active(),
            reading: totals.reading,
            writing: totals.writing(),
            waiting: totals.waiting,
            accepted: totals.accepted,
            requests: totals.requests,
        })
    };
    // A node has one data plane.
    let _ = plane.node.connections.set(Box::new(count));
}

/// Shows the plugins all metrics.
fn show_metrics(gateway: &Arc<Gateway>) {
    let shown = Arc::downgrade(gateway);
    let write = move |page: &mut Page| {
        if let Some(gateway) = shown.upgrade() {
            admin::write_metrics(&*gateway, page);
        }
    };
    let node = gateway.plugin_node();
    // A node has one gateway.
    let _ = node.all_metrics.set(Box::new(write));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_reported_in_words() {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let file = Text {
            name: "file kong.yml".to_owned(),
            bytes: Vec::new(),
            format: model::declarative::Format::Auto,
        };
        let flavor = RouterFlavor::TraditionalCompatible;
        let text = describe(&file, flavor, LoadError::Disk(full));
        assert!(text.contains("the disk is full"), "{text}");
        assert!(!text.contains("Disk("), "{text}");
    }
}
