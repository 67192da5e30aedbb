//! A snapshot is one revision of the configuration, compiled for the workers. It is built outside the request path,
//! never changes, and is replaced as a whole. The next snapshot shares the parts that a change leaves alone. Consumers
//! and credentials are not part of it: plugins read them from the entity tables.

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
use crate::plugins::streams::Installed;
use crate::plugins::{Doing, Instances, Plan};
use crate::redirect::{Edited, RedirectSettings};
use crate::upstream::{Target, Way};
use arc_swap::{ArcSwap, Guard};
use model::entities::{CertificateId, Protocol, RouteId, ServiceId, UpstreamId};
use net::tls::{CertificateSource, Certificates};
use plugin::{ConfiguredName, ConfiguredNames, EntityRef, Node, RouteSlot, Scope};
use router::{RouteIndex, Router};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

#[derive(Clone)]
pub struct Snapshot {
    pub revision: u64,
    pub router: Arc<Router>,
    routes: Routes,
    services: Services,
    plugins: PluginTables,
    /// The plugin chain for requests that fail before a route is found.
    pub globals: Arc<Plan>,
    streams: Streams,
    certificates: Arc<CertificateTables>,
}

/// The properties of a matched route that the request path needs.
#[derive(Debug, Clone)]
pub struct RouteInfo {
    pub id: RouteId,
    pub name: Option<Arc<str>>,
    pub plan: Arc<Plan>,
    /// The first path of the route, for spans. Empty if it has none.
    pub path: Arc<str>,
    /// What a plugin has prepared for the route.
    pub slot: RouteSlot,
    /// Index in the table of services.
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

/// The destination of a service's requests.
#[derive(Debug, Clone)]
enum Destination {
    /// The host of the service itself.
    Host(Target),
    /// The upstream entity that the host names, and the index of the connection settings ([`crate::upstream::Way`]) to
    /// use.
    Upstream(UpstreamIndex, u32),
}

/// A service together with the tables of its snapshot, which hold the upstreams.
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
    /// Returns the reference that plugins get.
    pub fn as_ref(&self) -> EntityRef<'_> {
        EntityRef {
            id: self.id.0,
            name: self.name.as_deref(),
        }
    }
}

impl<'s> ServiceRef<'s> {
    /// Returns the reference that plugins get.
    pub fn as_ref(self) -> EntityRef<'s> {
        EntityRef {
            id: self.info.id.0,
            name: self.info.name.as_deref(),
        }
    }

    /// What the service says about its connections.
    pub(crate) fn base(self) -> Base<'s> {
        match &self.info.destination {
            Destination::Host(target) => Base::Host(target),
            Destination::Upstream(index, way) => {
                let upstream = self.services.upstream(*index);
                Base::Way(&upstream.settings.ways[*way as usize])
            }
        }
    }

    /// Whether the service's host is an address and not a name.
    pub(crate) fn has_address(self) -> bool {
        match &self.info.destination {
            Destination::Host(target) => target.host.is_address(),
            Destination::Upstream(..) => false,
        }
    }

    pub(crate) fn upstream_named(self, name: &str) -> Option<&'s Upstream> {
        self.services
            .upstream_named(name)
            .map(|upstream| &**upstream)
    }

    pub(crate) fn redirects(self) -> &'s RedirectSettings {
        self.services.redirects()
    }

    /// Returns the destination of the requests, for reports such as explain.
    pub fn leads_to(self) -> LeadsTo<'s> {
        match &self.info.destination {
            Destination::Host(target) => LeadsTo::Host(target),
            Destination::Upstream(index, _) => LeadsTo::Upstream(self.services.upstream(*index)),
        }
    }

    /// The service's path, which is put in front of the paths of requests.
    #[inline]
    pub fn path(self) -> Option<&'s str> {
        self.info.path.as_deref()
    }

    /// Picks the target for the next try.
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

    /// Does the same as [`Self::pick`]. If no target can be picked because names are not resolved yet, waits for the
    /// names and picks again.
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

    /// Waits until the names of targets are resolved, at most for the connect timeout. Called after
    /// [`NoPeer::Unresolved`].
    #[cold]
    pub async fn resolve(self) {
        if let Destination::Upstream(index, way) = &self.info.destination {
            let upstream = self.services.upstream(*index);
            let limit = upstream.settings.ways[*way as usize].connect_timeout();
            upstream.resolve(limit).await;
        }
    }

    pub(crate) fn connect_timeout(self) -> Duration {
        match self.base() {
            Base::Host(target) => target.connect_timeout,
            Base::Way(way) => way.connect_timeout(),
        }
    }

    /// The hash settings of the upstream, if it balances by hashing.
    #[inline]
    pub fn hashing(self) -> Option<&'s Hashing> {
        match &self.info.destination {
            Destination::Host(_) => None,
            Destination::Upstream(index, _) => self.services.upstream(*index).hashing.as_ref(),
        }
    }
}

/// The host or the upstream that a service refers to.
#[derive(Debug, Clone, Copy)]
pub enum LeadsTo<'s> {
    Host(&'s Target),
    Upstream(&'s Arc<Upstream>),
}

/// The settings of a service for its connections.
#[derive(Clone, Copy)]
pub(crate) enum Base<'s> {
    Host(&'s Target),
    Way(&'s Way),
}

/// The target picked for one try.
#[derive(Debug)]
pub enum Chosen<'s> {
    /// The host of the service.
    Host(&'s Target),
    /// A target of the service's upstream. The target counts the request as active until this is dropped.
    Peer(Visit<'s>),
    /// A target that a plugin has changed. Boxed because it is rare.
    Edited(Box<Edited<'s>>),
}

impl<'s> Chosen<'s> {
    #[inline]
    fn visit(&self) -> Option<&Visit<'s>> {
        match self {
            Self::Host(_) => None,
            Self::Peer(visit) => Some(visit),
            Self::Edited(edited) => edited.visit.as_ref(),
        }
    }

    pub(crate) fn into_visit(self) -> Option<Visit<'s>> {
        match self {
            Self::Host(_) => None,
            Self::Peer(visit) => Some(visit),
            Self::Edited(edited) => edited.visit,
        }
    }

    /// Reports the outcome of the try to the health checks and the balancer.
    #[inline]
    pub fn report(&self, outcome: Outcome) {
        if let Some(visit) = self.visit() {
            visit.report(outcome);
        }
    }

    /// Adds the target to `tried`, so that the next try avoids it.
    pub fn avoid(&self, tried: &mut Tried) {
        if let Some(visit) = self.visit() {
            tried.add(visit);
        }
    }

    /// Keeps the request counted at its target after the try is over, for instance for a tunnel.
    pub fn into_stay(self) -> Option<Stay> {
        self.into_visit().map(Visit::into_stay)
    }
}

impl Deref for Chosen<'_> {
    type Target = Target;

    #[inline]
    fn deref(&self) -> &Target {
        match self {
            Self::Host(target) => target,
            Self::Peer(visit) => visit,
            Self::Edited(edited) => &edited.target,
        }
    }
}

impl Snapshot {
    /// Returns a route by the index that this snapshot's router found.
    #[inline]
    pub fn route(&self, index: RouteIndex) -> &RouteInfo {
        self.routes.get(index)
    }

    /// Returns the route of an index that may be of another snapshot, for reports.
    pub fn route_at(&self, index: u32) -> Option<&RouteInfo> {
        self.routes.find(index)
    }

    /// Returns the service of a route of this snapshot.
    #[inline]
    pub fn service(&self, route: &RouteInfo) -> Option<ServiceRef<'_>> {
        route.service.map(|index| self.services.get(index))
    }

    /// All HTTP routes, ordered by id.
    pub fn routes(&self) -> impl Iterator<Item = &RouteInfo> {
        self.routes.iter()
    }

    /// All HTTP routes with their index in the router.
    pub fn indexed_routes(&self) -> impl Iterator<Item = (RouteIndex, &RouteInfo)> {
        self.routes.indexed()
    }

    #[inline]
    pub fn instances(&self) -> &Instances {
        &self.plugins.instances
    }

    /// The names of the configured plugins.
    #[inline]
    pub fn configured_names(&self) -> &dyn ConfiguredNames {
        self
    }

    /// The plugins, for sessions of streams and for TLS handshakes.
    pub fn installed<'s>(&'s self, node: &'s Arc<Node>, doing: &'s Doing) -> Installed<'s> {
        Installed {
            instances: self.instances(),
            names: self.configured_names(),
            node,
            doing,
        }
    }

    pub fn upstream(&self, id: UpstreamId) -> Option<&Arc<Upstream>> {
        self.services.upstream_by_id(id)
    }

    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.services.upstreams()
    }

    /// All configured certificates with their ids.
    pub fn certificates_by_id(&self) -> impl Iterator<Item = (CertificateId, &Arc<Certificates>)> {
        self.certificates.pairs()
    }

    /// All configured server names, each with the id of its certificate.
    pub fn server_names(&self) -> impl Iterator<Item = (&str, CertificateId)> {
        self.certificates.names()
    }

    /// Returns the certificates for a TLS client that asks for this server name, or for none.
    pub fn certificates(&self, name: Option<&str>) -> Option<&Arc<Certificates>> {
        self.certificates.by_name.find(name)
    }
}

impl ConfiguredNames for Snapshot {
    fn configured_name(&self, plugin: u16, scope: Scope) -> Option<ConfiguredName<'_>> {
        self.plugins.configured_name(plugin, scope)
    }

    fn has_upstream(&self, name: &str) -> bool {
        self.services.upstream_named(name).is_some()
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

/// The current snapshot, shared by all workers. After a swap, the next request of each worker uses the new snapshot.
#[derive(Debug, Clone)]
pub struct Live {
    snapshot: Arc<ArcSwap<Snapshot>>,
    /// Sends the revision of each new snapshot, for tasks that must notice a swap without a request.
    swaps: Arc<watch::Sender<u64>>,
}

impl Live {
    pub fn new(snapshot: Snapshot) -> Self {
        Self {
            swaps: Arc::new(watch::Sender::new(snapshot.revision)),
            snapshot: Arc::new(ArcSwap::from_pointee(snapshot)),
        }
    }

    /// Returns the snapshot for short use. Each thread has only a few guards, and [`Self::peek`] is slower while all of
    /// them are in use.
    pub fn peek(&self) -> Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    /// Returns the snapshot for the duration of a request.
    pub fn load(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Returns the shared pointer, so that each worker can keep its own cache ([`arc_swap::Cache`]).
    pub fn shared(&self) -> Arc<ArcSwap<Snapshot>> {
        self.snapshot.clone()
    }

    /// Makes `snapshot` the current one for all further requests.
    pub fn swap(&self, snapshot: Arc<Snapshot>) {
        let revision = snapshot.revision;
        self.snapshot.store(snapshot);
        self.swaps.send_replace(revision);
    }

    /// Returns a receiver of the latest revision. It is notified of swaps.
    pub fn swaps(&self) -> watch::Receiver<u64> {
        self.swaps.subscribe()
    }
}

impl CertificateSource for Live {
    fn certificates(&self, name: Option<&str>) -> Option<Arc<Certificates>> {
        self.peek().certificates(name).cloned()
    }
}
