//! Compiles a configuration. Every problem is found before any is reported.

use super::plugins::{Inert, Loader};
use super::streams::Streams;
use super::{Changed, Destination, Part, Rebuilds, RouteInfo, ServiceIndex, ServiceInfo, Snapshot};
use crate::balance::{self, TargetSettings};
use crate::health::{Checks, Probing};
use crate::plan::{Instances, Places, Plan, Planner};
use crate::upstream::{CertificateLookup, Target, TlsDefaults, Way, probe_tls};
use model::EntityKind;
use model::entities::{
    CaCertificate, CaCertificateId, Certificate, CertificateId, Config, PluginId, Route, Service,
    ServiceId, Upstream, UpstreamId,
};
use model::hashing::FastMap;
use net::dns::Resolver;
use net::tls::{CertificateError, Certificates, SniTable};
use plugin::{Node, PluginDef};
use router::{RouteError, RouteIndex, Router};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// What a snapshot depends on besides the configuration.
#[derive(Clone, Default)]
pub struct BuildSettings {
    /// In execution order.
    pub plugins: &'static [&'static PluginDef],
    pub router: router::Options,
    /// For TLS with upstreams.
    pub tls: TlsDefaults,
    /// `nginx_proxy_proxy_http_version` is 2: services of http and https are spoken to over HTTP/2.
    pub upstream_http2: bool,
    /// For clients that name no host, or one without a certificate.
    pub default_certificate: Option<Arc<Certificates>>,
    pub node: Node,
    /// Of the names of hosts and targets.
    pub resolver: Resolver,
    /// Counts what is built.
    pub rebuilds: Arc<Rebuilds>,
}

/// A configuration that was accepted as valid and still cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("certificate {}: {source}", id.0)]
    Certificate {
        id: CertificateId,
        source: CertificateError,
    },
    #[error("service {id}: TLS with its upstream: {source}")]
    Service {
        id: ServiceId,
        source: CertificateError,
    },
    #[error("upstream {id}: TLS of its health checks: {source}")]
    Upstream {
        id: UpstreamId,
        source: CertificateError,
    },
    #[error("plugin {name} ({id}): {source}")]
    Plugin {
        id: PluginId,
        name: String,
        source: plugin::BuildError,
    },
    #[error("plugin {name} ({id}) is not known")]
    UnknownPlugin { id: PluginId, name: String },
}

/// Everything that is wrong with a configuration.
#[derive(Debug)]
pub struct BuildErrors(pub Vec<BuildError>);

impl fmt::Display for BuildErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(formatter, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for BuildErrors {}

impl Snapshot {
    /// Compiles a whole configuration. What did not change since `previous` and has state lives on.
    pub fn build(
        config: Config,
        revision: u64,
        previous: Option<&Snapshot>,
        settings: &BuildSettings,
    ) -> Result<Self, BuildErrors> {
        Self::compile(config, revision, previous, Changed::EVERYTHING, settings)
    }

    /// The next snapshot under the same settings. The configuration need only have the kinds that
    /// [`Changed::needs`]; entities come in the same order each time.
    pub fn update(
        &self,
        config: Config,
        revision: u64,
        changed: Changed,
        settings: &BuildSettings,
    ) -> Result<Self, BuildErrors> {
        Self::compile(config, revision, Some(self), changed, settings)
    }

    fn compile(
        config: Config,
        revision: u64,
        previous: Option<&Snapshot>,
        changed: Changed,
        settings: &BuildSettings,
    ) -> Result<Self, BuildErrors> {
        let unless = |changed: bool| previous.filter(|_| !changed);
        let rebuilds = &*settings.rebuilds;
        let mut errors = Vec::new();
        let certificates = match unless(changed.snis()) {
            Some(previous) => previous.certificates.clone(),
            None => rebuilds.time(Part::Certificates, || {
                Arc::new(sni_table(&config, settings, &mut errors))
            }),
        };
        let services = match unless(changed.services()) {
            Some(previous) => previous.services.clone(),
            None => rebuilds.time(Part::Services, || {
                Arc::new(Services::build(&config, settings, previous, &mut errors))
            }),
        };
        let plugins = match unless(changed.plugins()) {
            Some(previous) => PluginParts::of(previous),
            None => rebuilds.time(Part::Plugins, || {
                PluginParts::load(&config, settings, previous, &mut errors)
            }),
        };
        if !errors.is_empty() {
            return Err(BuildErrors(errors));
        }
        let routes = match unless(changed.needs(EntityKind::Routes)) {
            Some(previous) => RouteParts::of(previous),
            None => {
                let before = Before {
                    snapshot: previous,
                    has_same_routes: !changed.routes(),
                };
                RouteParts::compile(&config, &services, &plugins, settings, before)
            }
        };
        let streams = match unless(changed.needs(EntityKind::Routes)) {
            Some(previous) => previous.streams.clone(),
            None => {
                let plugins = changed.plugins().then_some(&*config.plugins);
                let routes = &config.routes;
                Arc::new(Streams::build(
                    routes, plugins, previous, &services, settings,
                ))
            }
        };
        Ok(Self {
            revision,
            router: routes.router,
            routes: routes.infos,
            streams,
            services,
            instances: plugins.instances,
            places: plugins.places,
            globals: routes.globals,
            certificates,
            inert: plugins.inert,
        })
    }
}

/// What plugins become.
struct PluginParts {
    instances: Arc<Instances>,
    places: Arc<Places>,
    inert: Arc<[Inert]>,
}

impl PluginParts {
    fn of(previous: &Snapshot) -> Self {
        Self {
            instances: previous.instances.clone(),
            places: previous.places.clone(),
            inert: previous.inert.clone(),
        }
    }

    fn load(
        config: &Config,
        settings: &BuildSettings,
        previous: Option<&Snapshot>,
        errors: &mut Vec<BuildError>,
    ) -> Self {
        let previous = previous.map(|previous| &*previous.instances);
        let mut loader = Loader::new(settings.plugins, &settings.node, previous);
        for plugin in &config.plugins {
            errors.extend(loader.add(plugin).err());
        }
        let loaded = loader.finish();
        Self {
            places: Arc::new(Places::new(&loaded.instances, loaded.scoped)),
            instances: Arc::new(loaded.instances),
            inert: loaded.inert.into(),
        }
    }
}

/// The previous snapshot as the router sees it.
struct Before<'a> {
    snapshot: Option<&'a Snapshot>,
    /// No route has changed, but services may have been switched on or off.
    has_same_routes: bool,
}

/// What routes become.
struct RouteParts {
    router: Arc<Router>,
    infos: Arc<[RouteInfo]>,
    globals: Arc<Plan>,
}

impl RouteParts {
    fn of(previous: &Snapshot) -> Self {
        Self {
            router: previous.router.clone(),
            infos: previous.routes.clone(),
            globals: previous.globals.clone(),
        }
    }

    fn compile(
        config: &Config,
        services: &Services,
        plugins: &PluginParts,
        settings: &BuildSettings,
        before: Before<'_>,
    ) -> Self {
        let routes = config.routes.iter().filter(|route| services.serves(route));
        let routes: Vec<&Route> = routes.collect();
        let (globals, infos) = settings.rebuilds.time(Part::Plans, || {
            let mut planner = Planner::new(&plugins.instances, &plugins.places);
            let infos = routes
                .iter()
                .map(|route| route_info(route, services, &mut planner))
                .collect();
            (planner.globals(), infos)
        });
        let same = |previous: &&Snapshot| {
            let known = previous.routes.iter().map(|info| info.id);
            known.eq(routes.iter().map(|route| route.id))
        };
        let unchanged = before.snapshot.filter(|_| before.has_same_routes);
        let router = match unchanged.filter(same) {
            Some(previous) => previous.router.clone(),
            None => settings.rebuilds.time(Part::Router, || {
                Arc::new(build_router(&routes, settings, before.snapshot))
            }),
        };
        Self {
            router,
            infos,
            globals,
        }
    }
}

/// Routes that cannot be used are left out, as Kong does, but not silently.
fn build_router(
    routes: &[&Route],
    settings: &BuildSettings,
    previous: Option<&Snapshot>,
) -> Router {
    let previous = previous.map(|previous| &*previous.router);
    let indexed = (0..).map(RouteIndex).zip(routes.iter().copied());
    let (router, problems) = Router::build(indexed, settings.router, previous);
    warn_of(&problems);
    router
}

pub(super) fn warn_of(problems: &[RouteError]) {
    for problem in problems {
        tracing::warn!("{problem}; requests will not reach it this way");
    }
}

pub(super) fn route_info(
    route: &Route,
    services: &Services,
    planner: &mut Planner<'_>,
) -> RouteInfo {
    RouteInfo {
        id: route.id,
        name: route.name.as_deref().map(Box::from),
        plan: planner.plan(Some(route.id), route.service),
        service: route
            .service
            .and_then(|id| services.by_id.get(&id).copied()),
        https_redirect_status_code: route.https_redirect_status_code,
        protocols: route.protocols.iter().copied().collect(),
        preserve_host: route.preserve_host,
        request_buffering: route.request_buffering,
        response_buffering: route.response_buffering,
    }
}

/// The enabled services.
#[derive(Debug)]
pub(super) struct Services {
    infos: Vec<ServiceInfo>,
    by_id: FastMap<ServiceId, ServiceIndex>,
    pub(super) upstreams: FastMap<UpstreamId, Arc<balance::Upstream>>,
}

impl Services {
    pub(super) fn get(&self, index: ServiceIndex) -> &ServiceInfo {
        &self.infos[index.0 as usize]
    }

    fn build(
        config: &Config,
        settings: &BuildSettings,
        previous: Option<&Snapshot>,
        errors: &mut Vec<BuildError>,
    ) -> Self {
        let lookup = CertificatesById::new(config);
        let mut drafts = Upstreams::new(config, &lookup, settings, errors);
        let mut placed = Vec::new();
        for service in config.services.iter().filter(|service| service.enabled) {
            match drafts.place(service, &lookup, settings) {
                Ok(place) => placed.push((service, place)),
                Err(source) => errors.push(BuildError::Service {
                    id: service.id,
                    source,
                }),
            }
        }
        let known = previous.map(|previous| &previous.services.upstreams);
        let upstreams = drafts.finish(&settings.resolver, known);
        let mut services = Self {
            infos: Vec::with_capacity(placed.len()),
            by_id: FastMap::default(),
            upstreams: FastMap::default(),
        };
        for (service, place) in placed {
            let index = u32::try_from(services.infos.len()).expect("services fit into memory");
            services.by_id.insert(service.id, ServiceIndex(index));
            services.infos.push(ServiceInfo {
                id: service.id,
                name: service.name.as_deref().map(Box::from),
                protocol: service.protocol,
                path: service.path.as_deref().map(Box::from),
                destination: match place {
                    Placed::Host(target) => Destination::Host(target),
                    Placed::Upstream(number, way) => {
                        Destination::Upstream(upstreams[number].clone(), way)
                    }
                },
            });
        }
        services.upstreams = upstreams.into_iter().map(|one| (one.id(), one)).collect();
        services
    }

    /// Of an enabled service.
    pub(super) fn index(&self, id: ServiceId) -> Option<ServiceIndex> {
        self.by_id.get(&id).copied()
    }

    /// Whether requests can reach the route: over HTTP, and not of a disabled service.
    pub(super) fn serves(&self, route: &Route) -> bool {
        let is_http = route.protocols.iter().any(|protocol| protocol.is_http());
        is_http && route.service.is_none_or(|id| self.by_id.contains_key(&id))
    }
}

/// Upstream entities with their targets, while services are placed.
struct Upstreams<'a> {
    by_name: HashMap<&'a str, usize>,
    drafts: Vec<balance::Settings>,
}

/// Where a service leads: to a host of its own, or to an upstream in one of its ways.
enum Placed {
    Host(Target),
    Upstream(usize, u32),
}

impl<'a> Upstreams<'a> {
    fn new(
        config: &'a Config,
        certificates: &dyn CertificateLookup,
        settings: &BuildSettings,
        errors: &mut Vec<BuildError>,
    ) -> Self {
        let mut targets: FastMap<UpstreamId, Vec<TargetSettings>> = FastMap::default();
        for target in &config.targets {
            match TargetSettings::new(target) {
                Some(settings) => targets.entry(target.upstream).or_default().push(settings),
                None => {
                    let (id, text) = (target.id, &target.target);
                    tracing::warn!(%id, "target {text:?} is no address and is left out");
                }
            }
        }
        let drafts = config.upstreams.iter().map(|entity| balance::Settings {
            entity: entity.clone(),
            targets: targets.remove(&entity.id).unwrap_or_default(),
            ways: Vec::new(),
            probing: match probing(entity, certificates, &settings.tls) {
                Ok(probing) => probing,
                Err(source) => {
                    let id = entity.id;
                    errors.push(BuildError::Upstream { id, source });
                    None
                }
            },
        });
        let names = config.upstreams.iter().map(|upstream| &*upstream.name);
        Self {
            by_name: names.zip(0..).collect(),
            drafts: drafts.collect(),
        }
    }

    fn place(
        &mut self,
        service: &Service,
        certificates: &dyn CertificateLookup,
        settings: &BuildSettings,
    ) -> Result<Placed, CertificateError> {
        let Some(number) = self.by_name.get(&*service.host).copied() else {
            let way = Way::new(service, None, certificates, settings)?;
            let host = &*service.host;
            return Ok(Placed::Host(way.to(host, service.port, host)));
        };
        let draft = &mut self.drafts[number];
        let way = Way::new(
            service,
            draft.entity.client_certificate,
            certificates,
            settings,
        )?;
        let known = draft.ways.iter().position(|known| *known == way);
        let at = known.unwrap_or_else(|| {
            draft.ways.push(way);
            draft.ways.len() - 1
        });
        let at = u32::try_from(at).expect("services fit into memory");
        Ok(Placed::Upstream(number, at))
    }

    /// The upstreams, in the order of the configuration.
    fn finish(
        self,
        resolver: &Resolver,
        previous: Option<&FastMap<UpstreamId, Arc<balance::Upstream>>>,
    ) -> Vec<Arc<balance::Upstream>> {
        let drafts = self.drafts.into_iter();
        let finished = drafts.map(|draft| {
            let previous = previous.and_then(|previous| previous.get(&draft.entity.id));
            balance::Upstream::new(draft, resolver, previous)
        });
        finished.collect()
    }
}

/// None for upstreams that are not probed.
fn probing(
    upstream: &Upstream,
    certificates: &dyn CertificateLookup,
    tls: &TlsDefaults,
) -> Result<Option<Probing>, CertificateError> {
    let checks = Checks::new(&upstream.healthchecks).filter(Checks::is_active);
    let Some(checks) = checks else {
        return Ok(None);
    };
    let tls = probe_tls(upstream, certificates, tls)?;
    Ok(Some(Probing::new(upstream, checks.timeout, tls)))
}

struct CertificatesById<'a> {
    certificates: FastMap<CertificateId, &'a Certificate>,
    authorities: FastMap<CaCertificateId, &'a CaCertificate>,
}

impl<'a> CertificatesById<'a> {
    fn new(config: &'a Config) -> Self {
        let certificates = config.certificates.iter();
        let authorities = config.ca_certificates.iter();
        Self {
            certificates: certificates.map(|one| (one.id, one)).collect(),
            authorities: authorities.map(|one| (one.id, one)).collect(),
        }
    }
}

impl CertificateLookup for CertificatesById<'_> {
    fn certificate(&self, id: CertificateId) -> Option<&Certificate> {
        self.certificates.get(&id).copied()
    }

    fn ca_certificate(&self, id: CaCertificateId) -> Option<&CaCertificate> {
        self.authorities.get(&id).copied()
    }
}

fn sni_table(config: &Config, settings: &BuildSettings, errors: &mut Vec<BuildError>) -> SniTable {
    let mut pairs = FastMap::default();
    for certificate in &config.certificates {
        match read_certificate(certificate) {
            Ok(pair) => {
                pairs.insert(certificate.id, Arc::new(pair));
            }
            Err(source) => errors.push(BuildError::Certificate {
                id: certificate.id,
                source,
            }),
        }
    }
    let mut table = SniTable::new(settings.default_certificate.clone());
    for sni in &config.snis {
        if let Some(pair) = pairs.get(&sni.certificate) {
            table.insert(&sni.name, pair.clone());
        }
    }
    table
}

fn read_certificate(certificate: &Certificate) -> Result<Certificates, CertificateError> {
    let pair = Certificates::from_pem(&certificate.cert, &certificate.key)?;
    match (&certificate.cert_alt, &certificate.key_alt) {
        (Some(cert), Some(key)) => pair.with_alternative(cert, key),
        _ => Ok(pair),
    }
}
