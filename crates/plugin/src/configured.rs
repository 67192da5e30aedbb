//! The configured plugin for which a handler is called. Equal configurations share one handler, so a handler learns
//! with each call which of them is meant.

use crate::request::{EntityRef, Request};
use model::entities::{ConsumerId, PluginId, RouteId, ServiceId};
use uuid::Uuid;

/// The scopes for which a configured plugin is set: a subset of route, service and consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ScopeSet(u8);

impl ScopeSet {
    pub const GLOBAL: ScopeSet = ScopeSet(0);
    pub const ROUTE: ScopeSet = ScopeSet(1);
    pub const SERVICE: ScopeSet = ScopeSet(1 << 1);
    pub const CONSUMER: ScopeSet = ScopeSet(1 << 2);

    pub const fn with(self, other: ScopeSet) -> ScopeSet {
        ScopeSet(self.0 | other.0)
    }

    pub const fn contains(self, other: ScopeSet) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The scope of a configured plugin: the ids that it is set for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Scope {
    pub route: Option<RouteId>,
    pub service: Option<ServiceId>,
    pub consumer: Option<ConsumerId>,
}

/// The id and the name of a configured plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfiguredName<'a> {
    pub id: PluginId,
    pub instance_name: Option<&'a str>,
}

/// Finds the configured plugins of a snapshot by their scope. Only few plugins ask, so requests do not carry the ids.
pub trait ConfiguredNames: Send + Sync {
    /// Returns the name of the configured plugin in this scope. `plugin` is the position of the plugin in the execution
    /// order.
    fn configured_name(&self, plugin: u16, scope: Scope) -> Option<ConfiguredName<'_>>;

    /// Whether there is an upstream entity with this name.
    fn has_upstream(&self, _name: &str) -> bool {
        false
    }
}

/// No configured plugin has a name. For tests and measurements.
pub struct NoNames;

impl ConfiguredNames for NoNames {
    fn configured_name(&self, _: u16, _: Scope) -> Option<ConfiguredName<'_>> {
        None
    }
}

/// The configured plugin for which a handler is called.
#[derive(Clone, Copy)]
pub struct Configured<'c> {
    pub scopes: ScopeSet,
    /// The consumer that it is set for, if any. The request's consumer may have changed since it was chosen.
    pub consumer: Option<ConsumerId>,
    /// Position of the plugin in the execution order.
    pub plugin: u16,
    pub names: &'c dyn ConfiguredNames,
}

impl<'c> Configured<'c> {
    /// Returns the ids that the configured plugin is set for. Those of route and service are the request's, because it
    /// was chosen for the request by them.
    #[inline]
    pub fn scope(&self, request: &Request<'_>) -> Scope {
        let id = |set: ScopeSet, entity: Option<EntityRef<'_>>| -> Option<Uuid> {
            let entity = entity.filter(|_| self.scopes.contains(set));
            entity.map(|entity| entity.id)
        };
        Scope {
            route: id(ScopeSet::ROUTE, request.route).map(RouteId),
            service: id(ScopeSet::SERVICE, request.service).map(ServiceId),
            consumer: self.consumer,
        }
    }

    /// Whether there is an upstream entity with this name, to which the plugin may lead the request
    /// ([`crate::TargetEdits::set_upstream`]).
    pub fn has_upstream(&self, name: &str) -> bool {
        self.names.has_upstream(name)
    }

    /// Returns the id and name of the configured plugin, if it is global. Handshakes have no other ones.
    pub fn global_name(&self) -> Option<ConfiguredName<'c>> {
        self.names.configured_name(self.plugin, Scope::default())
    }

    /// Returns the id and name of the configured plugin.
    pub fn name(&self, request: &Request<'_>) -> Option<ConfiguredName<'c>> {
        self.names.configured_name(self.plugin, self.scope(request))
    }
}
