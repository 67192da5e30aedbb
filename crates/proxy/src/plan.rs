//! Chooses the plugins for a request and runs them. Each route has a plan (a plugin chain), built with the snapshot. A
//! plan has one slot per plugin name, in execution order. It already resolves Kong's precedence of scopes, except for
//! consumers. Their instances are in separate layers, so that they can change without a rebuild of plans.
//! Sources: kong/runloop/plugins_iterator.lua, kong/init.lua execute_collecting_plugins_iterator().

mod build;
mod scope_table;

pub use build::{Planner, Plans};
pub use scope_table::{RouteScope, Scope, ScopeTable, Scoped};

use model::entities::ConsumerId;
use plugin::{
    BodyUse, Chunk, Flow, LogEntry, Phases, Plugin, PluginDef, PluginError, RequestCx, Response,
    ResponseCx, Step,
};
use std::sync::Arc;
use tables::{Slots, Sorted};

/// Index of a plugin instance in the snapshot's [`Instances`]. It is smaller than an `Arc<dyn Plugin>` and needs no
/// reference count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InstanceIndex(pub u32);

/// All plugin instances of a snapshot, and the layers with those of consumers.
#[derive(Clone, Default)]
pub struct Instances {
    built: Slots<Instance>,
    layers: Slots<Layer>,
}

/// A plugin with its configuration.
#[derive(Clone)]
pub struct Instance {
    pub plugin: Arc<dyn Plugin>,
    pub def: &'static PluginDef,
    /// The phases in which `plugin` is called. They differ from those of `def` if `plugin` replaces one that is not
    /// implemented.
    pub phases: Phases,
}

impl Instances {
    pub fn push(&mut self, instance: Instance) -> InstanceIndex {
        InstanceIndex(self.built.insert(instance))
    }

    /// Returns an instance. The index must come from [`Instances::push`] of this snapshot, or of an earlier snapshot
    /// that has the same instance.
    #[inline]
    pub fn get(&self, index: InstanceIndex) -> &Instance {
        self.built.get(index.0)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Instance> {
        self.built.iter().map(|(_, instance)| instance)
    }

    pub fn len(&self) -> usize {
        self.built.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn reserve(&mut self, more: usize) {
        self.built.reserve(more);
    }

    pub(crate) fn free(&mut self, index: InstanceIndex) {
        self.built.free(index.0);
    }
}

/// The plugin chain of a route. Routes with equal plans share one object.
#[derive(Debug)]
pub struct Plan {
    slots: Box<[Slot]>,
    /// The phases of all instances together, so that sessions can skip phases without plugins.
    phases: Phases,
}

/// The instances of one plugin name in a plan.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Slot {
    /// The layers with instances for single consumers, most specific scope first.
    overrides: Option<Box<[LayerIndex]>>,
    /// The instance for all other requests.
    default: Option<InstanceIndex>,
}

/// Index of a layer in [`Instances`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct LayerIndex(u32);

/// The consumer-scoped instances of one plugin in one scope (a route and service, a route, a service, or global). All
/// routes in the scope share the layer. Ten thousand consumers thus need ten thousand entries, however many routes
/// there are.
#[derive(Debug, Clone, Default)]
struct Layer {
    consumers: Sorted<ConsumerId, InstanceIndex>,
}

impl Slot {
    #[inline]
    fn pick(&self, instances: &Instances, consumer: Option<ConsumerId>) -> Option<InstanceIndex> {
        if let (Some(layers), Some(consumer)) = (&self.overrides, consumer) {
            let of_consumer = |layer: &LayerIndex| {
                let layer = instances.layers.get(layer.0);
                layer.consumers.get(&consumer).copied()
            };
            let own = layers.iter().find_map(of_consumer);
            return own.or(self.default);
        }
        self.default
    }
}

/// One plugin of a plan, for reports about the plugins that would run.
#[derive(Clone, Copy)]
pub struct Planned {
    pub def: &'static PluginDef,
    /// The instance for requests without a consumer-specific one.
    pub instance: Option<InstanceIndex>,
    /// Whether it runs for requests without a consumer-specific instance.
    pub for_everyone: bool,
    /// Number of instances for single consumers.
    pub consumers: usize,
}

/// The instances chosen for a request that have phases after `access`. Reused for all requests of a connection.
#[derive(Debug, Default)]
pub struct Picked {
    instances: Vec<InstanceIndex>,
    /// The plugin that responded in the access phase, or failed there.
    answered_by: Option<InstanceIndex>,
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
        let layer = |LayerIndex(layer): &LayerIndex| {
            let consumers = instances.layers.get(*layer).consumers.iter();
            let of_consumer =
                consumers.map(|(consumer, index)| format!("{consumer}: {}", name(*index)));
            of_consumer.collect::<Vec<_>>()
        };
        let slots = self.slots.iter().map(|slot| {
            let overrides = slot.overrides.iter().flatten().map(layer);
            let overrides: Vec<_> = overrides.collect();
            format!("{overrides:?} {:?}", slot.default.map(name))
        });
        let phases = std::iter::once(format!("{:?}", self.phases));
        slots.chain(phases).collect()
    }

    /// Returns the plugins of the plan, in execution order.
    pub fn plugins(&self, instances: &Instances) -> Vec<Planned> {
        let planned = self.slots.iter().filter_map(|slot| {
            let layers = slot.overrides.iter().flatten();
            let layers = || layers.clone().map(|layer| instances.layers.get(layer.0));
            let of_consumers = || {
                let mut all = layers().flat_map(|layer| layer.consumers.iter());
                all.next().map(|(_, index)| *index)
            };
            Some(Planned {
                def: instances.get(slot.default.or_else(of_consumers)?).def,
                instance: slot.default,
                for_everyone: slot.default.is_some(),
                consumers: layers().map(|layer| layer.consumers.len()).sum(),
            })
        });
        planned.collect()
    }

    /// Whether any instance of the plan has one of these phases.
    pub fn has(&self, phases: Phases) -> bool {
        self.phases.intersects(phases)
    }

    /// Runs the access phase of each plugin in order. The consumer known at that moment determines the instance. After
    /// a plugin responds or fails, no further access handler runs. The walk still visits the remaining plugins, because
    /// their later phases run too. The walk pauses before the first plugin that reads the body.
    pub async fn access(
        &self,
        instances: &Instances,
        cx: &mut RequestCx<'_>,
        walk: &mut Walk<'_>,
    ) -> Access {
        for slot in &self.slots[walk.next..] {
            let consumer = cx.consumer.as_ref().map(|consumer| consumer.id);
            let Some(index) = slot.pick(instances, consumer) else {
                walk.next += 1;
                continue;
            };
            let instance = instances.get(index);
            let runs = walk.answer.is_none() && instance.phases.intersects(Phases::ACCESS);
            if runs && !walk.body_asked && instance.plugin.request_body() == BodyUse::Buffered {
                walk.body_asked = true;
                return Access::NeedsBody;
            }
            walk.next += 1;
            if instance.phases.intersects(Phases::LATER) {
                walk.picked.instances.push(index);
            }
            if runs {
                match run_access(&*instance.plugin, cx).await {
                    Ok(Flow::Continue) => {}
                    Ok(Flow::Respond(response)) => walk.end(index, response),
                    Err(error) => {
                        report("access", instance.def, &error);
                        walk.end(index, Response::unexpected_error());
                    }
                }
            }
        }
        Access::Done
    }

    /// Picks the instances without running access, for requests that the gateway refuses before the access phase. Used
    /// with the global plan.
    pub fn pick_defaults(&self, instances: &Instances, picked: &mut Picked) {
        picked.clear();
        let defaults = self.slots.iter().filter_map(|slot| slot.default);
        picked.instances.extend(
            defaults.filter(|index| instances.get(*index).phases.intersects(Phases::LATER)),
        );
    }
}

/// The state of a request's access phase, which may pause until the body is read.
pub struct Walk<'p> {
    picked: &'p mut Picked,
    /// Index of the next slot to process.
    next: usize,
    body_asked: bool,
    answer: Option<Response>,
}

impl<'p> Walk<'p> {
    /// Starts a walk that collects in `picked` the instances with phases after access.
    pub fn new(picked: &'p mut Picked) -> Self {
        picked.clear();
        Self {
            picked,
            next: 0,
            body_asked: false,
            answer: None,
        }
    }

    fn end(&mut self, by: InstanceIndex, response: Response) {
        self.picked.answered_by = Some(by);
        self.answer = Some(response);
    }

    /// Returns the response of a plugin that ended the request.
    #[inline]
    pub fn into_answer(self) -> Option<Response> {
        self.answer
    }
}

/// The reason why [`Plan::access`] has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The next plugin reads the body. The caller reads it into [`RequestCx::body`], unless it must be streamed, and
    /// calls `access` again. Returned at most once per walk.
    NeedsBody,
    /// All plugins were processed. The walk holds the response of a plugin, if there is one.
    Done,
}

async fn run_access(plugin: &dyn Plugin, cx: &mut RequestCx<'_>) -> Result<Flow, PluginError> {
    match plugin.access(cx)? {
        Step::Continue => Ok(Flow::Continue),
        Step::Respond(response) => Ok(Flow::Respond(response)),
        Step::Wait(wait) => wait.await,
    }
}

impl Picked {
    /// Removes the instances of the previous request.
    pub fn clear(&mut self) {
        self.instances.clear();
        self.answered_by = None;
    }

    /// Returns the name of the plugin that responded in the access phase, or failed there.
    pub fn answered_by(&self, instances: &Instances) -> Option<&'static str> {
        self.answered_by.map(|index| instances.get(index).def.name)
    }

    /// Whether no picked plugin has a phase after access.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// Whether a picked plugin reads the bodies of responses.
    pub fn filters_body(&self, instances: &Instances) -> bool {
        self.with(instances, Phases::BODY_FILTER).next().is_some()
    }

    pub fn header_filter(&self, instances: &Instances, cx: &mut ResponseCx<'_>) {
        for instance in self.with(instances, Phases::HEADER_FILTER) {
            if let Err(error) = instance.plugin.header_filter(cx) {
                report("header_filter", instance.def, &error);
            }
        }
    }

    pub fn body_filter(&self, instances: &Instances, cx: &mut ResponseCx<'_>, chunk: &mut Chunk) {
        for instance in self.with(instances, Phases::BODY_FILTER) {
            if let Err(error) = instance.plugin.body_filter(cx, chunk) {
                report("body_filter", instance.def, &error);
            }
        }
    }

    pub fn log(&self, instances: &Instances, entry: &LogEntry<'_>) {
        for instance in self.with(instances, Phases::LOG) {
            instance.plugin.log(entry);
        }
    }

    fn with<'a>(
        &'a self,
        instances: &'a Instances,
        phases: Phases,
    ) -> impl Iterator<Item = &'a Instance> {
        let picked = self.instances.iter().map(|index| instances.get(*index));
        picked.filter(move |instance| instance.phases.intersects(phases))
    }
}

fn report(phase: &'static str, def: &PluginDef, error: &PluginError) {
    let cause = std::error::Error::source(error).map(tracing::field::display);
    tracing::error!(plugin = def.name, phase, cause, "{error}");
}
