//! The enabled services and all upstreams of a snapshot.

use super::build::{BuildError, BuildSettings};
use super::delta::{Delta, Edit, Lookup, UpstreamParts};
use super::{Destination, ServiceIndex, ServiceInfo, ServiceRef};
use crate::balance::{self, TargetSettings};
use crate::health::{Checks, Probing};
use crate::redirect::RedirectSettings;
use crate::upstream::{TlsDefaults, Way, probe_tls};
use compact_str::CompactString;
use model::entities::{CaCertificateId, Route, Service, ServiceId, Target, Upstream, UpstreamId};
use model::hashing::Folding;
use net::tls::CertificateError;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::Arc;
use tables::{Slots, Sorted};
use uuid::Uuid;

#[derive(Clone, Default)]
pub(super) struct Services {
    infos: Slots<ServiceInfo>,
    by_id: Sorted<ServiceId, ServiceIndex>,
    /// The services, sorted by the hash of their host.
    by_host: Sorted<(u64, ServiceId), ()>,
    /// The services, sorted by the CA certificates that they trust.
    by_authority: Sorted<(CaCertificateId, ServiceId), ()>,
    balancers: Slots<Balancer>,
    upstreams: Sorted<UpstreamId, UpstreamIndex>,
    upstream_names: Sorted<CompactString, UpstreamIndex>,
    redirects: Arc<RedirectSettings>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UpstreamIndex(u32);

/// An upstream, and the number of services that use each of its ways (connection settings).
#[derive(Debug, Clone)]
pub(super) struct Balancer {
    upstream: Arc<balance::Upstream>,
    uses: Arc<[u32]>,
}

impl Services {
    pub(super) fn new(settings: &BuildSettings) -> Self {
        let redirects = RedirectSettings::new(settings.resolver.clone(), settings.tls.clone());
        Self {
            redirects: Arc::new(redirects),
            ..Self::default()
        }
    }

    pub(super) fn redirects(&self) -> &RedirectSettings {
        &self.redirects
    }

    #[inline]
    pub(super) fn get(&self, index: ServiceIndex) -> ServiceRef<'_> {
        ServiceRef {
            info: self.infos.get(index.0),
            services: self,
        }
    }

    #[inline]
    pub(super) fn upstream(&self, index: UpstreamIndex) -> &Arc<balance::Upstream> {
        &self.balancers.get(index.0).upstream
    }

    /// Returns the index of an enabled service.
    pub(super) fn index(&self, id: ServiceId) -> Option<ServiceIndex> {
        self.by_id.get(&id).copied()
    }

    /// Whether HTTP requests can reach the route: it has an HTTP protocol, and its service, if any, is enabled.
    pub(super) fn serves(&self, route: &Route) -> bool {
        let is_http = route.protocols.iter().any(|protocol| protocol.is_http());
        is_http && route.service.is_none_or(|id| self.index(id).is_some())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = ServiceRef<'_>> {
        self.by_id.iter().map(|(_, index)| self.get(*index))
    }

    pub(super) fn upstreams(&self) -> impl Iterator<Item = &Arc<balance::Upstream>> {
        let indexes = self.upstreams.iter();
        indexes.map(|(_, index)| self.upstream(*index))
    }

    pub(super) fn upstream_by_id(&self, id: UpstreamId) -> Option<&Arc<balance::Upstream>> {
        let index = self.upstreams.get(&id)?;
        Some(self.upstream(*index))
    }

    pub(super) fn upstream_named(&self, name: &str) -> Option<&Arc<balance::Upstream>> {
        let index = self.upstream_names.get(name)?;
        Some(self.upstream(*index))
    }

    /// Returns the services with this host. The result may also contain services whose host has the same hash.
    pub(super) fn leading_to(&self, host: &str) -> impl Iterator<Item = ServiceId> {
        let host = hash(host);
        let services = self.by_host.starting_at(&(host, ServiceId(Uuid::nil())));
        let own = services.take_while(move |((known, _), ())| *known == host);
        own.map(|((_, service), ())| *service)
    }

    /// Returns the services that trust this CA certificate.
    pub(super) fn trusting(&self, id: CaCertificateId) -> impl Iterator<Item = ServiceId> {
        let services = self.by_authority.starting_at(&(id, ServiceId(Uuid::nil())));
        let own = services.take_while(move |((known, _), ())| *known == id);
        own.map(|((_, service), ())| *service)
    }

    /// Applies a change and returns the number of services that were rebuilt. Changed upstreams stay drafts until
    /// [`Self::finish`].
    pub(super) fn apply(
        &mut self,
        delta: &Delta,
        drafts: &mut Drafts,
        settings: &BuildSettings,
        errors: &mut Vec<BuildError>,
    ) -> usize {
        self.put_upstreams(delta, drafts, settings, errors);
        for (id, edit) in &delta.services {
            self.release(*id, edit, drafts);
        }
        self.infos.reserve(delta.services.len());
        for (id, edit) in &delta.services {
            let enabled = edit.new.as_ref().filter(|service| service.enabled);
            let placed = enabled.map(|service| {
                let placed = self.place(service, &delta.lookup, drafts, settings);
                placed.map(|destination| info(service, destination))
            });
            match placed {
                None => self.leave(*id),
                Some(Ok(info)) => self.enter(info),
                Some(Err(source)) => errors.push(BuildError::Service { id: *id, source }),
            }
        }
        delta.services.len()
    }

    fn put_upstreams(
        &mut self,
        delta: &Delta,
        drafts: &mut Drafts,
        settings: &BuildSettings,
        errors: &mut Vec<BuildError>,
    ) {
        // All old names are removed before new ones are added, because two upstreams may have exchanged their names.
        for (id, parts) in &delta.upstreams {
            if let Some(index) = self.upstreams.get(id).copied() {
                let name = self.upstream(index).name().to_owned();
                self.upstream_names.remove(name.as_str());
                if parts.is_none() {
                    self.upstreams.remove(id);
                    drafts.gone.push(index);
                }
            }
        }
        self.balancers.reserve(delta.upstreams.len());
        for (id, parts) in &delta.upstreams {
            let Some(UpstreamParts { entity, targets }) = parts else {
                continue;
            };
            let (index, mut draft) = match self.upstreams.get(id).copied() {
                Some(index) => (index, Draft::of(self.balancers.get(index.0))),
                None => {
                    let index = UpstreamIndex(self.balancers.claim());
                    self.upstreams.insert(*id, index);
                    (index, Draft::new(entity.clone()))
                }
            };
            self.upstream_names.insert(entity.name.clone(), index);
            draft.settings.entity = entity.clone();
            draft.settings.targets = read_targets(targets);
            draft.settings.probing = match probing(entity, &delta.lookup, &settings.tls) {
                Ok(probing) => probing,
                Err(source) => {
                    errors.push(BuildError::Upstream { id: *id, source });
                    None
                }
            };
            drafts.by_index.insert(index, draft);
        }
    }

    /// Removes a service from the uses of its way and from the tables by host and CA certificate. It runs for all
    /// services before any is rebuilt, so that the new ways can take the indexes of unused ones.
    fn release(&mut self, id: ServiceId, edit: &Edit<Service>, drafts: &mut Drafts) {
        let Some(index) = self.index(id) else {
            return;
        };
        if let Destination::Upstream(upstream, way) = self.infos.get(index.0).destination
            && !drafts.gone.contains(&upstream)
        {
            drafts.of(self, upstream).uses[way as usize] -= 1;
        }
        if let Some(old) = &edit.old {
            self.by_host.remove(&(hash(&old.host), id));
            for authority in old.ca_certificates.iter().flatten() {
                self.by_authority.remove(&(*authority, id));
            }
        }
    }

    fn place(
        &mut self,
        service: &Service,
        lookup: &Lookup,
        drafts: &mut Drafts,
        settings: &BuildSettings,
    ) -> Result<Destination, CertificateError> {
        self.by_host.insert((hash(&service.host), service.id), ());
        for authority in service.ca_certificates.iter().flatten() {
            self.by_authority.insert((*authority, service.id), ());
        }
        let host = &*service.host;
        let Some(index) = self.upstream_names.get(host).copied() else {
            let way = Way::new(service, None, lookup, settings)?;
            return Ok(Destination::Host(way.to(host, service.port, host)));
        };
        let draft = drafts.of(self, index);
        let certificate = draft.settings.entity.client_certificate;
        let way = Way::new(service, certificate, lookup, settings)?;
        Ok(Destination::Upstream(index, draft.use_way(way)))
    }

    fn enter(&mut self, info: ServiceInfo) {
        match self.index(info.id) {
            Some(index) => self.infos.fill(index.0, info),
            None => {
                let id = info.id;
                let index = ServiceIndex(self.infos.insert(info));
                self.by_id.insert(id, index);
            }
        }
    }

    fn leave(&mut self, id: ServiceId) {
        if let Some(ServiceIndex(index)) = self.by_id.remove(&id) {
            self.infos.free(index);
        }
    }

    /// Builds the balancers that changed and returns their number. Unchanged targets keep their state from `previous`.
    pub(super) fn finish(
        &mut self,
        drafts: Drafts,
        previous: Option<&Self>,
        settings: &BuildSettings,
    ) -> usize {
        for UpstreamIndex(index) in drafts.gone {
            self.balancers.free(index);
        }
        let mut made = 0;
        for (UpstreamIndex(index), draft) in drafts.by_index {
            let (draft, uses) = draft.finish();
            let known = previous.and_then(|one| one.upstream_by_id(draft.entity.id));
            let upstream = balance::Upstream::new(draft, &settings.resolver, known);
            let is_new = known.is_none_or(|known| !Arc::ptr_eq(known, &upstream));
            made += usize::from(is_new);
            self.balancers.fill(index, Balancer { upstream, uses });
        }
        made
    }
}

/// The upstreams that a change affects, while they are edited.
#[derive(Default)]
pub(super) struct Drafts {
    by_index: BTreeMap<UpstreamIndex, Draft>,
    gone: Vec<UpstreamIndex>,
}

struct Draft {
    settings: balance::BalancerSettings,
    /// Number of services that use each way.
    uses: Vec<u32>,
}

impl Drafts {
    fn of(&mut self, services: &Services, index: UpstreamIndex) -> &mut Draft {
        let known = self.by_index.entry(index);
        known.or_insert_with(|| Draft::of(services.balancers.get(index.0)))
    }
}

impl Draft {
    fn new(entity: Upstream) -> Self {
        Self {
            settings: balance::BalancerSettings {
                entity,
                targets: Vec::new(),
                ways: Vec::new(),
                probing: None,
            },
            uses: Vec::new(),
        }
    }

    fn of(balancer: &Balancer) -> Self {
        Self {
            settings: balancer.upstream.settings.clone(),
            uses: balancer.uses.to_vec(),
        }
    }

    /// Counts a use of a way and returns its index. Services with equal ways share one. A way keeps its index while it
    /// is used.
    fn use_way(&mut self, way: Way) -> u32 {
        let ways = &mut self.settings.ways;
        let same = ways.iter().position(|known| *known == way);
        let place = same.or_else(|| self.uses.iter().position(|uses| *uses == 0));
        let at = place.unwrap_or(ways.len());
        match ways.get_mut(at) {
            Some(known) => *known = way,
            None => {
                ways.push(way);
                self.uses.push(0);
            }
        }
        self.uses[at] += 1;
        u32::try_from(at).expect("services fit into memory")
    }

    /// Drops or overwrites the ways that are not in use, because they may contain a private key that was deleted.
    fn finish(self) -> (balance::BalancerSettings, Arc<[u32]>) {
        let Self {
            mut settings,
            mut uses,
        } = self;
        let used = uses.iter().rposition(|uses| *uses > 0);
        let length = used.map_or(0, |last| last + 1);
        uses.truncate(length);
        settings.ways.truncate(length);
        if let Some(last) = used {
            for at in (0..last).filter(|at| uses[*at] == 0) {
                settings.ways[at] = settings.ways[last].clone();
            }
        }
        (settings, uses.into())
    }
}

fn info(service: &Service, destination: Destination) -> ServiceInfo {
    ServiceInfo {
        id: service.id,
        name: service.name.as_deref().map(Arc::from),
        protocol: service.protocol,
        path: service.path.as_deref().map(Arc::from),
        destination,
    }
}

fn read_targets(targets: &[Target]) -> Vec<TargetSettings> {
    let read = targets.iter().filter_map(|target| {
        let read = TargetSettings::new(target);
        if read.is_none() {
            let (id, text) = (target.id, &target.target);
            tracing::warn!(%id, "target {text:?} is ignored: it is not a valid address");
        }
        read
    });
    read.collect()
}

/// Returns the settings of active health checks, or `None` if the upstream has none.
fn probing(
    upstream: &Upstream,
    lookup: &Lookup,
    tls: &TlsDefaults,
) -> Result<Option<Probing>, CertificateError> {
    let checks = Checks::new(&upstream.healthchecks).filter(Checks::is_active);
    let Some(checks) = checks else {
        return Ok(None);
    };
    let tls = probe_tls(upstream, lookup, tls)?;
    Ok(Some(Probing::new(upstream, checks.timeout, tls)))
}

fn hash(host: &str) -> u64 {
    let mut hasher = Folding::default();
    hasher.write(host.as_bytes());
    hasher.finish()
}
