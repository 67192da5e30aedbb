//! The instances that are chosen for a request, in the order of the plan.

use super::super::results::report;
use super::super::{Instance, InstanceIndex, Instances, Plan};
use super::ChainMemory;
use model::entities::ConsumerId;
use plugin::{Configured, ConfiguredNames, Phases, PluginError, Response, ScopeSet};

/// An instance that was chosen for a request.
#[derive(Debug, Clone, Copy)]
pub(in crate::plugins) struct Picked {
    pub(super) instance: InstanceIndex,
    /// Position of the plugin in the execution order.
    pub(super) plugin: u16,
    pub(super) scopes: ScopeSet,
    /// The consumer for which the instance is configured, if any.
    pub(super) consumer: Option<ConsumerId>,
}

impl ChainMemory {
    pub(super) fn fail(&mut self, picked: Picked, instance: &Instance, error: &PluginError) {
        report("access", &instance.def, error);
        self.answered_by = Some(picked);
        self.response = Some(Response::unexpected_error());
        self.failed = true;
    }

    /// Chooses the instance of the next plugin that applies.
    #[inline]
    pub(super) fn pick_next<'i>(
        &mut self,
        plan: &Plan,
        instances: &'i Instances,
        phases: &mut Phases,
    ) -> Option<(Picked, &'i Instance)> {
        loop {
            let slot = plan.slots.get(self.next)?;
            self.next += 1;
            let consumer = self.state.consumer.as_ref().map(|consumer| consumer.id);
            let Some(choice) = slot.pick(instances, consumer) else {
                continue;
            };
            let picked = Picked {
                instance: choice.instance,
                plugin: slot.order,
                scopes: choice.scopes,
                consumer: consumer.filter(|_| choice.scopes.contains(ScopeSet::CONSUMER)),
            };
            let instance = instances.get(picked.instance);
            self.push(picked, instance.phases, phases);
            return Some((picked, instance));
        }
    }

    #[inline]
    pub(super) fn push(&mut self, picked: Picked, own: Phases, phases: &mut Phases) {
        if own.intersects(Phases::LATER) {
            *phases = phases.with(own);
            self.picked.push(picked);
        }
    }
}

/// The place of the configured plugin in a context, before the first one is called.
#[inline]
pub(super) fn nobody(names: &dyn ConfiguredNames) -> Configured<'_> {
    Configured {
        scopes: ScopeSet::GLOBAL,
        consumer: None,
        plugin: 0,
        names,
    }
}

impl Picked {
    #[inline]
    pub(in crate::plugins) fn configured<'c>(
        &self,
        names: &'c dyn ConfiguredNames,
    ) -> Configured<'c> {
        Configured {
            scopes: self.scopes,
            consumer: self.consumer,
            plugin: self.plugin,
            names,
        }
    }
}

/// Returns the picked instances with one of these phases.
#[inline]
pub(super) fn with<'a>(
    picked: &'a [Picked],
    instances: &'a Instances,
    phases: Phases,
) -> impl Iterator<Item = (&'a Picked, &'a Instance)> {
    let picked = picked.iter();
    picked
        .map(|picked| (picked, instances.get(picked.instance)))
        .filter(move |(_, instance)| instance.phases.intersects(phases))
}
