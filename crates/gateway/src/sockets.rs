//! Binds all listeners of the settings, and reports all failures together. In an upgrade, the new process takes over
//! the sockets of the previous one. These sockets are never closed, so no connection is lost.

use crate::commands::Failure;
use crate::occupant;
use crate::settings::{Listen, Origins, Settings};
use net::listen::{BindError, bind, bind_datagrams, bind_more, bind_more_datagrams};
use serde_json::json;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;

/// One listener of the settings.
pub(crate) struct Bound<S = TcpListener> {
    pub(crate) setting: &'static str,
    pub(crate) listen: Listen,
    pub(crate) address: SocketAddr,
    /// One socket for each worker that serves the listener. After an upgrade to fewer workers there are more. There are
    /// fewer if sockets for additional workers could not be bound.
    pub(crate) sockets: Vec<S>,
}

#[derive(Default)]
pub(crate) struct Sockets {
    pub(crate) proxy: Vec<Bound>,
    pub(crate) streams: Vec<Bound>,
    pub(crate) datagrams: Vec<Bound<UdpSocket>>,
    pub(crate) admin: Vec<Bound>,
    pub(crate) status: Vec<Bound>,
    /// Unix socket of the Admin API in the prefix. It is created last, when nothing else can fail. It is never handed
    /// over: each process has its own.
    pub(crate) local: Option<UnixListener>,
    /// Unix socket in the prefix for following revisions. Like `local`, it is created last and never handed over.
    pub(crate) events: Option<UnixListener>,
}

/// Sockets of the previous process that no listener has taken over yet.
#[derive(Default)]
pub(crate) struct Inherited(pub(crate) Vec<InheritedSocket>);

pub(crate) struct InheritedSocket {
    pub(crate) setting: String,
    /// Address from the settings. Its port may be 0; `address` has the free port that was chosen.
    pub(crate) configured: SocketAddr,
    pub(crate) address: SocketAddr,
    /// Whether this is a UDP socket.
    pub(crate) udp: bool,
    pub(crate) socket: OwnedFd,
}

/// Socket type of a listener: TCP for connections, UDP for datagrams.
pub(crate) trait Socket: Sized + AsFd + From<OwnedFd> {
    fn bind(listen: &Listen, sockets: usize) -> Result<Vec<Self>, BindError>;
    fn bind_more(
        listen: &Listen,
        address: SocketAddr,
        sockets: usize,
    ) -> Result<Vec<Self>, BindError>;

    fn address(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(self).ok()?.try_into().ok()
    }

    fn another(&self) -> io::Result<Self> {
        self.as_fd().try_clone_to_owned().map(Self::from)
    }
}

impl Socket for TcpListener {
    fn bind(listen: &Listen, sockets: usize) -> Result<Vec<Self>, BindError> {
        bind(listen, sockets)
    }

    fn bind_more(
        listen: &Listen,
        address: SocketAddr,
        sockets: usize,
    ) -> Result<Vec<Self>, BindError> {
        bind_more(listen, address, sockets)
    }
}

impl Socket for UdpSocket {
    fn bind(listen: &Listen, sockets: usize) -> Result<Vec<Self>, BindError> {
        bind_datagrams(listen, sockets)
    }

    fn bind_more(
        listen: &Listen,
        address: SocketAddr,
        sockets: usize,
    ) -> Result<Vec<Self>, BindError> {
        bind_more_datagrams(listen, address, sockets)
    }
}

pub(crate) fn bind_all(settings: &Settings, mut inherited: Inherited) -> Result<Sockets, Failure> {
    let mut failure = Failure::default();
    let workers = settings.workers;
    let streams = settings.stream_listen.iter();
    let (datagrams, streams): (Vec<_>, Vec<_>) = streams.partition(|listen| listen.udp);
    let mut bind = |setting, listeners: Vec<&Listen>, sockets| {
        let origins = &settings.origins;
        bind_setting(
            setting,
            origins,
            &listeners,
            sockets,
            &mut inherited,
            &mut failure,
        )
    };
    let sockets = Sockets {
        proxy: bind(
            "proxy_listen",
            settings.proxy_listen.iter().collect(),
            workers,
        ),
        streams: bind("stream_listen", streams, workers),
        admin: bind("admin_listen", settings.admin_listen.iter().collect(), 1),
        status: bind("status_listen", settings.status_listen.iter().collect(), 1),
        datagrams: bind_setting(
            "stream_listen",
            &settings.origins,
            &datagrams,
            workers,
            &mut inherited,
            &mut failure,
        ),
        local: None,
        events: None,
    };
    if failure.is_empty() {
        Ok(sockets)
    } else {
        Err(failure)
    }
}

fn bind_setting<S: Socket>(
    setting: &'static str,
    origins: &Origins,
    listeners: &[&Listen],
    sockets: usize,
    inherited: &mut Inherited,
    failure: &mut Failure,
) -> Vec<Bound<S>> {
    let mut bound = Vec::new();
    for &listen in listeners {
        let bind = match inherited.take(setting, listen) {
            Some((address, taken)) => Ok(complete(listen, address, taken, sockets)),
            None => S::bind(listen, sockets),
        };
        match bind {
            Ok(sockets) => {
                let address = sockets.first().and_then(S::address);
                bound.push(Bound {
                    setting,
                    listen: listen.clone(),
                    address: address.unwrap_or(listen.address),
                    sockets,
                });
            }
            Err(error) => failure.add(Failure::new(describe(&origins.of(setting), listen, &error))),
        }
    }
    bound
}

/// Adds the missing sockets if there are more workers than before. If the system does not allow that, the workers share
/// the existing sockets.
fn complete<S: Socket>(
    listen: &Listen,
    address: SocketAddr,
    mut sockets: Vec<S>,
    wanted: usize,
) -> Vec<S> {
    match S::bind_more(listen, address, wanted.saturating_sub(sockets.len())) {
        Ok(more) => sockets.extend(more),
        Err(error) => tracing::warn!(%error, "the new workers share the listeners of the others"),
    }
    sockets
}

impl Inherited {
    /// Takes all sockets of a listener. They are those with the same setting and configured address, or else those with
    /// the same actual address, because the address may have moved to another setting.
    fn take<S: Socket>(&mut self, setting: &str, listen: &Listen) -> Option<(SocketAddr, Vec<S>)> {
        let of_kind = |one: &&InheritedSocket| one.udp == listen.udp;
        let same =
            |one: &&InheritedSocket| one.setting == setting && one.configured == listen.address;
        let moved = |one: &&InheritedSocket| one.address == listen.address;
        let mut known = self.0.iter().filter(of_kind);
        let found = known.clone().find(same).or_else(|| known.find(moved));
        let address = found?.address;
        let is_of_it = |one: &InheritedSocket| one.address == address && one.udp == listen.udp;
        let (taken, left) = std::mem::take(&mut self.0).into_iter().partition(is_of_it);
        self.0 = left;
        let taken: Vec<InheritedSocket> = taken;
        let sockets = taken.into_iter().map(|one| S::from(one.socket));
        Some((address, sockets.collect()))
    }
}

fn describe(setting: &str, listen: &Listen, error: &BindError) -> String {
    let owner = match error {
        // `occupant` finds only TCP listeners.
        BindError::InUse { address } if !listen.udp => occupant::of(*address),
        _ => None,
    };
    match owner {
        Some(owner) => format!("{setting}: {error}: {owner}"),
        None => format!("{setting}: {error}"),
    }
}

impl<S: Socket> Bound<S> {
    /// Returns the sockets that worker `number` of `workers` accepts on. Each worker has its own if there are enough.
    /// All workers share the sockets that an upgrade to fewer workers left over, because a socket that nobody accepts
    /// on would lose its connections.
    pub(crate) fn of_worker(&self, number: usize, workers: usize) -> io::Result<Vec<S>> {
        let count = self.sockets.len();
        let own = self.sockets.get(number % count.max(1));
        let shared = self.sockets.get(workers..).unwrap_or_default();
        own.into_iter().chain(shared).map(S::another).collect()
    }

    fn each(&self) -> impl Iterator<Item = ListeningSocket<'_>> {
        self.sockets.iter().map(|socket| ListeningSocket {
            setting: self.setting,
            listen: &self.listen,
            address: self.address,
            socket: socket.as_fd(),
        })
    }
}

/// A socket with its listener.
pub(crate) struct ListeningSocket<'s> {
    pub(crate) setting: &'static str,
    pub(crate) listen: &'s Listen,
    pub(crate) address: SocketAddr,
    pub(crate) socket: BorrowedFd<'s>,
}

impl Sockets {
    /// Returns the sockets of all listeners, without the Unix sockets in the prefix.
    pub(crate) fn all(&self) -> impl Iterator<Item = ListeningSocket<'_>> {
        let connections = [&self.proxy, &self.streams, &self.admin, &self.status];
        let connections = connections.into_iter().flatten().flat_map(Bound::each);
        connections.chain(self.datagrams.iter().flat_map(Bound::each))
    }

    /// Returns the addresses that the gateway listens on, in the form that is published for other processes.
    pub(crate) fn addresses(&self) -> serde_json::Value {
        let of = |bound: &[Bound], tls: bool| {
            let wanted = bound.iter().filter(|bound| bound.listen.ssl == tls);
            wanted
                .map(|bound| bound.address.to_string())
                .collect::<Vec<_>>()
        };
        let datagrams = self.datagrams.iter();
        let datagrams: Vec<_> = datagrams.map(|bound| bound.address.to_string()).collect();
        json!({
            "proxy": of(&self.proxy, false),
            "proxy_tls": of(&self.proxy, true),
            "stream": of(&self.streams, false),
            "stream_tls": of(&self.streams, true),
            "stream_udp": datagrams,
            "admin": of(&self.admin, false),
            "admin_tls": of(&self.admin, true),
            "status": of(&self.status, false),
            "status_tls": of(&self.status, true),
        })
    }
}

/// Formats the result of [`Sockets::addresses`] for the log: `proxy 127.0.0.1:8000, admin 127.0.0.1:8001`.
pub(crate) fn in_words(addresses: &serde_json::Value) -> String {
    let kinds = addresses.as_object().into_iter().flatten();
    let each = kinds.flat_map(|(kind, addresses)| {
        let addresses = addresses.as_array().into_iter().flatten();
        let addresses = addresses.filter_map(serde_json::Value::as_str);
        addresses.map(move |address| format!("{kind} {address}"))
    });
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(sockets: usize) -> Bound {
        let listen: Listen = "127.0.0.1:0".parse().expect("an address");
        let sockets = bind(&listen, sockets).expect("a free port");
        Bound {
            setting: "proxy_listen",
            address: sockets[0].local_addr().expect("a bound address"),
            listen,
            sockets,
        }
    }

    fn inherited(bound: &Bound) -> Inherited {
        let sockets = bound.sockets.iter().map(|socket| InheritedSocket {
            setting: bound.setting.to_owned(),
            configured: bound.listen.address,
            address: bound.address,
            udp: false,
            socket: socket.try_clone().expect("a descriptor").into(),
        });
        Inherited(sockets.collect())
    }

    #[test]
    fn every_socket_has_a_worker_that_accepts_on_it() {
        for (sockets, workers) in [(1, 1), (1, 3), (4, 2), (3, 3)] {
            let bound = bound(sockets);
            let each: Vec<usize> = (0..workers)
                .map(|number| bound.of_worker(number, workers).expect("descriptors").len())
                .collect();
            assert!(each.iter().all(|count| *count > 0));
            let left_over = sockets.saturating_sub(workers);
            assert_eq!(
                each.iter().max(),
                Some(&(1 + left_over)),
                "{sockets} for {workers}"
            );
        }
    }

    #[test]
    fn sockets_are_taken_over_whole_and_completed_for_more_workers() {
        let old = bound(2);
        let mut sockets = inherited(&old);
        let (address, taken): (_, Vec<TcpListener>) =
            sockets.take("proxy_listen", &old.listen).expect("there");
        assert_eq!((address, taken.len(), sockets.0.len()), (old.address, 2, 0));
        let completed = complete(&old.listen, address, taken, 4);
        assert_eq!(completed.len(), 4);
        for socket in completed {
            assert_eq!(socket.local_addr().expect("a bound address"), old.address);
        }
    }

    #[test]
    fn a_socket_may_go_to_another_setting_by_its_address() {
        let old = bound(1);
        let mut sockets = inherited(&old);
        let listen = Listen {
            address: old.address,
            ..old.listen.clone()
        };
        let take = |sockets: &mut Inherited, listen: &Listen| {
            sockets
                .take::<TcpListener>("status_listen", listen)
                .is_some()
        };
        assert!(!take(&mut sockets, &bound(1).listen));
        let datagrams = Listen {
            udp: true,
            ..listen.clone()
        };
        assert!(!take(&mut sockets, &datagrams), "not of this kind");
        assert!(take(&mut sockets, &listen));
    }
}
