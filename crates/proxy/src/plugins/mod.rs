//! Plugins in the data plane: which of them apply to a request ([`Plan`]), the instances of a snapshot, and what runs
//! them ([`Chain`]; for sessions of `stream_listen` and for TLS handshakes [`streams`]). [`publish()`] starts the
//! instances of a snapshot before requests use them.

mod chain;
pub(crate) mod debugging;
mod doing;
mod early_headers;
mod plan;
mod publish;
mod results;
pub mod streams;
mod timing;

pub use chain::{
    Access, Chain, ChainMemory, ClientLeft, Ended, FilterFailed, PollGone, Replaced, SentHead,
};
pub use doing::{Doing, Mark, PhaseMark, RouteMark, Running};
pub use plan::{Plan, Planned, Planner, Plans, RouteScope, ScopeTable, Scoped};
pub use publish::publish;

use plan::Layer;
use plugin::{Handler, Life, Node, Phases, PluginDef};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tables::Slots;

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
    pub plugin: Arc<dyn Handler>,
    pub def: Arc<PluginDef>,
    /// The phases in which `plugin` is called. They differ from those of `def` if the configuration uses only some of
    /// them, or if `plugin` replaces one that is not implemented.
    pub phases: Phases,
    /// Whether it traces requests.
    pub(crate) traces: bool,
    /// Whether the instance was started. Every snapshot with this instance has the same flag.
    started: Arc<AtomicBool>,
    life: Arc<Life>,
}

impl Instance {
    pub fn new(
        plugin: Arc<dyn Handler>,
        def: Arc<PluginDef>,
        phases: Phases,
        life: Arc<Life>,
    ) -> Self {
        let phases = plugin.phases(phases);
        Self {
            traces: plugin.traces(),
            plugin,
            def,
            phases,
            started: Arc::default(),
            life,
        }
    }

    /// Starts the instance if it was not started before.
    pub(crate) fn start(&self, node: &Arc<Node>) {
        // A plugin that panics here is not started again by the next publication, which would panic too.
        if !self.started.swap(true, Ordering::AcqRel) {
            self.plugin.start(node);
        }
    }
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

    /// Returns all instances that the other snapshot does not have, and perhaps others. For two snapshots of which one
    /// comes from the other, this takes time in proportion to the changes.
    fn not_shared_with<'i>(&'i self, other: &'i Self) -> impl Iterator<Item = &'i Instance> {
        self.built.not_shared_with(&other.built)
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
