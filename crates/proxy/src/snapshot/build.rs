//! Compiles configurations into snapshots. A whole configuration is compiled as a change of an empty one. All errors
//! are collected and reported together.

use super::certificates::CertificateTables;
use super::delta::Delta;
use super::plugins::{ChangedPlans, PluginTables};
use super::routes::{Applied, Routes};
use super::services::{Drafts, Services};
use super::streams::Streams;
use super::{Part, Rebuilds, Snapshot};
use crate::upstream::TlsDefaults;
use model::EntityKind;
use model::entities::{CertificateId, Config, PluginId, RouteId, ServiceId, UpstreamId};
use net::dns::Resolver;
use net::tls::{CertificateError, Certificates};
use plugin::{Lack, LuaSettings, NodeIdentity, PluginDef, notice};
use router::{Flavor, RouteError, Router};
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

/// The settings that a snapshot depends on, in addition to the configuration.
#[derive(Clone, Default)]
pub struct BuildSettings {
    /// The enabled plugins, in execution order.
    pub plugins: Vec<Arc<PluginDef>>,
    pub router: router::Options,
    /// TLS settings for connections to upstreams.
    pub tls: TlsDefaults,
    /// Whether `nginx_proxy_proxy_http_version` is 2: requests to http and https services then use HTTP/2.
    pub upstream_http2: bool,
    /// Certificates for clients that send no server name, or one without a certificate.
    pub default_certificate: Option<Arc<Certificates>>,
    pub node: NodeIdentity,
    pub lua: LuaSettings,
    /// Whether the time that each plugin takes is a metric (`plugin_time_metrics`).
    pub times_plugins: bool,
    /// Resolver for the names of hosts and targets.
    pub resolver: Resolver,
    /// Metrics about the parts that are built.
    pub rebuilds: Arc<Rebuilds>,
}

/// The reason why a valid configuration cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("certificate {}: {source}", id.0)]
    Certificate {
        id: CertificateId,
        source: CertificateError,
    },
    #[error(
        "certificate {}: {field} is a vault reference, which is not resolved yet: write the PEM text itself", id.0
    )]
    VaultReference {
        id: CertificateId,
        field: &'static str,
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
    #[error(
        "{name} plugin is in use but not enabled; add it to the setting plugins, or delete it while it is enabled"
    )]
    NotEnabled { name: String },
}

/// All errors of a configuration.
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
    /// Compiles a whole configuration. Parts that have a state, such as plugin instances and the health of targets, are
    /// taken over from `previous` if they have not changed.
    pub fn build(
        config: Config,
        revision: u64,
        previous: Option<&Snapshot>,
        settings: &BuildSettings,
    ) -> Result<Self, BuildErrors> {
        let mut whole = Self::empty(settings);
        whole.revision = revision;
        whole.change(&Delta::whole(config), previous, settings)?;
        Ok(whole)
    }

    /// Returns the next snapshot, given the change that [`Self::read`] returned. The result equals that of
    /// [`Self::build`], but only changed parts are compiled. `settings` must be those of this snapshot.
    pub fn apply(
        &self,
        delta: &Delta,
        revision: u64,
        settings: &BuildSettings,
    ) -> Result<Self, BuildErrors> {
        let mut next = self.clone();
        next.revision = revision;
        next.change(delta, Some(self), settings)?;
        Ok(next)
    }

    fn empty(settings: &BuildSettings) -> Self {
        let (router, _) = Router::build([], settings.router, None);
        let mut plugins = PluginTables::default();
        let globals = plugins.planner().globals();
        Self {
            revision: 0,
            router: Arc::new(router),
            routes: Routes::default(),
            streams: Streams::default(),
            services: Services::new(settings),
            plugins,
            globals,
            certificates: Arc::new(CertificateTables::new(settings)),
        }
    }

    /// Applies a change to all parts, each after the parts that it depends on.
    fn change(
        &mut self,
        delta: &Delta,
        previous: Option<&Snapshot>,
        settings: &BuildSettings,
    ) -> Result<(), BuildErrors> {
        let rebuilds = &*settings.rebuilds;
        let mut errors = Vec::new();
        if !delta.certificates.is_empty() || !delta.snis.is_empty() {
            rebuilds.time(Part::Certificates, || {
                Arc::make_mut(&mut self.certificates).apply(delta, &mut errors)
            });
        }
        let mut drafts = Drafts::default();
        rebuilds.time(Part::Services, || {
            (self.services).apply(delta, &mut drafts, settings, &mut errors)
        });
        let mut changed = ChangedPlans::default();
        rebuilds.time(Part::Plugins, || {
            let previous = previous.map(|previous| &previous.plugins);
            changed = (self.plugins).apply(&delta.plugins, previous, settings, &mut errors);
            delta.plugins.len()
        });
        if !errors.is_empty() {
            return Err(BuildErrors(errors));
        }
        rebuilds.time(Part::Balancers, || {
            let previous = previous.map(|previous| &previous.services);
            self.services.finish(drafts, previous, settings)
        });
        self.change_routes(delta, &changed, previous, settings);
        self.report_unimplemented(delta, settings);
        Ok(())
    }

    /// Logs which of the added plugins are not implemented.
    fn report_unimplemented(&self, delta: &Delta, settings: &BuildSettings) {
        let added = delta.plugins.iter().filter(|edit| edit.adds());
        let added = added.filter_map(|edit| edit.new.as_ref());
        for notice in notice::of(&settings.plugins, added, |kind, id| self.name(kind, id)) {
            let plugin = &*notice.plugin;
            match notice.lack {
                Lack::Feature => tracing::warn!(plugin, "{notice}"),
                Lack::Protection => tracing::error!(plugin, "{notice}"),
            }
        }
    }

    /// Returns the name of a route or service. Entities that are not served, such as disabled services, have none here.
    fn name(&self, kind: EntityKind, id: Uuid) -> Option<String> {
        let name = match kind {
            EntityKind::Routes => self.routes.by_id(RouteId(id))?.name.as_deref(),
            EntityKind::Services => {
                let index = self.services.index(ServiceId(id))?;
                self.services.get(index).as_ref().name
            }
            _ => None,
        };
        name.map(str::to_owned)
    }

    fn change_routes(
        &mut self,
        delta: &Delta,
        changed: &ChangedPlans,
        previous: Option<&Snapshot>,
        settings: &BuildSettings,
    ) {
        let rebuilds = &*settings.rebuilds;
        warn_of_expressions(delta, settings);
        let mut applied = Applied::default();
        rebuilds.time(Part::Plans, || {
            let (services, plugins) = (&self.services, &mut self.plugins);
            let globals = &mut self.globals;
            applied = (self.routes).apply(delta, services, plugins, globals, &changed.of_requests);
            applied.plans
        });
        rebuilds.time(Part::Router, || {
            let base = previous.map_or(&self.router, |previous| &previous.router);
            let made = self.routes.router(delta, &applied, base, settings);
            made.map_or(0, |(router, count)| {
                self.router = Arc::new(router);
                count
            })
        });
        rebuilds.time(Part::Streams, || {
            let (services, plugins) = (&self.services, &self.plugins);
            (self.streams).apply(delta, changed.of_streams, plugins, services, settings)
        });
    }
}

/// Logs a warning for expressions that use deprecated names or are ignored.
fn warn_of_expressions(delta: &Delta, settings: &BuildSettings) {
    let put = delta.routes.iter().filter_map(|(_, route)| route.as_ref());
    for route in put.filter(|route| route.expression.is_some()) {
        match settings.router.flavor {
            Flavor::Expressions if route.uses_former_names() => tracing::warn!(
                "route {}: the field net.port of its expression is deprecated: use net.dst.port",
                route.id
            ),
            Flavor::Expressions => {}
            Flavor::Traditional | Flavor::TraditionalCompatible => tracing::warn!(
                "route {}: its expression is not used, which needs router_flavor = expressions",
                route.id
            ),
        }
    }
}

/// Logs a warning for each unusable route. Such routes are left out, as in Kong, but Kong does not report them.
pub(super) fn warn_of(problems: &[RouteError]) {
    for problem in problems {
        tracing::warn!("{problem}; requests will not reach it this way");
    }
}
