//! The instances of a snapshot by what they are configured for: by place (route and service), so that a route's plan costs
//! what applies to it and not what is configured, and there consumers apart.

use super::{InstanceIndex, Instances, Layer, LayerIndex};
use model::entities::{ConsumerId, RouteId, ServiceId};
use plugin::Phases;
use std::sync::Arc;
use tables::Sorted;

/// What an instance is configured for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scope {
    pub route: Option<RouteId>,
    pub service: Option<ServiceId>,
    pub consumer: Option<ConsumerId>,
}

/// An instance with its scope.
#[derive(Debug, Clone, Copy)]
pub struct Scoped {
    /// Where the plugin stands in the execution order.
    pub order: u16,
    pub scope: Scope,
    pub instance: InstanceIndex,
}

/// Where something applies, whoever the consumer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub route: Option<RouteId>,
    pub service: Option<ServiceId>,
}

/// What one plugin has configured at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) order: u16,
    pub(super) default: Option<InstanceIndex>,
    pub(super) layer: Option<LayerIndex>,
}

/// Entries sorted by order. Plans are made of them.
#[derive(Clone, Default)]
pub struct Places(Sorted<Place, Arc<[Entry]>>);

/// Something that is to be configured, or not any more.
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

impl Places {
    /// Scopes that a plugin refuses must have been left out.
    pub fn new(instances: &mut Instances, scoped: &[Scoped]) -> Self {
        let mut places = Self::default();
        places.edit(instances, &[], scoped);
        places
    }

    /// Takes out what was configured and adds what is. Gives the places whose plans are others now: consumers' instances
    /// change without. What is removed is an instance still.
    pub fn edit(
        &mut self,
        instances: &mut Instances,
        removed: &[Scoped],
        added: &[Scoped],
    ) -> Vec<Place> {
        let removed = removed.iter().copied().map(Edit::Remove);
        let mut edits: Vec<Edit> = removed
            .chain(added.iter().copied().map(Edit::Add))
            .collect();
        // Stable: what is removed goes first, and of two in one place the first one counts.
        edits.sort_by_key(|edit| {
            let Scoped { order, scope, .. } = edit.scoped();
            (scope.place(), *order)
        });
        let mut changed = Vec::new();
        let mut gone = Vec::new();
        for edits in
            edits.chunk_by(|one, two| one.scoped().scope.place() == two.scoped().scope.place())
        {
            let place = edits[0].scoped().scope.place();
            if self.edit_place(instances, place, edits, &mut gone) {
                changed.push(place);
            }
        }
        // At the end: plans tell layers apart by their numbers.
        for layer in gone {
            instances.layers.free(layer);
        }
        changed
    }

    /// Whether plans are others now.
    fn edit_place(
        &mut self,
        instances: &mut Instances,
        place: Place,
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
            match entries.is_empty() {
                true => drop(self.0.remove(&place)),
                false => drop(self.0.insert(place, entries.into())),
            }
        }
        changed
    }

    /// Sorted by order.
    pub(super) fn at(&self, route: Option<RouteId>, service: Option<ServiceId>) -> &[Entry] {
        let entries = self.0.get(&Place { route, service });
        entries.map_or(&[], |entries| entries)
    }
}

impl Scope {
    fn place(&self) -> Place {
        let Self { route, service, .. } = *self;
        Place { route, service }
    }
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

    /// The instances of a layer are one plugin's, so that all have the same phases.
    pub(super) fn phases(&self, instances: &Instances) -> Phases {
        let first = self.consumers.iter().next();
        first.map_or(Phases::NONE, |(_, index)| instances.get(*index).phases)
    }
}
