//! Which plugins run for a request, and running them. A plan is made per route when the snapshot is built: one slot per
//! plugin name in execution order, with Kong's precedence of scopes resolved as far as it can be without the consumer: what
//! single consumers have is kept apart, so that it can change without the plans.
//! Sources: kong/runloop/plugins_iterator.lua, kong/init.lua execute_collecting_plugins_iterator().

mod build;
mod places;

pub use build::{Planner, Plans};
pub use places::{Place, Places, Scope, Scoped};

use model::entities::ConsumerId;
use plugin::{
    BodyUse, Chunk, Flow, LogEntry, Phases, Plugin, PluginDef, PluginError, RequestCx, Response,
    ResponseCx, Step,
};
use std::sync::Arc;
use tables::{Slots, Sorted};

/// A plugin instance by its place in the snapshot's [`Instances`]: a quarter of an `Arc`, and no count to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InstanceIndex(pub u32);

/// Every built plugin of a snapshot, and what of them single consumers have.
#[derive(Clone, Default)]
pub struct Instances {
    built: Slots<Instance>,
    layers: Slots<Layer>,
}

/// One built plugin.
#[derive(Clone)]
pub struct Instance {
    pub plugin: Arc<dyn Plugin>,
    pub def: &'static PluginDef,
    /// The phases in which `plugin` is called: those of `def`, unless it stands in for a plugin that does not work yet.
    pub phases: Phases,
}

impl Instances {
    pub fn push(&mut self, instance: Instance) -> InstanceIndex {
        InstanceIndex(self.built.insert(instance))
    }

    /// Indexes are made by [`Instances::push`] of the same snapshot, or one before it that had the instance.
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

/// The plugins of a route. Equal plans are one object.
#[derive(Debug)]
pub struct Plan {
    slots: Box<[Slot]>,
    /// The phases of all instances together, so that the session can leave out what nobody needs.
    phases: Phases,
}

/// One plugin name of a plan.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Slot {
    /// Instances that apply to single consumers, most specific scope first.
    overrides: Option<Box<[LayerIndex]>>,
    /// What applies to everyone else.
    default: Option<InstanceIndex>,
}

/// A layer by its place in [`Instances`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct LayerIndex(u32);

/// The consumer-scoped instances of one plugin at one place (a route and service, a route, a service, or anywhere). Shared by
/// the routes it applies to: ten thousand consumers times ten thousand routes stay ten thousand.
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

/// One plugin of a plan, for those who want to know what would run.
#[derive(Clone, Copy)]
pub struct Planned {
    pub def: &'static PluginDef,
    /// Whether it runs for whom nothing else is configured.
    pub for_everyone: bool,
    /// How many consumers have something else.
    pub consumers: usize,
}

/// The instances chosen for a request that have work after `access`. Reused from one request of a connection to the next.
#[derive(Debug, Default)]
pub struct Picked(Vec<InstanceIndex>);

impl Plan {
    /// Whether no plugin applies at all.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// What is in each slot, by the names of instances: for consumers, for everyone else, and what all of it may do.
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

    /// What it has, in execution order.
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

    /// Runs the access phase: each plugin in order, as the instance that applies to the consumer known at its turn. An
    /// answer (also the one for a failing plugin) ends the access handlers but not the walk, so that the later phases run
    /// for the plugins after it too. The walk pauses before the first plugin that looks into the body.
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
                walk.picked.0.push(index);
            }
            if runs {
                match run_access(&*instance.plugin, cx).await {
                    Ok(Flow::Continue) => {}
                    Ok(Flow::Respond(response)) => walk.answer = Some(response),
                    Err(error) => {
                        report("access", instance.def, &error);
                        walk.answer = Some(Response::unexpected_error());
                    }
                }
            }
        }
        Access::Done
    }

    /// Picks without running access, for requests that fail before a route is known: of the plan of global plugins.
    pub fn pick_defaults(&self, instances: &Instances, picked: &mut Picked) {
        picked.0.clear();
        let defaults = self.slots.iter().filter_map(|slot| slot.default);
        picked.0.extend(
            defaults.filter(|index| instances.get(*index).phases.intersects(Phases::LATER)),
        );
    }
}

/// The access phase of a request, which may pause for the body to be read.
pub struct Walk<'p> {
    picked: &'p mut Picked,
    /// The first slot that has not had its turn.
    next: usize,
    body_asked: bool,
    answer: Option<Response>,
}

impl<'p> Walk<'p> {
    /// Collects in `picked` the instances that have work after access.
    pub fn new(picked: &'p mut Picked) -> Self {
        picked.clear();
        Self {
            picked,
            next: 0,
            body_asked: false,
            answer: None,
        }
    }

    /// The answer of a plugin that ended the request.
    #[inline]
    pub fn into_answer(self) -> Option<Response> {
        self.answer
    }
}

/// Why [`Plan::access`] has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The next plugin looks into the body. The caller reads it into [`RequestCx::body`], unless it must stream, and calls
    /// again. A walk asks for it once.
    NeedsBody,
    /// Every plugin had its turn. The walk has the answer, if there is one.
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
    /// Forgets what was chosen, for the next request.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether no picked plugin has a phase after access.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a picked plugin looks at the bodies of answers.
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
        let picked = self.0.iter().map(|index| instances.get(*index));
        picked.filter(move |instance| instance.phases.intersects(phases))
    }
}

fn report(phase: &'static str, def: &PluginDef, error: &PluginError) {
    let cause = std::error::Error::source(error).map(tracing::field::display);
    tracing::error!(plugin = def.name, phase, cause, "{error}");
}
