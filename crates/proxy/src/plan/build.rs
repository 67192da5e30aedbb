//! Makes the plans of a snapshot from the scopes of its plugin instances.
//!
//! The precedence, most specific first: route + service + consumer, route + consumer, service + consumer, route + service,
//! consumer, route, service, global. Instances are kept by place (route and service), so that a route's plan costs what
//! applies to it and not what is configured.

use super::{InstanceIndex, Instances, Layer, Plan, PlanPhases, Slot};
use model::entities::{ConsumerId, RouteId, ServiceId};
use model::hashing::{FastMap, Folding};
use plugin::{BodyUse, Phases};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

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

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    route: Option<RouteId>,
    service: Option<ServiceId>,
}

/// What one plugin has configured at one place.
struct Entry {
    order: u16,
    default: Option<InstanceIndex>,
    layer: Option<Arc<Layer>>,
}

/// The instances of a snapshot by what they are configured for.
#[derive(Default)]
pub struct Places(FastMap<Place, Box<[Entry]>>);

impl Places {
    /// Scopes that a plugin refuses must have been left out.
    pub fn new(instances: &Instances, scoped: impl IntoIterator<Item = Scoped>) -> Self {
        let mut by_place: FastMap<Place, Vec<Scoped>> = FastMap::default();
        for one in scoped {
            let Scope { route, service, .. } = one.scope;
            by_place
                .entry(Place { route, service })
                .or_default()
                .push(one);
        }
        let places = by_place.into_iter();
        Self(
            places
                .map(|(place, scoped)| (place, entries(instances, scoped)))
                .collect(),
        )
    }

    /// Sorted by order.
    fn at(&self, route: Option<RouteId>, service: Option<ServiceId>) -> &[Entry] {
        let entries = self.0.get(&Place { route, service });
        entries.map_or(&[], |entries| entries)
    }
}

/// Makes plans; equal ones are the same object.
pub struct Planner<'a> {
    instances: &'a Instances,
    places: &'a Places,
    /// By the hash of their slots. Of two plans with one hash the later one is not shared.
    plans: FastMap<u64, Arc<Plan>>,
    /// Memory for the slots of a plan.
    slots: Vec<Slot>,
}

impl<'a> Planner<'a> {
    pub fn new(instances: &'a Instances, places: &'a Places) -> Self {
        Self {
            instances,
            places,
            plans: FastMap::default(),
            slots: Vec::new(),
        }
    }

    /// Plans that were made of the same instances and places: equal ones will be the same objects as these.
    pub fn know<'p>(&mut self, plans: impl IntoIterator<Item = &'p Arc<Plan>>) {
        let mut last = None;
        for plan in plans {
            // Most routes have the plan of their neighbour.
            if last.replace(Arc::as_ptr(plan)) != Some(Arc::as_ptr(plan)) {
                self.plans.insert(hash(&plan.slots), plan.clone());
            }
        }
    }

    /// The plan of requests that match no route.
    pub fn globals(&mut self) -> Arc<Plan> {
        self.plan(None, None)
    }

    /// The plan of a route.
    pub fn plan(&mut self, route: Option<RouteId>, service: Option<ServiceId>) -> Arc<Plan> {
        let at = |route, service| self.places.at(route, service);
        let no_route = route.is_none();
        let no_service = service.is_none();
        let mut cursor = Cursor([
            if no_route || no_service {
                &[]
            } else {
                at(route, service)
            },
            if no_route { &[] } else { at(route, None) },
            if no_service { &[] } else { at(None, service) },
            at(None, None),
        ]);
        self.slots.clear();
        while let Some(entries) = cursor.next() {
            self.slots.extend(resolve(entries));
        }
        self.share()
    }

    /// The plan of the collected slots.
    fn share(&mut self) -> Arc<Plan> {
        let hash = hash(&self.slots);
        if let Some(plan) = self.plans.get(&hash)
            && *plan.slots == *self.slots
        {
            return plan.clone();
        }
        let mut phases = PlanPhases::NONE;
        for slot in &self.slots {
            phases.join(slot.phases(self.instances));
        }
        let plan = Arc::new(Plan {
            slots: self.slots.drain(..).collect(),
            phases,
        });
        self.plans.insert(hash, plan.clone());
        plan
    }
}

fn hash(slots: &[Slot]) -> u64 {
    let mut hasher = Folding::default();
    slots.hash(&mut hasher);
    hasher.finish()
}

/// Walks four lists sorted by order together: route + service, route, service, anywhere.
struct Cursor<'e>([&'e [Entry]; 4]);

impl<'e> Cursor<'e> {
    /// The entries of the next plugin in the order.
    fn next(&mut self) -> Option<[Option<&'e Entry>; 4]> {
        let heads = self.0.iter().filter_map(|list| list.first());
        let order = heads.map(|entry| entry.order).min()?;
        Some(self.0.each_mut().map(|list| {
            let (first, rest) = list
                .split_first()
                .filter(|(first, _)| first.order == order)?;
            *list = rest;
            Some(first)
        }))
    }
}

fn resolve([both, route, service, anywhere]: [Option<&Entry>; 4]) -> Option<Slot> {
    let default = |entry: Option<&Entry>| entry.and_then(|entry| entry.default);
    let layer = |entry: Option<&Entry>| entry.and_then(|entry| entry.layer.clone());
    let for_both = default(both);
    // A consumer's own instance comes after that of route and service.
    let for_consumer = anywhere.filter(|_| for_both.is_none());
    let layers = [both, route, service, for_consumer].map(layer);
    let overrides = layers.iter().any(Option::is_some);
    let overrides = overrides.then(|| layers.into_iter().flatten().collect());
    let default = for_both
        .or(default(route))
        .or(default(service))
        .or(default(anywhere));
    (default.is_some() || overrides.is_some()).then_some(Slot { overrides, default })
}

fn entries(instances: &Instances, mut scoped: Vec<Scoped>) -> Box<[Entry]> {
    scoped.sort_by_key(|one| (one.order, one.scope.consumer));
    scoped
        .chunk_by(|one, two| one.order == two.order)
        .map(|same| Entry {
            order: same[0].order,
            default: same
                .iter()
                .find(|one| one.scope.consumer.is_none())
                .map(|one| one.instance),
            layer: Layer::new(instances, same).map(Arc::new),
        })
        .collect()
}

impl Layer {
    /// Of instances sorted by consumer; those without one are left out.
    fn new(instances: &Instances, scoped: &[Scoped]) -> Option<Self> {
        let consumers: Box<[_]> = scoped
            .iter()
            .filter_map(|one| Some((one.scope.consumer?, one.instance)))
            .collect();
        let mut phases = PlanPhases::NONE;
        for (_, index) in &consumers {
            phases.join(PlanPhases::of(instances, *index));
        }
        (!consumers.is_empty()).then_some(Self { consumers, phases })
    }
}

impl Slot {
    fn phases(&self, instances: &Instances) -> PlanPhases {
        let mut phases = match self.default {
            Some(index) => PlanPhases::of(instances, index),
            None => PlanPhases::NONE,
        };
        for layer in self.overrides.iter().flatten() {
            phases.join(layer.phases);
        }
        phases
    }
}

impl PlanPhases {
    const NONE: PlanPhases = PlanPhases {
        phases: Phases::NONE,
        body: BodyUse::Stream,
    };

    fn of(instances: &Instances, index: InstanceIndex) -> Self {
        let instance = instances.get(index);
        Self {
            phases: instance.def.phases,
            body: instance.plugin.request_body(),
        }
    }

    fn join(&mut self, other: Self) {
        self.phases = self.phases | other.phases;
        self.body = self.body.max(other.body);
    }
}
