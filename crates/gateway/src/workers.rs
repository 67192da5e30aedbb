//! The threads that serve: one for each worker of the data plane, one that watches them, one for health checks, one for
//! the Admin API, one for the Status API and one that resolves names, each with its own runtime. If the server of a thread panics, the thread
//! starts it again with the same listeners, while the others keep serving. The thread that resolves names also continues
//! after a panic.

use crate::commands::Failure;
use crate::control::Gateway;
use crate::settings::Settings;
use crate::sockets::{Bound, Socket, Sockets};
use admin::events::{self, Feed};
use admin::{Limits, Listener};
use net::dns::Resolver;
use net::listen::Listen;
use net::tls::{Alpn, CertificateSource, Certificates, ClientAuth, ServerTls};
use proxy::balance::names;
use proxy::health::prober::{self, Subsystems};
use proxy::session::{self, DataPlane, Entrances, Stop, Watchdog};
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};
use std::time::Duration;
use tokio::runtime::{self, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

/// Pause before a failed thread is started again.
const RESTART_PAUSE: Duration = Duration::from_millis(500);
/// Size of a thread's stack. Lua code that nests deeply needs it: LuaJIT's own limit of nested calls must come first. The
/// system gives memory only to the pages that are used.
const STACK: usize = 16 * 1024 * 1024;

/// All serving threads, and the means to stop them.
pub(crate) struct Workers {
    pub(crate) proxy: Crew,
    /// The Admin API and the Status API, which stop last.
    pub(crate) apis: Crew,
    pub(crate) listeners: Listeners,
}

/// The sockets of all listeners. The threads accept connections on copies. The originals are kept so that a thread that
/// is started again and the next process can get copies too. The originals are closed at a shutdown, because a socket
/// accepts connections while any copy is open.
#[derive(Clone)]
pub(crate) struct Listeners(Arc<Mutex<Sockets>>);

impl Listeners {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Sockets> {
        // A panic while sockets are cloned does not change them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the sockets. The threads close their copies when they receive the order to stop.
    pub(crate) fn close(&self) {
        *self.lock() = Sockets::default();
    }
}

/// Certificates of the listeners of the Admin API and of the Status API.
pub(crate) struct ApiCertificates {
    pub(crate) admin: Option<Arc<Certificates>>,
    /// Verifies client certificates of the Admin API.
    pub(crate) admin_clients: Option<ClientAuth>,
    pub(crate) status: Option<Arc<Certificates>>,
}

impl Workers {
    pub(crate) fn new(sockets: Sockets) -> Self {
        Self {
            proxy: Crew::new(),
            apis: Crew::new(),
            listeners: Listeners(Arc::new(Mutex::new(sockets))),
        }
    }

    /// Starts one thread per worker. Each accepts on its own sockets of every listener.
    pub(crate) fn serve_proxy(
        &mut self,
        plane: &Arc<DataPlane>,
        settings: &Settings,
    ) -> Result<(), Failure> {
        let workers = settings.workers;
        let source = Arc::new(plane.snapshot.clone());
        let tls = |alpn| {
            ServerTls::with_settings(source.clone(), alpn, &settings.tls).map_err(Failure::new)
        };
        let (http_tls, stream_tls) = (tls(Alpn::Http)?, tls(Alpn::Stream)?);
        for number in 0..workers {
            let (http_tls, stream_tls) = (http_tls.clone(), stream_tls.clone());
            let (plane, listeners) = (Arc::clone(plane), self.listeners.clone());
            self.proxy.spawn(format!("worker-{number}"), move |stop| {
                let sockets = listeners.lock();
                let entrances = Entrances {
                    http: of_worker(&sockets.proxy, number, workers)?,
                    http_tls: http_tls.clone(),
                    streams: of_worker(&sockets.streams, number, workers)?,
                    stream_tls: stream_tls.clone(),
                    datagrams: of_worker(&sockets.datagrams, number, workers)?,
                };
                Ok(session::serve(Arc::clone(&plane), number, entrances, stop))
            })?;
        }
        Ok(())
    }

    /// Starts the thread that notices workers that do not respond.
    pub(crate) fn watch(&mut self, plane: &Arc<DataPlane>) -> Result<(), Failure> {
        let plane = plane.clone();
        self.proxy.spawn("watchdog".to_owned(), move |stop| {
            let mut watchdog = Watchdog::new(plane.clone());
            Ok(async move {
                let mut interval = tokio::time::interval(Watchdog::INTERVAL);
                interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let watching = async {
                    loop {
                        interval.tick().await;
                        watchdog.look();
                    }
                };
                tokio::select! {
                    () = watching => {}
                    _ = drained(stop) => {}
                }
                Ok(())
            })
        })
    }

    /// Starts the thread that probes targets for the whole node, and keeps the addresses of named targets up to date.
    pub(crate) fn check_health(
        &mut self,
        plane: &Arc<DataPlane>,
        resolver: &Resolver,
        settings: &Settings,
    ) -> Result<(), Failure> {
        let resolver = resolver.clone();
        let live = plane.snapshot.clone();
        let subsystems = if settings.stream_listen.is_empty() {
            Subsystems::Http
        } else {
            Subsystems::HttpAndStream
        };
        self.proxy.spawn("health".to_owned(), move |stop| {
            let (live, resolver) = (live.clone(), resolver.clone());
            Ok(async move {
                tokio::select! {
                    () = prober::run(live.clone(), subsystems) => {}
                    () = names::follow(live, resolver) => {}
                    _ = drained(stop) => {}
                }
                Ok(())
            })
        })
    }

    pub(crate) fn serve_apis(
        &mut self,
        gateway: &Arc<Gateway>,
        certificates: ApiCertificates,
        settings: &Settings,
    ) -> Result<(), Failure> {
        let limits = settings.admin.limits;
        let tls = |certificate, clients| {
            let source = Arc::new(OneCertificate(certificate));
            ServerTls::asking(source, Alpn::Http, &settings.tls, clients).map_err(Failure::new)
        };
        let (admin_tls, status_tls) = (
            tls(certificates.admin, certificates.admin_clients)?,
            tls(certificates.status, None)?,
        );
        self.serve_api(
            "admin",
            |sockets| Doors {
                listeners: &sockets.admin,
                local: sockets.local.as_ref(),
                events: sockets.events.as_ref(),
            },
            gateway,
            admin::router,
            admin_tls,
            limits,
        )?;
        self.serve_api(
            "status",
            |sockets| Doors {
                listeners: &sockets.status,
                local: None,
                events: None,
            },
            gateway,
            admin::status_router,
            status_tls,
            limits,
        )
    }

    fn serve_api(
        &mut self,
        name: &str,
        of: fn(&Sockets) -> Doors<'_>,
        gateway: &Arc<Gateway>,
        router: fn(Arc<dyn admin::Control>) -> admin::Router,
        tls: ServerTls,
        limits: Limits,
    ) -> Result<(), Failure> {
        let (gateway, listeners) = (Arc::clone(gateway), self.listeners.clone());
        self.apis.spawn(name.to_owned(), move |stop| {
            let (gateway, tls) = (Arc::clone(&gateway), tls.clone());
            let sockets = listeners.lock();
            let doors = of(&sockets);
            let local = doors.local.map(UnixListener::try_clone).transpose()?;
            let events = doors.events.map(UnixListener::try_clone).transpose()?;
            let sockets = clones(doors.listeners)?;
            Ok(async move {
                let mut listeners = Vec::new();
                for (listen, socket) in sockets {
                    let socket = tokio::net::TcpListener::from_std(socket)?;
                    listeners.push(match (listen.ssl, listen.http2) {
                        (true, http2) => Listener::Tls(socket, tls.offering(http2)),
                        (false, true) => Listener::PlainHttp2(socket),
                        (false, false) => Listener::Plain(socket),
                    });
                }
                if let Some(local) = local {
                    let local = tokio::net::UnixListener::from_std(local)?;
                    listeners.push(Listener::Local(local));
                }
                let feed = gateway.feed();
                tokio::try_join!(
                    serve_until(listeners, router(gateway), limits, stop.clone()),
                    serve_events(events, feed, stop),
                )
                .map(|((), ())| ())
            })
        })
    }
}

/// The sockets on which an API is served.
struct Doors<'s> {
    listeners: &'s [Bound],
    local: Option<&'s UnixListener>,
    events: Option<&'s UnixListener>,
}

async fn serve_events(
    listener: Option<UnixListener>,
    feed: Feed,
    stop: watch::Receiver<Stop>,
) -> io::Result<()> {
    if let Some(listener) = listener {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let stop = async {
            drained(stop).await;
        };
        events::serve(listener, feed, stop).await;
    }
    Ok(())
}

async fn serve_until(
    listeners: Vec<Listener>,
    router: admin::Router,
    limits: Limits,
    stop: watch::Receiver<Stop>,
) -> io::Result<()> {
    let limit = stop.clone();
    let served = admin::serve(listeners, router, limits, async move {
        drained(stop).await;
    });
    // An API connection that stays open must not keep the process alive.
    tokio::select! {
        served = served => served,
        () = async { tokio::time::sleep(drained(limit).await).await } => Ok(()),
    }
}

/// Returns the sockets of worker `number` of `workers`.
fn of_worker<S: Socket>(
    bound: &[Bound<S>],
    number: usize,
    workers: usize,
) -> io::Result<Vec<(Listen, S)>> {
    let mut own = Vec::new();
    for bound in bound {
        let sockets = bound.of_worker(number, workers)?;
        own.extend(sockets.into_iter().map(|one| (bound.listen.clone(), one)));
    }
    Ok(own)
}

fn clones(bound: &[Bound]) -> io::Result<Vec<(Listen, TcpListener)>> {
    let mut sockets = Vec::new();
    for bound in bound {
        for socket in &bound.sockets {
            sockets.push((bound.listen.clone(), socket.try_clone()?));
        }
    }
    Ok(sockets)
}

/// Threads that receive the same order to stop.
pub(crate) struct Crew {
    stop: watch::Sender<Stop>,
    /// Each thread holds a clone while it runs. Nothing is ever sent: `ended` only notices that the last clone is gone.
    alive: Option<mpsc::Sender<()>>,
    ended: mpsc::Receiver<()>,
}

impl Crew {
    fn new() -> Self {
        let (alive, ended) = mpsc::channel(1);
        Self {
            stop: watch::Sender::new(Stop::Serve),
            alive: Some(alive),
            ended,
        }
    }

    pub(crate) fn tell(&self, stop: Stop) {
        self.stop.send_replace(stop);
    }

    /// Waits until every thread has ended. Threads end only after the order to stop.
    pub(crate) async fn ended(&mut self) {
        self.alive = None;
        while self.ended.recv().await.is_some() {}
    }

    /// Runs a server on its own thread with its own runtime. If the server cannot be prepared, this fails: otherwise a
    /// gateway without workers would count as started. If the server fails later, `serve` is called again.
    fn spawn<F, S>(&mut self, name: String, mut serve: F) -> Result<(), Failure>
    where
        F: FnMut(watch::Receiver<Stop>) -> io::Result<S> + Send + 'static,
        S: Future<Output = io::Result<()>>,
    {
        let (stop, alive) = (self.stop.subscribe(), self.alive.clone());
        let (prepared, first) = sync_channel(1);
        let run = move || {
            let _alive = alive;
            let mut served = serve_once(&mut serve, &stop, Some(prepared));
            while served == Served::Failed && !is_ending(*stop.borrow()) {
                thread::sleep(RESTART_PAUSE);
                served = serve_once(&mut serve, &stop, None);
            }
        };
        let thread = Builder::new()
            .name(name.clone())
            .stack_size(STACK)
            .spawn(run);
        thread.map_err(|error| Failure::new(format!("cannot start a thread: {error}")))?;
        match first.recv() {
            Ok(Err(error)) => Err(Failure::new(format!(
                "cannot start the thread {name}: {error}"
            ))),
            // An error means that the server panicked during its preparation. The thread starts it again.
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }
}

/// The end of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
    /// It received the order to stop, or it could not be prepared at the start.
    Ended,
    /// Its thread must start it again.
    Failed,
}

/// Runs a server until it ends. At the first start, `first` receives whether the server could be prepared. If not, the
/// server is not started again.
fn serve_once<F, S>(
    serve: &mut F,
    stop: &watch::Receiver<Stop>,
    first: Option<SyncSender<io::Result<()>>>,
) -> Served
where
    F: FnMut(watch::Receiver<Stop>) -> io::Result<S>,
    S: Future<Output = io::Result<()>>,
{
    let name = thread::current();
    let name = name.name().unwrap_or_default();
    let served = catch_unwind(AssertUnwindSafe(|| {
        let runtime = current_thread_runtime();
        let prepared = runtime.and_then(|runtime| Ok((runtime, serve(stop.clone())?)));
        let (runtime, server) = match (prepared, first) {
            (Ok(prepared), first) => {
                // This cannot fail, because `spawn` waits for the result.
                let _ = first.map(|first| first.send(Ok(())));
                prepared
            }
            (Err(error), Some(first)) => {
                let _ = first.send(Err(error));
                return Ok(());
            }
            (Err(error), None) => return Err(error),
        };
        runtime.block_on(server)
    }));
    match served {
        Ok(Ok(())) => Served::Ended,
        Ok(Err(error)) => {
            tracing::error!(%error, "{name} cannot serve, and is started again");
            Served::Failed
        }
        Err(_) => {
            tracing::error!("{name} has panicked, and is started again; its connections are lost");
            Served::Failed
        }
    }
}

fn is_ending(stop: Stop) -> bool {
    matches!(stop, Stop::Drain(_) | Stop::HandOver(_))
}

/// Starts the thread that resolves names. It runs until the process exits, because requests in flight may still need
/// names during a shutdown. Panics of single lookups are caught in `net::dns`. After any other panic it resolves all
/// names again.
pub(crate) fn serve_names(settings: net::dns::DnsSettings) -> Result<Resolver, Failure> {
    let (resolver, mut background) = Resolver::new(settings);
    let runtime = current_thread_runtime().map_err(Failure::of("start the thread dns"))?;
    let run = move || run_until_done("dns", || runtime.block_on(background.serve()));
    let started = Builder::new().name("dns".to_owned()).spawn(run);
    started.map_err(|error| Failure::new(format!("cannot start a thread: {error}")))?;
    Ok(resolver)
}

/// Runs the work again after each panic, until it returns.
fn run_until_done(name: &str, mut work: impl FnMut()) {
    while catch_unwind(AssertUnwindSafe(&mut work)).is_err() {
        tracing::error!("{name} has panicked, and is started again");
        thread::sleep(RESTART_PAUSE);
    }
}

pub(crate) fn current_thread_runtime() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

/// The certificate that an API presents to every client.
#[derive(Debug)]
struct OneCertificate(Option<Arc<Certificates>>);

impl CertificateSource for OneCertificate {
    fn certificates(&self, _: Option<&str>) -> Option<Arc<Certificates>> {
        self.0.clone()
    }
}

/// Waits for the order to stop, and returns its time limit.
async fn drained(mut stop: watch::Receiver<Stop>) -> Duration {
    let stop = stop.wait_for(|stop| is_ending(*stop)).await;
    match stop.as_deref() {
        Ok(Stop::Drain(limit)) => *limit,
        Ok(Stop::HandOver(limit)) => limit.unwrap_or(Duration::MAX),
        // The sender is gone, so nobody can set a limit.
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_server_that_cannot_be_prepared_is_an_error() {
        let mut crew = Crew::new();
        let serve = |_| Err::<std::future::Ready<io::Result<()>>, _>(io::Error::other("no room"));
        let failure = crew.spawn("test".to_owned(), serve).expect_err("refused");
        let text = failure.to_string();
        assert_eq!(text, "error: cannot start the thread test: no room\n");
        let runtime = current_thread_runtime().expect("a runtime");
        // The thread does not try again.
        runtime.block_on(crew.ended());
    }

    #[test]
    fn work_that_panics_is_run_again() {
        let mut runs = 0;
        run_until_done("test", || {
            runs += 1;
            assert!(runs > 1, "the panic of this test");
        });
        assert_eq!(runs, 2);
    }

    #[test]
    fn a_thread_that_panics_is_started_again() {
        let mut crew = Crew::new();
        let starts = Arc::new(AtomicUsize::new(0));
        let (seen, counted) = (watch::Sender::new(()), Arc::clone(&starts));
        let mut again = seen.subscribe();
        crew.spawn("test".to_owned(), move |mut stop| {
            let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
            let seen = seen.clone();
            Ok(async move {
                assert!(!first, "the panic of this test");
                seen.send_replace(());
                let _ = stop.wait_for(|stop| is_ending(*stop)).await;
                Ok(())
            })
        })
        .expect("a thread");
        let runtime = current_thread_runtime().expect("a runtime");
        runtime.block_on(async {
            again.changed().await.expect("it serves again");
            crew.tell(Stop::Drain(Duration::ZERO));
            crew.ended().await;
        });
        assert_eq!(starts.load(Ordering::SeqCst), 2);
    }
}
