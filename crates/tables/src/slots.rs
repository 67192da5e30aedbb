//! A table of values by number. A value keeps its number while it is in the table, so requests can look it up by that
//! number.

use std::sync::Arc;

/// Number of values per segment. A change copies one segment and the list of segments, so neither should be long. For
/// 10,000 values the list has 157 entries.
const SEGMENT: usize = 64;

/// End of the list of free slots.
const NONE: u32 = u32::MAX;

/// A persistent table. A clone shares everything; a change copies one segment and the list of segments.
#[derive(Debug)]
pub struct Slots<T> {
    /// A slice saves one memory access compared with a vector behind a pointer.
    segments: Arc<[Segment<T>]>,
    /// First free slot. Each free slot holds the index of the next one.
    free: u32,
    used: u32,
}

type Segment<T> = Arc<[Slot<T>; SEGMENT]>;

#[derive(Debug, Clone)]
enum Slot<T> {
    Used(T),
    Free { next: u32 },
}

impl<T> Slots<T> {
    /// Returns the value of a number. The number must come from [`Self::insert`], or from [`Self::claim`] followed by
    /// [`Self::fill`], and must not have been freed since. Otherwise the function may panic.
    #[inline(always)]
    pub fn get(&self, index: u32) -> &T {
        let (segment, at) = place(index);
        match &self.segments[segment][at] {
            Slot::Used(value) => value,
            Slot::Free { .. } => unused(index),
        }
    }

    /// Returns the value of a number that may not be used.
    pub fn find(&self, index: u32) -> Option<&T> {
        let (segment, at) = place(index);
        match self.segments.get(segment)?.get(at)? {
            Slot::Used(value) => Some(value),
            Slot::Free { .. } => None,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.segments.iter().flat_map(|segment| segment.iter());
        (0..).zip(slots).filter_map(|(index, slot)| match slot {
            Slot::Used(value) => Some((index, value)),
            Slot::Free { .. } => None,
        })
    }

    /// Returns the values in the segments that this version does not share with another one. They include all values
    /// that the other version does not have at the same number. Comparing the segments costs little, so this takes time
    /// in proportion to the changes between the two.
    pub fn not_shared_with<'t>(&'t self, other: &'t Self) -> impl Iterator<Item = &'t T> {
        let is_shared = |at: usize, own: &Segment<T>| {
            let others = other.segments.get(at);
            others.is_some_and(|segment| Arc::ptr_eq(own, segment))
        };
        let segments = self.segments.iter().enumerate();
        let own = segments.filter(move |(at, segment)| !is_shared(*at, segment));
        let slots = own.flat_map(|(_, segment)| segment.iter());
        slots.filter_map(|slot| match slot {
            Slot::Used(value) => Some(value),
            Slot::Free { .. } => None,
        })
    }

    pub fn len(&self) -> usize {
        self.used as usize
    }

    pub fn is_empty(&self) -> bool {
        self.used == 0
    }
}

impl<T: Clone> Slots<T> {
    /// Makes room for `more` values at once, because growing copies the list of segments.
    pub fn reserve(&mut self, more: usize) {
        let places = self.segments.len() * SEGMENT;
        let missing = (self.len() + more).saturating_sub(places);
        if missing == 0 {
            return;
        }
        let segments = self.segments.len()..self.segments.len() + missing.div_ceil(SEGMENT);
        let mut free = self.free;
        let fresh: Vec<Segment<T>> = segments
            .rev()
            .map(|segment| {
                let first = segment * SEGMENT;
                let last_next = std::mem::replace(&mut free, narrow(first));
                Arc::new(std::array::from_fn(|at| Slot::Free {
                    next: match at + 1 {
                        SEGMENT => last_next,
                        next => narrow(first + next),
                    },
                }))
            })
            .collect();
        let known = self.segments.iter().cloned();
        self.segments = known.chain(fresh.into_iter().rev()).collect();
        self.free = free;
    }

    pub fn insert(&mut self, value: T) -> u32 {
        let index = self.claim();
        self.fill(index, value);
        index
    }

    /// Reserves a number for a value that does not exist yet. Call [`Self::fill`] before reading it.
    pub fn claim(&mut self) -> u32 {
        if self.free == NONE {
            self.reserve(1);
        }
        let index = self.free;
        match self.slot(index) {
            Slot::Free { next } => self.free = std::mem::replace(next, NONE),
            Slot::Used(_) => unreachable!("the list of free places names only such"),
        }
        self.used += 1;
        index
    }

    /// Sets or replaces the value of a number in use.
    pub fn fill(&mut self, index: u32, value: T) {
        *self.slot(index) = Slot::Used(value);
    }

    /// Removes a value. A later value can get its number.
    pub fn free(&mut self, index: u32) {
        let next = self.free;
        *self.slot(index) = Slot::Free { next };
        self.free = index;
        self.used -= 1;
    }

    pub fn get_mut(&mut self, index: u32) -> &mut T {
        match self.slot(index) {
            Slot::Used(value) => value,
            Slot::Free { .. } => unused(index),
        }
    }

    fn slot(&mut self, index: u32) -> &mut Slot<T> {
        let (segment, at) = place(index);
        let segments = Arc::make_mut(&mut self.segments);
        &mut Arc::make_mut(&mut segments[segment])[at]
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            segments: Arc::new([]),
            free: NONE,
            used: 0,
        }
    }
}

/// A derived `Clone` would require `T: Clone`, although a clone copies no values.
impl<T> Clone for Slots<T> {
    fn clone(&self) -> Self {
        Self {
            segments: self.segments.clone(),
            ..*self
        }
    }
}

#[inline]
fn place(index: u32) -> (usize, usize) {
    (index as usize / SEGMENT, index as usize % SEGMENT)
}

fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 values fit into memory")
}

#[cold]
fn unused(index: u32) -> ! {
    unreachable!("number {index} is of another snapshot")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn numbers_stay_and_are_given_again_when_free() {
        let mut slots = Slots::default();
        slots.reserve(100);
        let numbers: Vec<u32> = (0..200).map(|value| slots.insert(value)).collect();
        assert!(numbers.iter().copied().eq(0..200));
        let before = slots.clone();
        for number in (0..200).step_by(3) {
            slots.free(number);
        }
        *slots.get_mut(1) = 1000;
        let again: Vec<u32> = (0..67).map(|value| slots.insert(2000 + value)).collect();
        assert!(again.iter().all(|number| number % 3 == 0));
        assert_eq!(slots.len(), 200);
        assert_eq!(slots.insert(1), 200);
        assert_eq!(*slots.get(1), 1000);
        // The clone has not changed.
        assert!(before.iter().eq((0..200).zip(&Vec::from_iter(0..200))));
    }

    #[test]
    fn a_change_copies_one_segment() {
        let mut slots = Slots::default();
        for value in 0..1000 {
            slots.insert(Arc::new(value));
        }
        let before = slots.clone();
        slots.fill(500, Arc::new(0));
        let shared = before.segments.iter().zip(slots.segments.iter());
        let copied = shared.filter(|(one, two)| !Arc::ptr_eq(one, two)).count();
        assert_eq!(copied, 1);
    }

    #[test]
    fn versions_name_the_values_that_they_do_not_share() {
        let mut slots = Slots::default();
        for value in 0..1000 {
            slots.insert(value);
        }
        let before = slots.clone();
        slots.fill(500, 5000);
        slots.free(700);
        slots.insert(7000);
        for value in 0..40 {
            slots.insert(value);
        }
        let fresh: Vec<u32> = slots.not_shared_with(&before).copied().collect();
        let gone: Vec<u32> = before.not_shared_with(&slots).copied().collect();
        assert!([5000, 7000, 39].iter().all(|value| fresh.contains(value)));
        assert!([500, 700].iter().all(|value| gone.contains(value)));
        assert!(fresh.len() <= 4 * SEGMENT && gone.len() <= 4 * SEGMENT);
        assert_eq!(slots.not_shared_with(&slots).count(), 0);
        assert_eq!(
            slots.not_shared_with(&Slots::default()).count(),
            slots.len()
        );
    }

    #[test]
    fn behaves_as_a_map() {
        let mut random = 1_u32;
        let mut slots = Slots::default();
        let mut known = BTreeMap::new();
        for step in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let victim = known.keys().copied().nth(random as usize >> 8 & 255);
            match (random >> 28, victim) {
                (0..6, Some(index)) => {
                    slots.free(index);
                    known.remove(&index);
                }
                (6, Some(index)) => {
                    slots.fill(index, step);
                    known.insert(index, step);
                }
                _ => {
                    let index = slots.insert(step);
                    assert_eq!(known.insert(index, step), None);
                }
            }
        }
        assert!(
            slots
                .iter()
                .eq(known.iter().map(|(index, value)| (*index, value)))
        );
        assert_eq!(slots.len(), known.len());
    }
}
