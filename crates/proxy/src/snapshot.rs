//! What workers read: one revision of the configuration, compiled. Built off the request path, swapped whole, never changed.
//! Consumers and credentials are not in it: plugins look them up where they are stored.

mod balance;
mod build;
mod changed;
mod digest;
mod plugins;
mod rebuilds;
mod routes;

pub use balance::Balancer;
pub use build::{BuildError, BuildErrors, BuildSettings};
pub use changed::Changed;
pub use plugins::Inert;
pub use rebuilds::{Part, Rebuilds, Summary};

use self::build::Services;
use crate::plan::{Instances, Places, Plan};
use crate::upstream::Target;
use arc_swap::{ArcSwap, Guard};
use model::entities::{Protocol, RouteId, ServiceId};
use net::tls::{CertificateSource, Certificates, SniTable};
use plugin::EntityRef;
use router::{RouteIndex, Router};
use std::fmt;
use std::sync::Arc;

pub struct Snapshot {
    pub revision: u64,
    pub router: Arc<Router>,
    /// By [`RouteIndex`].
    routes: Arc<[RouteInfo]>,
    services: Arc<Services>,
    pub instances: Arc<Instances>,
    /// From which plans are made; kept for the next snapshot.
    places: Arc<Places>,
    /// The plan of requests that fail before they have a route.
    pub globals: Arc<Plan>,
    pub certificates: Arc<SniTable>,
    /// Configured plugins that have no effect, which loading has warned of.
    pub inert: Arc<[Inert]>,
}

/// What the request path needs of a route beyond finding it.
#[derive(Debug, Clone)]
pub struct RouteInfo {
    pub id: RouteId,
    pub name: Option<Box<str>>,
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

#[derive(Debug)]
pub struct ServiceInfo {
    pub id: ServiceId,
    pub name: Option<Box<str>>,
    pub protocol: Protocol,
    pub path: Option<Box<str>>,
    destination: Destination,
}

/// Where a service's requests go.
#[derive(Debug)]
enum Destination {
    /// The host of the service itself.
    Host(Target),
    /// The targets of the upstream entity that the host names.
    Upstream(Balancer),
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

impl ServiceInfo {
    /// As plugins see it.
    pub fn as_ref(&self) -> EntityRef<'_> {
        EntityRef {
            id: self.id.0,
            name: self.name.as_deref(),
        }
    }

    /// Where the next try goes; none when the upstream entity has no usable target.
    pub fn target(&self) -> Option<&Target> {
        match &self.destination {
            Destination::Host(target) => Some(target),
            Destination::Upstream(balancer) => balancer.pick(),
        }
    }
}

impl Snapshot {
    /// The route that this snapshot's router found.
    pub fn route(&self, index: RouteIndex) -> &RouteInfo {
        &self.routes[index.0 as usize]
    }

    /// The service of a route of this snapshot.
    pub fn service(&self, route: &RouteInfo) -> Option<&ServiceInfo> {
        route.service.map(|index| self.services.get(index))
    }

    pub fn routes(&self) -> &[RouteInfo] {
        &self.routes
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
pub struct Live(Arc<ArcSwap<Snapshot>>);

impl Live {
    pub fn new(snapshot: Snapshot) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(snapshot)))
    }

    /// For a short look: a guard held for long makes swaps slower.
    pub fn peek(&self) -> Guard<Arc<Snapshot>> {
        self.0.load()
    }

    /// For the life of a request.
    pub fn load(&self) -> Arc<Snapshot> {
        self.0.load_full()
    }

    /// Where each worker may keep a cache of its own ([`arc_swap::Cache`]).
    pub fn shared(&self) -> Arc<ArcSwap<Snapshot>> {
        self.0.clone()
    }

    /// From here on requests are served by the new snapshot.
    pub fn swap(&self, snapshot: Arc<Snapshot>) {
        self.0.store(snapshot);
    }
}

impl CertificateSource for Live {
    fn certificates(&self, name: Option<&str>) -> Option<Arc<Certificates>> {
        self.peek().certificates.find(name).cloned()
    }
}
