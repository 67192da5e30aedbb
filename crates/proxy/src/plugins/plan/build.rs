//! Builds the plans of routes from the plugins configured in each scope.
//!
//! Scopes in order of precedence: route + service + consumer, route + consumer, service + consumer, route + service,
//! consumer, route, service, global.

use super::scope_table::Entry;
use super::{Choice, Instances, LayerIndex, Plan, ScopeTable, Slot};
use model::entities::{RouteId, ServiceId};
use model::hashing::Folding;
use plugin::{Phases, ScopeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use tables::Sorted;

/// The plans in use. Routes with equal plans share one object.
#[derive(Clone, Default)]
pub struct Plans(Sorted<u64, SharedPlan>);

/// A shared plan and its number of uses. If two plans have the same hash, the later one is not shared.
#[derive(Clone)]
struct SharedPlan {
    plan: Arc<Plan>,
    uses: u32,
}

impl Plans {
    /// Number of different plans.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ends one use of a plan. If instances were replaced, call this before building new plans: plans identify
    /// instances by their numbers, which are reused.
    pub fn release(&mut self, plan: &Arc<Plan>) {
        let hash = hash(&plan.slots);
        let Some(known) = self.0.get_mut(&hash) else {
            return;
        };
        if Arc::ptr_eq(&known.plan, plan) {
            known.uses -= 1;
            if known.uses == 0 {
                self.0.remove(&hash);
            }
        }
    }
}

/// Builds plans.
pub struct Planner<'a> {
    instances: &'a Instances,
    places: &'a ScopeTable,
    plans: &'a mut Plans,
    /// Buffer for the slots of a plan, reused.
    slots: Vec<Slot>,
}

impl<'a> Planner<'a> {
    pub fn new(instances: &'a Instances, places: &'a ScopeTable, plans: &'a mut Plans) -> Self {
        Self {
            instances,
            places,
            plans,
            slots: Vec::new(),
        }
    }

    /// Returns the plan for requests that match no route.
    pub fn globals(&mut self) -> Arc<Plan> {
        self.plan(None, None)
    }

    /// Returns the plan of a route with this service.
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

    /// Returns the shared plan with the collected slots, or a new one.
    fn share(&mut self) -> Arc<Plan> {
        let hash = hash(&self.slots);
        let known = self.plans.0.get_mut(&hash);
        let is_known = known.is_some();
        if let Some(known) = known
            && *known.plan.slots == *self.slots
        {
            known.uses += 1;
            return known.plan.clone();
        }
        let phases = self.slots.iter().map(|slot| slot.phases(self.instances));
        let phases = phases.fold(Phases::NONE, Phases::with);
        let tracer = self.slots.iter().find_map(|slot| {
            let instance = slot.default?.instance;
            let traces = self.instances.get(instance).traces;
            traces.then_some(instance)
        });
        let plan = Arc::new(Plan {
            tracer,
            slots: self.slots.drain(..).collect(),
            phases,
        });
        if !is_known {
            let plan = plan.clone();
            self.plans.0.insert(hash, SharedPlan { plan, uses: 1 });
        }
        plan
    }
}

fn hash(slots: &[Slot]) -> u64 {
    let mut hasher = Folding::default();
    slots.hash(&mut hasher);
    hasher.finish()
}

/// Merges four lists sorted by execution order: route + service, route, service, global.
struct Cursor<'e>([&'e [Entry]; 4]);

impl<'e> Cursor<'e> {
    /// Returns the entries of the next plugin.
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

fn resolve(entries: [Option<&Entry>; 4]) -> Option<Slot> {
    const SCOPES: [ScopeSet; 4] = [
        ScopeSet::ROUTE.with(ScopeSet::SERVICE),
        ScopeSet::ROUTE,
        ScopeSet::SERVICE,
        ScopeSet::GLOBAL,
    ];
    let order = entries.iter().flatten().next()?.order;
    let has_both = entries[0].is_some_and(|entry| entry.default.is_some());
    let scoped = || entries.iter().zip(SCOPES);
    let layers = scoped().filter_map(|(entry, scopes)| {
        // An instance for route + service takes precedence over one for the consumer alone.
        let entry = entry.filter(|_| scopes != ScopeSet::GLOBAL || !has_both);
        Some((entry?.layer?, scopes))
    });
    let layers: Box<[(LayerIndex, ScopeSet)]> = layers.collect();
    let overrides = (!layers.is_empty()).then_some(layers);
    let default = scoped().find_map(|(entry, scopes)| {
        let instance = (*entry)?.default?;
        Some(Choice { instance, scopes })
    });
    (default.is_some() || overrides.is_some()).then_some(Slot {
        order,
        overrides,
        default,
    })
}

impl Slot {
    fn phases(&self, instances: &Instances) -> Phases {
        let default = self.default.iter();
        let default = default.map(|choice| instances.get(choice.instance).phases);
        let layers = self.overrides.iter().flatten();
        let layers =
            layers.map(|(LayerIndex(layer), _)| instances.layers.get(*layer).phases(instances));
        default.chain(layers).fold(Phases::NONE, Phases::with)
    }
}
