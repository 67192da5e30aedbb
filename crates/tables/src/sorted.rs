//! A map in the order of its keys, used to build snapshots.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

/// Maximum number of entries in a segment. A change copies the whole segment.
const MOST: usize = 64;

/// A persistent ordered map. A clone shares everything; a change copies one segment and the list of segments.
#[derive(Debug)]
pub struct Sorted<K, V> {
    /// Segments in order, none of them empty.
    segments: Arc<Vec<Segment<K, V>>>,
    length: usize,
}

type Segment<K, V> = Arc<Vec<(K, V)>>;

/// Position of a key, or where it would be inserted.
#[derive(Debug, Clone, Copy)]
struct Position {
    segment: usize,
    at: usize,
}

impl<K: Ord, V> Sorted<K, V> {
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let Position { segment, at } = self.find(|known| known.borrow().cmp(key)).ok()?;
        Some(&self.segments[segment][at].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let entries = self.segments.iter().flat_map(|segment| segment.iter());
        entries.map(|(key, value)| (key, value))
    }

    /// Returns the entries from the first key that is not less than `key`.
    pub fn starting_at<'s, Q: Ord + ?Sized>(
        &'s self,
        key: &Q,
    ) -> impl Iterator<Item = (&'s K, &'s V)> + use<'s, K, V, Q>
    where
        K: Borrow<Q>,
    {
        let (Ok(place) | Err(place)) = self.find(|known| known.borrow().cmp(key));
        let segments = self.segments[place.segment.min(self.segments.len())..].iter();
        let entries = segments.flat_map(|segment| segment.iter());
        entries.skip(place.at).map(|(key, value)| (key, value))
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn find(&self, compare: impl Fn(&K) -> Ordering) -> Result<Position, Position> {
        let behind = self
            .segments
            .partition_point(|segment| compare(&segment[0].0).is_le());
        let segment = behind.saturating_sub(1);
        let Some(entries) = self.segments.get(segment) else {
            return Err(Position { segment, at: 0 });
        };
        match entries.binary_search_by(|(key, _)| compare(key)) {
            Ok(at) => Ok(Position { segment, at }),
            Err(at) => Err(Position { segment, at }),
        }
    }
}

impl<K: Ord + Clone, V: Clone> Sorted<K, V> {
    /// Sets the value of a key and returns the previous value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(|known| known.cmp(&key)) {
            Ok(place) => Some(std::mem::replace(self.value(place), value)),
            Err(place) => {
                self.add(place, key, value);
                None
            }
        }
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let Position { segment, at } = self.find(|known| known.borrow().cmp(key)).ok()?;
        let segments = Arc::make_mut(&mut self.segments);
        let entries = Arc::make_mut(&mut segments[segment]);
        let (_, value) = entries.remove(at);
        self.length -= 1;
        if entries.is_empty() {
            drop(segments.remove(segment));
        } else {
            merge(segments, segment);
        }
        Some(value)
    }

    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let place = self.find(|known| known.borrow().cmp(key)).ok()?;
        Some(self.value(place))
    }

    fn value(&mut self, place: Position) -> &mut V {
        let segments = Arc::make_mut(&mut self.segments);
        &mut Arc::make_mut(&mut segments[place.segment])[place.at].1
    }

    fn add(&mut self, Position { segment, at }: Position, key: K, value: V) {
        self.length += 1;
        let segments = Arc::make_mut(&mut self.segments);
        let Some(full) = segments.get(segment).map(|entries| entries.len() == MOST) else {
            segments.push(Arc::new(vec![(key, value)]));
            return;
        };
        if full && segment + 1 == segments.len() && at == MOST {
            // A key behind all others begins a new segment, so inserting keys in ascending order leaves full segments.
            segments.push(Arc::new(vec![(key, value)]));
            return;
        }
        let entries = Arc::make_mut(&mut segments[segment]);
        entries.insert(at, (key, value));
        if full {
            let second = entries.split_off(entries.len() / 2);
            segments.insert(segment + 1, Arc::new(second));
        }
    }
}

/// Merges a segment with the next one if it is at most a quarter full and the merged segment is at most half full.
fn merge<K: Clone, V: Clone>(segments: &mut Vec<Segment<K, V>>, segment: usize) {
    let length = |at: usize| segments.get(at).map(|entries| entries.len());
    let (Some(own), Some(next)) = (length(segment), length(segment + 1)) else {
        return;
    };
    if own <= MOST / 4 && own + next <= MOST / 2 {
        let next = segments.remove(segment + 1);
        Arc::make_mut(&mut segments[segment]).extend(next.iter().cloned());
    }
}

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Self {
            segments: Arc::default(),
            length: 0,
        }
    }
}

/// A derived `Clone` would require `K: Clone` and `V: Clone`, although a clone copies no entries.
impl<K, V> Clone for Sorted<K, V> {
    fn clone(&self) -> Self {
        Self {
            segments: self.segments.clone(),
            length: self.length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn assert_same(sorted: &Sorted<u32, u32>, known: &BTreeMap<u32, u32>) {
        assert!(sorted.iter().eq(known));
        assert_eq!(sorted.len(), known.len());
        assert!(
            sorted
                .segments
                .iter()
                .all(|one| !one.is_empty() && one.len() <= MOST)
        );
    }

    #[test]
    fn behaves_as_a_map() {
        let mut random = 7_u32;
        let (mut sorted, mut known) = (Sorted::default(), BTreeMap::new());
        for step in 0..30_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = random >> 20;
            // The map grows first, then shrinks.
            let inserts = random >> 8 & 15 < if step < 15_000 { 10 } else { 4 };
            if inserts {
                assert_eq!(sorted.insert(key, step), known.insert(key, step));
            } else {
                assert_eq!(sorted.remove(&key), known.remove(&key));
            }
            assert_eq!(sorted.get(&(key + 1)), known.get(&(key + 1)));
            if step % 1000 == 0 {
                assert_same(&sorted, &known);
                assert!(sorted.starting_at(&key).eq(known.range(key..)));
            }
        }
        assert_same(&sorted, &known);
        for key in 0..5000 {
            assert_eq!(sorted.remove(&key), known.remove(&key));
        }
        assert!(sorted.is_empty() && sorted.segments.is_empty());
        assert_eq!(sorted.starting_at(&0).count(), 0);
    }

    #[test]
    fn a_change_copies_one_segment_and_leaves_clones_alone() {
        let mut sorted = Sorted::default();
        for key in 0..1000_u32 {
            sorted.insert(key, key);
        }
        assert_eq!(sorted.segments.len(), 1000_usize.div_ceil(MOST));
        let before = sorted.clone();
        *sorted.get_mut(&500).expect("an inserted key") = 0;
        let pairs = before.segments.iter().zip(sorted.segments.iter());
        assert_eq!(pairs.filter(|(one, two)| !Arc::ptr_eq(one, two)).count(), 1);
        assert_eq!((before.get(&500), sorted.get(&500)), (Some(&500), Some(&0)));
    }
}
