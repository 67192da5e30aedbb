//! The candidates of a router and the index that finds them. A changed copy shares all data with the original except
//! the positions that the change affects.

use crate::Flavor;
use crate::candidate::{Candidate, Catalog, Memo, Regexes, RouteIndex};
use crate::index::{Found, Index};
use crate::work::{TooCostly, Work};
use expr::Fields;
use smallvec::SmallVec;
use tables::{Map, Slots};

#[derive(Clone)]
pub(crate) struct Table {
    flavor: Flavor,
    slots: Slots<Candidate>,
    of_route: Map<RouteIndex, SmallVec<[u32; 2]>>,
    index: Index,
    regexes: Regexes,
}

impl Table {
    pub(crate) fn new(flavor: Flavor) -> Self {
        Self {
            flavor,
            slots: Slots::default(),
            of_route: Map::default(),
            index: Index::default(),
            regexes: Regexes::default(),
        }
    }

    /// The regexes of all candidates.
    pub(crate) fn regexes(&self) -> &Regexes {
        &self.regexes
    }

    /// Adds candidates. This is fastest if they are in order.
    pub(crate) fn add(&mut self, candidates: impl ExactSizeIterator<Item = Candidate>) {
        self.slots.reserve(candidates.len());
        let memo = Memo::default();
        for candidate in candidates {
            self.regexes.keep(&candidate.expression);
            let (rank, expression) = (candidate.place.rank(), candidate.expression.clone());
            let route = candidate.route;
            let slot = self.slots.insert(candidate);
            match self.of_route.get_mut(&route) {
                Some(own) => own.push(slot),
                None => {
                    self.of_route.insert(route, SmallVec::from_slice(&[slot]));
                }
            }
            let catalog = Catalog {
                slots: &self.slots,
                flavor: self.flavor,
                memo: &memo,
            };
            self.index.add((slot, rank, &expression), &catalog);
        }
    }

    /// Removes the candidates of a route.
    pub(crate) fn remove(&mut self, route: RouteIndex) {
        for slot in self.of_route.remove(&route).into_iter().flatten() {
            let candidate = self.slots.get(slot);
            let (rank, expression) = (candidate.place.rank(), candidate.expression.clone());
            let catalog = Catalog {
                slots: &self.slots,
                flavor: self.flavor,
                memo: &Memo::default(),
            };
            self.index.remove((slot, rank, &expression), &catalog);
            self.regexes.release(&expression);
            self.slots.free(slot);
        }
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &Candidate {
        self.slots.get(slot)
    }

    pub(crate) fn of_route(&self, route: RouteIndex) -> impl Iterator<Item = &Candidate> {
        let slots = self.of_route.get(&route).into_iter().flatten();
        slots.map(|&slot| self.get(slot))
    }

    /// Returns all candidates in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Candidate)> {
        self.slots.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns all candidates in the order they are tried.
    pub(crate) fn in_order(&self) -> Vec<(u32, &Candidate)> {
        let mut all: Vec<_> = self.slots.iter().collect();
        all.sort_by(|(_, left), (_, right)| left.cmp_place(right));
        all
    }

    /// Returns the first candidate that matches.
    #[inline]
    pub(crate) fn find(
        &self,
        fields: &impl Fields,
        work: &mut Work,
    ) -> Result<Option<Found>, TooCostly> {
        self.index.find(fields, &self.slots, work)
    }

    /// Returns the candidates that the index finds for a request, in the order they are tried. No other candidate can
    /// match it.
    pub(crate) fn reachable(
        &self,
        fields: &impl Fields,
        work: &mut Work,
    ) -> Vec<(u32, &Candidate)> {
        let mut found = Vec::new();
        self.index.reach(fields, work, &mut |slot| found.push(slot));
        found.sort_unstable();
        found.dedup();
        let mut found: Vec<_> = found.iter().map(|&slot| (slot, self.get(slot))).collect();
        found.sort_by(|(_, left), (_, right)| left.cmp_place(right));
        found
    }
}
