//! The plan of a route: the plugins that apply to it, built with the snapshot. A plan has one slot per plugin name, in
//! execution order. It already resolves Kong's precedence of scopes, except for consumers. Their instances are in
//! separate layers, so that they can change without a rebuild of plans.
//! Source: kong/runloop/plugins_iterator.lua.

mod build;
mod scope_table;

pub use build::{Planner, Plans};
pub use scope_table::{RouteScope, ScopeTable, Scoped};

use super::{InstanceIndex, Instances};
use model::entities::ConsumerId;
use plugin::{Phases, PluginDef, ScopeSet};
use std::sync::Arc;
use tables::Sorted;

/// The plugin chain of a route. Routes with equal plans share one object.
#[derive(Debug, Default)]
pub struct Plan {
    pub(super) slots: Box<[Slot]>,
    /// The phases of all instances together, so that sessions can skip phases without plugins.
    phases: Phases,
    /// The instance that decides about the spans of a request before the access phase.
    pub(super) tracer: Option<InstanceIndex>,
}

/// The instances of one plugin name in a plan.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    /// Position of the plugin in the execution order.
    pub(super) order: u16,
    /// The layers with instances for single consumers, most specific scope first. The scopes are without the consumer.
    overrides: Option<Box<[(LayerIndex, ScopeSet)]>>,
    /// The instance for all other requests.
    pub(super) default: Option<Choice>,
}

/// An instance, and the scopes for which it is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Choice {
    pub(super) instance: InstanceIndex,
    pub(super) scopes: ScopeSet,
}

/// Index of a layer in [`Instances`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LayerIndex(u32);

/// The consumer-scoped instances of one plugin in one scope (a route and service, a route, a service, or global). All
/// routes in the scope share the layer. Ten thousand consumers thus need ten thousand entries, however many routes
/// there are.
#[derive(Debug, Clone, Default)]
pub(super) struct Layer {
    consumers: Sorted<ConsumerId, InstanceIndex>,
}

impl Slot {
    /// Whether there are instances for single consumers.
    #[inline]
    pub(super) fn is_for_consumers(&self) -> bool {
        self.overrides.is_some()
    }

    #[inline]
    pub(super) fn pick(
        &self,
        instances: &Instances,
        consumer: Option<ConsumerId>,
    ) -> Option<Choice> {
        if let (Some(layers), Some(consumer)) = (&self.overrides, consumer) {
            let of_consumer = |(layer, scopes): &(LayerIndex, ScopeSet)| {
                let layer = instances.layers.get(layer.0);
                let instance = *layer.consumers.get(&consumer)?;
                let scopes = scopes.with(ScopeSet::CONSUMER);
                Some(Choice { instance, scopes })
            };
            let own = layers.iter().find_map(of_consumer);
            return own.or(self.default);
        }
        self.default
    }
}

/// One plugin of a plan, for reports about the plugins that would run.
#[derive(Clone)]
pub struct Planned {
    pub def: Arc<PluginDef>,
    /// The instance for requests without a consumer-specific one.
    pub instance: Option<InstanceIndex>,
    /// Whether it runs for requests without a consumer-specific instance.
    pub for_everyone: bool,
    /// Number of instances for single consumers.
    pub consumers: usize,
}

impl Plan {
    /// Whether no plugin applies at all.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Describes each slot (instances for consumers, then for all others) and the phases of the plan. `name` names
    /// instances.
    pub(crate) fn describe(
        &self,
        instances: &Instances,
        name: &dyn Fn(InstanceIndex) -> String,
    ) -> Vec<String> {
        let layer = |(LayerIndex(layer), _): &(LayerIndex, ScopeSet)| {
            let consumers = instances.layers.get(*layer).consumers.iter();
            let of_consumer =
                consumers.map(|(consumer, index)| format!("{consumer}: {}", name(*index)));
            of_consumer.collect::<Vec<_>>()
        };
        let slots = self.slots.iter().map(|slot| {
            let overrides = slot.overrides.iter().flatten().map(layer);
            let overrides: Vec<_> = overrides.collect();
            let default = slot
                .default
                .map(|choice| (choice.scopes, name(choice.instance)));
            format!("{overrides:?} {default:?}")
        });
        let phases = std::iter::once(format!("{:?}", self.phases));
        slots.chain(phases).collect()
    }

    /// Returns the plugins of the plan, in execution order.
    pub fn plugins(&self, instances: &Instances) -> Vec<Planned> {
        let planned = self.slots.iter().filter_map(|slot| {
            let layers = slot.overrides.iter().flatten();
            let layers = || {
                layers
                    .clone()
                    .map(|(layer, _)| instances.layers.get(layer.0))
            };
            let of_consumers = || {
                let mut all = layers().flat_map(|layer| layer.consumers.iter());
                all.next().map(|(_, index)| *index)
            };
            Some(Planned {
                def: {
                    let default = slot.default.map(|choice| choice.instance);
                    instances.get(default.or_else(of_consumers)?).def.clone()
                },
                instance: slot.default.map(|choice| choice.instance),
                for_everyone: slot.default.is_some(),
                consumers: layers().map(|layer| layer.consumers.len()).sum(),
            })
        });
        planned.collect()
    }

    /// Whether a plugin decides about the spans of a request before the access phase.
    #[inline]
    pub fn is_traced(&self) -> bool {
        self.tracer.is_some()
    }

    /// Whether any instance of the plan has one of these phases.
    #[inline]
    pub fn has(&self, phases: Phases) -> bool {
        self.phases.intersects(phases)
    }
}
