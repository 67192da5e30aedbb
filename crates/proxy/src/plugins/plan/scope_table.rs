//! The plugin instances of a snapshot, grouped by their place: the route and service that they are configured for.
//! Within a place, the instances for single consumers are in separate layers. So the cost of building a route's plan
//! depends only on the plugins that apply to the route, not on all configured plugins.

use super::{InstanceIndex, Instances, Layer, LayerIndex};
use model::entities::{ConsumerId, RouteId, ServiceId};
use plugin::{Phases, Scope};
use std::sync::Arc;
use tables::Sorted;

/// An instance with its scope.
#[derive(Debug, Clone, Copy)]
pub struct Scoped {
    /// Position of the plugin in the execution order.
    pub order: u16,
    pub scope: Scope,
    pub instance: InstanceIndex,
}

/// A place: the route and service of a scope, without its consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteScope {
    pub route: Option<RouteId>,
    pub service: Option<ServiceId>,
}

/// The instances of one plugin at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) order: u16,
    /// The instance for all requests without an instance of their consumer.
    pub(super) default: Option<InstanceIndex>,
    /// The instances for single consumers.
    pub(super) layer: Option<LayerIndex>,
}

/// The entries of each place, sorted by execution order. Plans are built from this table.
#[derive(Clone, Default)]
pub struct ScopeTable(Sorted<RouteScope, Arc<[Entry]>>);

/// The addition or removal of an instance.
#[derive(Clone, Copy)]
enum Edit {
    Remove(Scoped),
    Add(Scoped),
}

impl Edit {
    fn scoped(&self) -> &Scoped {
        let (Self::Remove(scoped) | Self::Add(scoped)) = self;
        scoped
    }
}

impl ScopeTable {
    /// Builds the table. Each plugin must support the scopes that it has in `scoped`.
    pub fn new(instances: &mut Instances, scoped: &[Scoped]) -> Self {
        let mut places = Self::default();
        places.edit(instances, &[], scoped);
        places
    }

    /// Removes and adds instances, and returns the places whose plans must be rebuilt. If only the content of an
    /// existing layer of consumers changes, no plan must be rebuilt. The removed instances must still exist in
    /// `instances`.
    pub fn edit(
        &mut self,
        instances: &mut Instances,
        removed: &[Scoped],
        added: &[Scoped],
    ) -> Vec<RouteScope> {
        let removed = removed.iter().copied().map(Edit::Remove);
        let mut edits: Vec<Edit> = removed
            .chain(added.iter().copied().map(Edit::Add))
            .collect();
        // The sort is stable, so removals come before additions. If two instances have the same scope, the first one
        // counts.
        edits.sort_by_key(|edit| {
            let Scoped { order, scope, .. } = edit.scoped();
            (place(scope), *order)
        });
        let mut changed = Vec::new();
        let mut gone = Vec::new();
        for edits in
            edits.chunk_by(|one, two| place(&one.scoped().scope) == place(&two.scoped().scope))
        {
            let place = place(&edits[0].scoped().scope);
            if self.edit_place(instances, place, edits, &mut gone) {
                changed.push(place);
            }
        }
        // Layers are freed last, so that no new layer gets the number of an old one. Plans identify layers by number.
        for layer in gone {
            instances.layers.free(layer);
        }
        changed
    }

    /// Applies the edits of one place and returns whether plans must be rebuilt.
    fn edit_place(
        &mut self,
        instances: &mut Instances,
        place: RouteScope,
        edits: &[Edit],
        gone: &mut Vec<u32>,
    ) -> bool {
        let before = self.0.get(&place).cloned();
        let mut entries = before.as_deref().unwrap_or_default().to_vec();
        for edits in edits.chunk_by(|one, two| one.scoped().order == two.scoped().order) {
            let order = edits[0].scoped().order;
            let at = entries.binary_search_by_key(&order, |entry| entry.order);
            let known = at.map_or(Entry::empty(order), |at| entries[at]);
            let entry = known.edit(instances, edits, gone);
            match (at, entry.is_empty()) {
                (Ok(at), false) => entries[at] = entry,
                (Ok(at), true) => drop(entries.remove(at)),
                (Err(at), false) => entries.insert(at, entry),
                (Err(_), true) => {}
            }
        }
        let changed = before.as_deref().unwrap_or_default() != entries;
        if changed {
            if entries.is_empty() {
                self.0.remove(&place);
            } else {
                self.0.insert(place, entries.into());
            }
        }
        changed
    }

    /// Returns the entries of a place, sorted by execution order.
    pub(super) fn at(&self, route: Option<RouteId>, service: Option<ServiceId>) -> &[Entry] {
        let entries = self.0.get(&RouteScope { route, service });
        entries.map_or(&[], |entries| entries)
    }
}

fn place(scope: &Scope) -> RouteScope {
    let Scope { route, service, .. } = *scope;
    RouteScope { route, service }
}

impl Entry {
    fn empty(order: u16) -> Self {
        Self {
            order,
            default: None,
            layer: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.default.is_none() && self.layer.is_none()
    }

    fn edit(mut self, instances: &mut Instances, edits: &[Edit], gone: &mut Vec<u32>) -> Self {
        let mut layer = None;
        for edit in edits {
            let Scoped {
                scope, instance, ..
            } = *edit.scoped();
            let Some(consumer) = scope.consumer else {
                self.default = match edit {
                    Edit::Remove(_) => self.default.filter(|known| *known != instance),
                    Edit::Add(_) => self.default.or(Some(instance)),
                };
                continue;
            };
            let layer = layer.get_or_insert_with(|| match self.layer {
                Some(LayerIndex(known)) => instances.layers.get(known).clone(),
                None => Layer::default(),
            });
            match edit {
                Edit::Remove(_) => layer.remove(consumer, instance),
                Edit::Add(_) => layer.add(consumer, instance),
            }
        }
        let Some(layer) = layer else {
            return self;
        };
        self.layer = match self.layer {
            Some(LayerIndex(known)) if layer.consumers.is_empty() => {
                gone.push(known);
                None
            }
            Some(LayerIndex(known)) => {
                instances.layers.fill(known, layer);
                Some(LayerIndex(known))
            }
            None if layer.consumers.is_empty() => None,
            None => Some(LayerIndex(instances.layers.insert(layer))),
        };
        self
    }
}

impl Layer {
    fn add(&mut self, consumer: ConsumerId, instance: InstanceIndex) {
        if self.consumers.get(&consumer).is_none() {
            self.consumers.insert(consumer, instance);
        }
    }

    fn remove(&mut self, consumer: ConsumerId, instance: InstanceIndex) {
        if self.consumers.get(&consumer) == Some(&instance) {
            self.consumers.remove(&consumer);
        }
    }

    /// Returns the phases that the instances of a layer may have. They belong to one plugin, and a layer may get
    /// instances that use more of the plugin's phases without a rebuild of plans.
    pub(super) fn phases(&self, instances: &Instances) -> Phases {
        let first = self.consumers.iter().next();
        first.map_or(Phases::NONE, |(_, index)| {
            let instance = instances.get(*index);
            instance.def.phases.with(instance.phases)
        })
    }
}
