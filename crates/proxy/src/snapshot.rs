//! What workers read: one revision of the configuration, compiled. Built off the request path, swapped whole, never changed.
//! The next one shares what a change does not touch. Consumers and credentials are not in it: plugins look them up where
//! they are stored.

mod build;
mod certificates;
mod delta;
mod describe;
mod digest;
mod plugins;
mod rebuilds;
mod routes;
mod services;
mod streams;

pub use build::{BuildError, BuildErrors, BuildSettings};
pub use delta::{Delta, Entities, ReadError, Touched};
pub use rebuilds::{Part, Rebuilds, Summary};
pub use streams::StreamRoute;

use self::certificates::CertificateTables;
use self::plugins::PluginTables;
use self::routes::Routes;
use self::services::{Services, UpstreamIndex};
use self::streams::Streams;
use crate::balance::{Hashing, NoPeer, PickInput, Stay, Tried, Upstream, Visit};
use crate::health::Outcome;
use crate::plan::{Instances, Plan};
use crate::upstream::Target;
use arc_swap::{ArcSwap, Guard};
use model::entities::{Protocol, RouteId, ServiceId, UpstreamId};
use net::tls::{CertificateSource, Certificates};
use plugin::EntityRef;
use router::{RouteIndex, Router};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use tokio::sync::watch;

#[derive(Clone)]
pub struct Snapshot {
    pub revision: u64,
    pub router: Arc<Router>,
    routes: Routes,
    services: Services,
    plugins: PluginTables,
    /// The plan of requests that fail before they have a route.
    pub globals: Arc<Plan>,
    streams: Streams,
    certificates: Arc<CertificateTables>,
}

/// What the request path needs of a route beyond finding it.
#[derive(Debug, Clone)]
pub struct RouteInfo {
    pub id: RouteId,
    pub name: Option<Arc<str>>,
    pub plan: Arc<Plan>,
    /// Place in the table of services.
    service: Option<ServiceIndex>,
    pub https_redirect_status_code: u16,
    pub protocols: Protocols,
    pub preserve_host: bool,
    pub request_buffering: bool,
    pub response_buffering: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ServiceIndex(u32);

#[derive(Debug, Clone)]
pub struct ServiceInfo {
    pub id: ServiceId,
    pub name: Option<Arc<str>>,
    pub protocol: Protocol,
    path: Option<Arc<str>>,
    destination: Destination,
}

/// Where a service's requests go.
#[derive(Debug, Clone)]
enum Destination {
    /// The host of the service itself.
    Host(Target),
    /// The upstream entity that the host names, in one of its ways.
    Upstream(UpstreamIndex, u32),
}

/// A service of a snapshot, which knows the upstreams.
#[derive(Clone, Copy)]
pub struct ServiceRef<'s> {
    info: &'s ServiceInfo,
    services: &'s Services,
}

impl Deref for ServiceRef<'_> {
    type Target = ServiceInfo;

    #[inline]
    fn deref(&self) -> &ServiceInfo {
        self.info
    }
}

/// A set of protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocols(u16);

impl Protocols {
    pub fn contains(self, protocol: Protocol) -> bool {
        self.0 >> protocol as u16 & 1 == 1
    }
}

impl FromIterator<Protocol> for Protocols {
    fn from_iter<I: IntoIterator<Item = Protocol>>(protocols: I) -> Self {
        let bits = protocols.into_iter().map(|protocol| 1 << protocol as u16);
        Self(bits.fold(0, |set, bit: u16| set | bit))
    }
}

impl RouteInfo {
    /// As plugins see it.
    pub fn as_ref(&self) -> EntityRef<'_> {
        EntityRef {
            id: self.id.0,
            name: self.name.as_deref(),
        }
    }
}

impl<'s> ServiceRef<'s> {
    /// As plugins see it.
    pub fn as_ref(self) -> EntityRef<'s> {
        EntityRef {
            id: self.info.id.0,
            name: self.info.name.as_deref(),
        }
    }

    /// Where its requests go, for those who want to know.
    pub fn leads_to(self) -> LeadsTo<'s> {
        match &self.info.destination {
            Destination::Host(target) => LeadsTo::Host(target),
            Destination::Upstream(index, _) => LeadsTo::Upstream(self.services.upstream(*index)),
        }
    }

    /// What comes before the paths of requests.
    #[inline]
    pub fn path(self) -> Option<&'s str> {
        self.info.path.as_deref()
    }

    /// Where the next try goes.
    #[inline]
    pub fn pick(self, input: PickInput, tried: &Tried) -> Result<Chosen<'s>, NoPeer> {
        match &self.info.destination {
            Destination::Host(target) => Ok(Chosen::Host(target)),
            Destination::Upstream(index, way) => {
                let upstream = self.services.upstream(*index);
                upstream.pick(*way, input, tried).map(Chosen::Peer)
            }
        }
    }

    /// [`Self::pick`], after a wait for names of targets that were never resolved.
    pub async fn pick_resolved(
        self,
        input: PickInput,
        tried: &Tried,
    ) -> Result<Chosen<'s>, NoPeer> {
        match self.pick(input, tried) {
            Err(NoPeer::Unresolved) => {
                self.resolve().await;
                self.pick(input, tried)
            }
            picked => picked,
        }
    }

    /// After [`NoPeer::Unresolved`]: waits for the names of targets.
    #[cold]
    pub async fn resolve(self) {
        if let Destination::Upstream(index, way) = &self.info.destination {
            let upstream = self.services.upstream(*index);
            let limit = upstream.settings.ways[*way as usize].connect_timeout();
            upstream.resolve(limit).await;
        }
    }

    /// What requests are told apart by, where that decides about their peer.
    #[inline]
    pub fn hashing(self) -> Option<&'s Hashing> {
        match &self.info.destination {
            Destination::Host(_) => None,
            Destination::Upstream(index, _) => self.services.upstream(*index).hashing.as_ref(),
        }
    }
}

/// Where a service leads to.
#[derive(Debug, Clone, Copy)]
pub enum LeadsTo<'s> {
    Host(&'s Target),
    Upstream(&'s Arc<Upstream>),
}

/// Where a try goes.
#[derive(Debug)]
pub enum Chosen<'s> {
    /// The host of the service.
    Host(&'s Target),
    /// A peer of its upstream. The request counts there until this is dropped.
    Peer(Visit<'s>),
}

impl Chosen<'_> {
    /// Tells what came of the try.
    #[inline]
    pub fn report(&self, outcome: Outcome) {
        if let Self::Peer(visit) = self {
            visit.report(outcome);
        }
    }

    /// Notes it as one to avoid.
    pub fn avoid(&self, tried: &mut Tried) {
        if let Self::Peer(visit) = self {
            tried.add(visit);
        }
    }

    /// For a request that goes on when its try is over.
    pub fn into_stay(self) -> Option<Stay> {
        match self {
            Self::Host(_) => None,
            Self::Peer(visit) => Some(visit.into_stay()),
        }
    }
}

impl Deref for Chosen<'_> {
    type Target = Target;

    #[inline]
    fn deref(&self) -> &Target {
        match self {
            Self::Host(target) => target,
            Self::Peer(visit) => visit,
        }
    }
}

impl Snapshot {
    /// The route that this snapshot's router found.
    #[inline]
    pub fn route(&self, index: RouteIndex) -> &RouteInfo {
        self.routes.get(index)
    }

    /// The service of a route of this snapshot.
    #[inline]
    pub fn service(&self, route: &RouteInfo) -> Option<ServiceRef<'_>> {
        route.service.map(|index| self.services.get(index))
    }

    /// In the order of their ids.
    pub fn routes(&self) -> impl Iterator<Item = &RouteInfo> {
        self.routes.iter()
    }

    /// With what the router calls them.
    pub fn indexed_routes(&self) -> impl Iterator<Item = (RouteIndex, &RouteInfo)> {
        self.routes.indexed()
    }

    #[inline]
    pub fn instances(&self) -> &Instances {
        &self.plugins.instances
    }

    pub fn upstream(&self, id: UpstreamId) -> Option<&Arc<Upstream>> {
        self.services.upstream_by_id(id)
    }

    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.services.upstreams()
    }

    /// Of a client that asks for a name, or for none.
    pub fn certificates(&self, name: Option<&str>) -> Option<&Arc<Certificates>> {
        self.certificates.by_name.find(name)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Snapshot")
            .field("revision", &self.revision)
            .field("routes", &self.routes.len())
            .finish_non_exhaustive()
    }
}

/// The snapshot that requests are served by, shared by all workers. A swap is seen by the next request of each.
#[derive(Debug, Clone)]
pub struct Live {
    snapshot: Arc<ArcSwap<Snapshot>>,
    /// For those that must know of a swap without a request; the revision.
    swaps: Arc<watch::Sender<u64>>,
}

impl Live {
    pub fn new(snapshot: Snapshot) -> Self {
        Self {
            swaps: Arc::new(watch::Sender::new(snapshot.revision)),
            snapshot: Arc::new(ArcSwap::from_pointee(snapshot)),
        }
    }

    /// For a short look: a guard held for long makes swaps slower.
    pub fn peek(&self) -> Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    /// For the life of a request.
    pub fn load(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Where each worker may keep a cache of its own ([`arc_swap::Cache`]).
    pub fn shared(&self) -> Arc<ArcSwap<Snapshot>> {
        self.snapshot.clone()
    }

    /// From here on requests are served by the new snapshot.
    pub fn swap(&self, snapshot: Arc<Snapshot>) {
        let revision = snapshot.revision;
        self.snapshot.store(snapshot);
        self.swaps.send_replace(revision);
    }

    /// Tells of every swap.
    pub fn swaps(&self) -> watch::Receiver<u64> {
        self.swaps.subscribe()
    }
}

impl CertificateSource for Live {
    fn certificates(&self, name: Option<&str>) -> Option<Arc<Certificates>> {
        self.peek().certificates(name).cloned()
    }
}
