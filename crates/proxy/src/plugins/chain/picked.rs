//! The instances that are chosen for a request, in the order of the plan.

use super::super::plan::{Choice, Slot};
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

    /// Chooses the instance of the next plugin that applies. Always inlined, because a call saves more registers than the
    /// usual case needs.
    #[inline(always)]
    pub(super) fn pick_next<'i>(
        &mut self,
        plan: &Plan,
        instances: &'i Instances,
        phases: &mut Phases,
    ) -> Option<(Picked, &'i Instance)> {
        loop {
            let slot = plan.slots.get(self.next)?;
            self.next += 1;
            let (choice, consumer) = match slot.is_for_consumers() {
                true => self.pick_for_consumer(slot, instances),
                false => (slot.default, None),
            };
            let Some(Choice { instance, scopes }) = choice else {
                continue;
            };
            let picked = Picked {
                instance,
                plugin: slot.order,
                scopes,
                consumer,
            };
            let instance = instances.get(picked.instance);
            self.push(picked, instance.phases, phases);
            return Some((picked, instance));
        }
    }

    /// Returns the instance, and the consumer if it is configured for this one.
    #[inline(never)]
    fn pick_for_consumer(
        &self,
        slot: &Slot,
        instances: &Instances,
    ) -> (Option<Choice>, Option<ConsumerId>) {
        let consumer = self.state.consumer.as_ref().map(|consumer| consumer.id);
        let choice = slot.pick(instances, consumer);
        let is_own = choice.is_some_and(|choice| choice.scopes.contains(ScopeSet::CONSUMER));
        (choice, consumer.filter(|_| is_own))
    }

    #[inline]
    pub(super) fn push(&mut self, picked: Picked, own: Phases, phases: &mut Phases) {
        if own.intersects(Phases::LATER) {
            *phases = phases.with(own);
            self.picked.push(picked);
        }
    }

    /// Forgets the instance, which was chosen last. Returns the phases of the others, which are those `before` it was chosen
    /// if they are known.
    #[inline]
    pub(super) fn leave(
        &mut self,
        instance: &Instance,
        before: Option<Phases>,
        instances: &Instances,
    ) -> Phases {
        if instance.phases.intersects(Phases::LATER) {
            self.picked.pop();
        }
        before.unwrap_or_else(|| self.phases(instances))
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
