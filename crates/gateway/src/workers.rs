//! The threads that serve: one per worker of the data plane, and one for the Admin API, each with a runtime of its own.

use crate::commands::Failure;
use crate::control::Gateway;
use crate::sockets::Bound;
use admin::Listener;
use net::listen::Listen;
use net::tls::{CertificateSource, Certificates, ServerTls};
use proxy::session::{self, DataPlane, Stop};
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tokio::runtime::{self, Runtime};
use tokio::sync::watch;

/// Every serving thread, and the way to end them.
pub(crate) struct Workers {
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<Stop>,
}

impl Workers {
    pub(crate) fn new() -> Self {
        Self {
            threads: Vec::new(),
            stop: watch::Sender::new(Stop::Serve),
        }
    }

    /// Starts a thread per worker; each takes its socket of every listener.
    pub(crate) fn serve_proxy(
        &mut self,
        plane: &Arc<DataPlane>,
        bound: Vec<Bound>,
        workers: usize,
    ) -> Result<(), Failure> {
        let source = Arc::new(plane.snapshot.clone());
        let tls = ServerTls::new(source).map_err(Failure::new)?;
        let mut sockets: Vec<Vec<(Listen, TcpListener)>> =
            (0..workers).map(|_| Vec::new()).collect();
        for one in bound {
            for (worker, socket) in sockets.iter_mut().zip(one.sockets) {
                worker.push((one.listen.clone(), socket));
            }
        }
        for (number, sockets) in sockets.into_iter().enumerate() {
            let (plane, tls) = (Arc::clone(plane), tls.clone());
            self.spawn(format!("worker-{number}"), move |stop| {
                session::serve(plane, number, sockets, tls, stop)
            })?;
        }
        Ok(())
    }

    pub(crate) fn serve_admin(
        &mut self,
        gateway: &Arc<Gateway>,
        bound: Vec<Bound>,
        certificate: Option<Arc<Certificates>>,
    ) -> Result<(), Failure> {
        let gateway = Arc::clone(gateway);
        let source = Arc::new(OneCertificate(certificate));
        let tls = ServerTls::new(source).map_err(Failure::new)?;
        self.spawn("admin".to_owned(), move |stop| async move {
            let mut listeners = Vec::new();
            for bound in bound {
                for socket in bound.sockets {
                    let socket = tokio::net::TcpListener::from_std(socket)?;
                    listeners.push(match bound.listen.ssl {
                        true => Listener::Tls(socket, tls.clone()),
                        false => Listener::Plain(socket),
                    });
                }
            }
            let limit = stop.clone();
            let served = admin::serve(listeners, gateway, async move {
                drained(stop).await;
            });
            // An administrator's connection that stays open must not keep the process.
            tokio::select! {
                served = served => served,
                () = async { tokio::time::sleep(drained(limit).await).await } => Ok(()),
            }
        })
    }

    /// Runs a server on a thread and a runtime of its own.
    fn spawn<F, S>(&mut self, name: String, serve: F) -> Result<(), Failure>
    where
        F: FnOnce(watch::Receiver<Stop>) -> S + Send + 'static,
        S: Future<Output = io::Result<()>>,
    {
        let stop = self.stop.subscribe();
        let thread = Builder::new()
            .name(name.clone())
            .spawn(move || {
                let served =
                    current_thread_runtime().and_then(|runtime| runtime.block_on(serve(stop)));
                if let Err(error) = served {
                    tracing::error!(%error, "{name} cannot serve");
                }
            })
            .map_err(|error| Failure::new(format!("cannot start a thread: {error}")))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Lets requests in flight finish, within the limit, and waits for every thread.
    pub(crate) fn drain(self, limit: Duration) {
        self.stop.send_replace(Stop::Drain(limit));
        for thread in self.threads {
            // A panic of a whole thread was logged when it happened.
            let _ = thread.join();
        }
    }
}

pub(crate) fn current_thread_runtime() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

/// What the Admin API shows to every client.
#[derive(Debug)]
struct OneCertificate(Option<Arc<Certificates>>);

impl CertificateSource for OneCertificate {
    fn certificates(&self, _: Option<&str>) -> Option<Arc<Certificates>> {
        self.0.clone()
    }
}

/// Waits for the end, and tells how long it may take.
async fn drained(mut stop: watch::Receiver<Stop>) -> Duration {
    let stop = stop.wait_for(|stop| *stop != Stop::Serve).await;
    match stop.as_deref() {
        Ok(Stop::Drain(limit)) => *limit,
        // Whoever could tell is gone.
        _ => Duration::ZERO,
    }
}
