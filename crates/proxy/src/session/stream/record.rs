//! What is known about a TCP, TLS or UDP session, for plugins and for the log.

use super::Refusal;
use crate::plugins::RouteMark;
use crate::plugins::streams::Loggers;
use crate::session::log_entries::{EndedStream, log_stream};
use crate::session::plane::DataPlane;
use crate::session::worker;
use crate::snapshot::{ServiceRef, Snapshot, StreamRoute};
use plugin::{
    Client, EntityRef, Latencies, Phases, Reason, RouteSlot, StreamEntry, StreamProtocol,
    StreamSession, TlsInfo, Try, TryEnd,
};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use uuid::Uuid;

/// A session from its arrival. It is logged when this is dropped, also if its task is aborted.
pub(super) struct Record {
    plane: Arc<DataPlane>,
    pub(super) protocol: StreamProtocol,
    pub(super) client: SocketAddr,
    pub(super) peer: SocketAddr,
    /// Port of the listener, mapped by `port_maps`.
    pub(super) port: u16,
    pub(super) sni: Option<Box<str>>,
    pub(super) tls: Option<TlsInfo>,
    route: Option<Named>,
    service: Option<Named>,
    slot: Option<Arc<RouteSlot>>,
    /// The plugins of the route that log. `None` before the preread phase: then the global ones log.
    loggers: Option<Loggers>,
    started: Instant,
    tries: Vec<Try>,
    status: u16,
    /// Why the gateway has ended the session. `None` if the client or the upstream ended it.
    reason: Option<Reason>,
    /// The plugin that has ended the session, or has failed.
    plugin: Option<Cow<'static, str>>,
    pub(super) moved: Moved,
}

/// Id and name of a route or service. They are kept apart from the snapshot, which a session may outlive.
struct Named {
    id: Uuid,
    name: Option<Arc<str>>,
}

/// Bytes forwarded in each direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// Bytes received from the client.
    pub(super) received: u64,
    /// Bytes sent to the client.
    pub(super) sent: u64,
    pub(super) upstream_received: u64,
    pub(super) upstream_sent: u64,
}

impl Record {
    /// Begins the record of a session whose client is the peer, until a PROXY header says otherwise.
    pub(super) fn new(
        plane: &Arc<DataPlane>,
        protocol: StreamProtocol,
        peer: SocketAddr,
        port: u16,
    ) -> Self {
        Self {
            plane: plane.clone(),
            protocol,
            client: peer,
            peer,
            port,
            sni: None,
            tls: None,
            route: None,
            service: None,
            slot: None,
            loggers: None,
            started: Instant::now(),
            tries: Vec::new(),
            // The status of a session that is cut off before it reaches an upstream.
            status: 500,
            // Only the end of the worker cuts sessions off.
            reason: Some(Reason::Draining),
            plugin: None,
            moved: Moved::default(),
        }
    }

    /// Runs the preread phase. From here on the plugins of the route log the session.
    pub(super) async fn preread(
        &mut self,
        snapshot: &Snapshot,
        route: &StreamRoute,
        service: Option<ServiceRef<'_>>,
    ) -> Result<(), Refusal> {
        let (route_id, service_id) = (route.id, service.map(|service| service.id));
        self.route = Some(Named {
            id: route_id.0,
            name: route.name.clone(),
        });
        self.service = service.map(|service| Named {
            id: service.id.0,
            name: service.name.clone(),
        });
        self.slot = Some(route.slot.clone());
        let plugins = snapshot.installed(&self.plane.node, self.plane.doing());
        let plan = &route.plan;
        let mark = RouteMark::new(route.index.0);
        self.loggers = Some(plugins.loggers(plan, (Some(route_id), mark), service_id));
        if !plan.has(Phases::PREREAD) {
            return Ok(());
        }
        // Boxed because few routes have such plugins.
        let session = self.session();
        Ok(Box::pin(plugins.preread(plan, &session, mark)).await?)
    }

    fn session(&self) -> StreamSession<'_> {
        StreamSession {
            protocol: self.protocol,
            client: Client {
                ip: self.client.ip(),
                port: self.client.port(),
            },
            peer: self.peer,
            port: self.port,
            sni: self.sni.as_deref(),
            tls: self.tls.as_ref(),
            route: self.route.as_ref().map(Named::as_ref),
            service: self.service.as_ref().map(Named::as_ref),
            slot: self.slot.as_deref(),
        }
    }

    /// Records that a try begins, at an address that was looked for since `began`.
    pub(super) fn begin_try(&mut self, address: SocketAddr, began: Instant) {
        let choosing = began.elapsed();
        self.tries.push(Try {
            address: Some(address),
            after: began - self.started,
            choosing,
            took: choosing,
            end: TryEnd::Abandoned,
        });
    }

    /// Records that the last try has failed.
    pub(super) fn fail_try(&mut self, status: u16) {
        self.end_try(TryEnd::Failed(status));
    }

    /// Records that the last try has succeeded, so that the session is forwarded.
    pub(super) fn forwarded(&mut self) {
        self.end_try(TryEnd::Answered(200));
        self.status = 200;
    }

    pub(super) fn refused(&mut self, refusal: &Refusal) {
        self.status = refusal.status();
        self.reason = Some(refusal.reason());
        if let Refusal::Plugin(closed) = refusal {
            self.plugin = Some(closed.plugin.clone());
        }
    }

    /// Records that a session that was forwarded has ended, and why the gateway has ended it, if it has.
    pub(super) fn ended(&mut self, reason: Option<Reason>) {
        self.reason = reason;
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn end_try(&mut self, end: TryEnd) {
        let elapsed = self.started.elapsed();
        if let Some(last) = self.tries.last_mut() {
            last.end = end;
            last.took = elapsed.saturating_sub(last.after);
        }
    }

    fn log_access(&self) {
        log_stream(
            &self.plane,
            &EndedStream {
                protocol: match self.protocol {
                    StreamProtocol::Udp => "UDP",
                    _ => "TCP",
                },
                client: self.client,
                port: self.port,
                status: self.status,
                received: self.moved.received,
                sent: self.moved.sent,
                took: self.started.elapsed(),
                route: self.route.as_ref().map(Named::as_ref),
                service: self.service.as_ref().map(Named::as_ref),
                sni: self.sni.as_deref().unwrap_or_default(),
                tries: &self.tries,
                plugin: self.plugin.as_deref().unwrap_or_default(),
                reason: self.reason,
            },
        );
    }

    fn log_plugins(&mut self) {
        let loggers = self.loggers.take().unwrap_or_else(|| {
            let view = worker::with(|worker| worker.view(&self.plane));
            let snapshot = &*view.snapshot;
            let plugins = snapshot.installed(&self.plane.node, self.plane.doing());
            let no_route = (None, RouteMark::default());
            plugins.loggers(snapshot.stream_globals(), no_route, None)
        });
        if loggers.is_empty() {
            return;
        }
        if self.status == 200
            && let Some(end) = self.tries.last().map(|last| last.end)
        {
            // A try that has succeeded lasts as long as the session.
            self.end_try(end);
        }
        let took = self.started.elapsed();
        let chosen = self.tries.last().map(|last| last.after + last.choosing);
        let entry = StreamEntry {
            status: self.status,
            started_at: SystemTime::now() - took,
            latencies: Latencies {
                request: took,
                gateway: chosen.unwrap_or(took),
                ..Latencies::default()
            },
            tries: &self.tries,
            received: self.moved.received,
            sent: self.moved.sent,
            upstream_received: self.moved.upstream_received,
            upstream_sent: self.moved.upstream_sent,
            reason: self.reason,
        };
        let node = (&self.plane.node, self.plane.doing());
        loggers.log(&self.session(), node, &entry);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if let Some(reason) = self.reason {
            let counters = worker::with(|worker| worker.counters(&self.plane));
            counters.stream_ends[reason as usize].add();
        }
        self.log_access();
        self.log_plugins();
    }
}

impl Named {
    fn as_ref(&self) -> EntityRef<'_> {
        EntityRef {
            id: self.id,
            name: self.name.as_deref(),
        }
    }
}
