//! An unordered map, implemented as a hash trie (Bagwell's HAMT). Unlike a hash table, it never moves all entries when
//! it grows. A changed copy shares all branches except those on the path to the key.

use foldhash::fast::FixedState;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// Number of bits of the hash that each level uses.
const BITS: u32 = 5;

/// Number of hash bits used above the last level of branches. Leaves that would share a slot there have equal hashes.
const DEEPEST: u32 = 60;

/// A persistent map. A clone shares everything; a change copies the branches on the path to its key.
#[derive(Debug)]
pub struct Map<K, V> {
    root: Branch<K, V>,
    length: usize,
}

/// A node of the trie. It has one slot for each value of the next five hash bits that occurs among its keys.
#[derive(Debug)]
struct Branch<K, V> {
    /// Has bit `n` set if there is a slot for the value `n`.
    used: u32,
    /// The slots, ordered by these values.
    slots: Arc<[Slot<K, V>]>,
}

#[derive(Debug)]
enum Slot<K, V> {
    Leaf(Arc<Leaf<K, V>>),
    Branch(Branch<K, V>),
    /// Leaves with equal hashes, at the level [`DEEPEST`].
    Collision(Arc<Vec<Arc<Leaf<K, V>>>>),
}

#[derive(Debug, Clone)]
struct Leaf<K, V> {
    hash: u64,
    key: K,
    value: V,
}

fn hash_of<Q: Hash + ?Sized>(key: &Q) -> u64 {
    // A fixed seed is safe: keys come from the configuration, and requests only look them up, so an attacker cannot
    // insert colliding keys.
    FixedState::default().hash_one(key)
}

impl<K: Hash + Eq, V> Map<K, V> {
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.leaf(key).map(|leaf| &leaf.value)
    }

    /// Returns the stored key. It may contain data that the comparison of keys ignores.
    pub fn key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&K>
    where
        K: Borrow<Q>,
    {
        self.leaf(key).map(|leaf| &leaf.key)
    }

    fn leaf<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&Leaf<K, V>>
    where
        K: Borrow<Q>,
    {
        if self.length == 0 {
            return None;
        }
        let hash = hash_of(key);
        let is_key = |leaf: &&Arc<Leaf<K, V>>| leaf.hash == hash && leaf.key.borrow() == key;
        let mut branch = &self.root;
        let mut shift = 0;
        loop {
            match branch.slot(hash >> shift)? {
                Slot::Leaf(leaf) => return is_key(&leaf).then_some(leaf),
                Slot::Collision(leaves) => {
                    return leaves.iter().find(is_key).map(|leaf| &**leaf);
                }
                Slot::Branch(next) => branch = next,
            }
            shift += BITS;
        }
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the entries in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let mut branches = vec![self.root.slots.iter()];
        let mut leaves: &[Arc<Leaf<K, V>>] = &[];
        std::iter::from_fn(move || {
            loop {
                if let Some((leaf, rest)) = leaves.split_first() {
                    leaves = rest;
                    return Some((&leaf.key, &leaf.value));
                }
                let Some(slot) = branches.last_mut()?.next() else {
                    branches.pop();
                    continue;
                };
                match slot {
                    Slot::Leaf(leaf) => return Some((&leaf.key, &leaf.value)),
                    Slot::Branch(branch) => branches.push(branch.slots.iter()),
                    Slot::Collision(list) => leaves = list,
                }
            }
        })
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Map<K, V> {
    /// Sets the value of a key and returns the previous value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(&key) {
            return Some(std::mem::replace(known, value));
        }
        let hash = hash_of(&key);
        let leaf = Arc::new(Leaf { hash, key, value });
        self.root.add(leaf, 0);
        self.length += 1;
        None
    }

    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        // Check first, so that nothing is copied for a missing key.
        self.get(key)?;
        let hash = hash_of(key);
        let mut branch = &mut self.root;
        let mut shift = 0;
        loop {
            match branch.slot_mut(hash >> shift)? {
                Slot::Leaf(leaf) => return Some(&mut Arc::make_mut(leaf).value),
                Slot::Collision(leaves) => {
                    let mut leaves = Arc::make_mut(leaves).iter_mut();
                    let leaf = leaves.find(|leaf| leaf.key.borrow() == key)?;
                    return Some(&mut Arc::make_mut(leaf).value);
                }
                Slot::Branch(next) => branch = next,
            }
            shift += BITS;
        }
    }

    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let value = self.get(key)?.clone();
        self.root.remove(hash_of(key), key, 0);
        self.length -= 1;
        Some(value)
    }
}

impl<K, V> Branch<K, V> {
    fn slot(&self, bits: u64) -> Option<&Slot<K, V>> {
        let bit = bit(bits);
        if self.used & bit == 0 {
            return None;
        }
        self.slots.get(self.place(bit))
    }

    /// Returns the index of a bit's slot. If the slot does not exist, returns the index at which to insert it.
    fn place(&self, bit: u32) -> usize {
        (self.used & (bit - 1)).count_ones() as usize
    }
}

impl<K: Eq + Clone, V: Clone> Branch<K, V> {
    fn slot_mut(&mut self, bits: u64) -> Option<&mut Slot<K, V>> {
        let bit = bit(bits);
        let place = self.place(bit);
        if self.used & bit == 0 {
            return None;
        }
        Arc::make_mut(&mut self.slots).get_mut(place)
    }

    /// Adds a leaf whose key must not be in the map yet.
    fn add(&mut self, leaf: Arc<Leaf<K, V>>, shift: u32) {
        let bit = bit(leaf.hash >> shift);
        let place = self.place(bit);
        if self.used & bit == 0 {
            self.used |= bit;
            let (before, behind) = self.slots.split_at(place);
            let fresh = [Slot::Leaf(leaf)];
            self.slots = before.iter().chain(&fresh).chain(behind).cloned().collect();
            return;
        }
        let slots = Arc::make_mut(&mut self.slots);
        let below = shift + BITS;
        match &mut slots[place] {
            Slot::Branch(branch) => branch.add(leaf, below),
            Slot::Collision(leaves) => Arc::make_mut(leaves).push(leaf),
            Slot::Leaf(known) if below > DEEPEST => {
                slots[place] = Slot::Collision(Arc::new(vec![known.clone(), leaf]));
            }
            Slot::Leaf(known) => {
                let mut branch = Self::default();
                branch.add(known.clone(), below);
                branch.add(leaf, below);
                slots[place] = Slot::Branch(branch);
            }
        }
    }

    /// Removes a key, which must be in the map.
    fn remove<Q: Eq + ?Sized>(&mut self, hash: u64, key: &Q, shift: u32)
    where
        K: Borrow<Q>,
    {
        let bit = bit(hash >> shift);
        let place = self.place(bit);
        let slots = Arc::make_mut(&mut self.slots);
        let is_empty = match &mut slots[place] {
            Slot::Leaf(_) => true,
            Slot::Collision(leaves) => {
                let leaves = Arc::make_mut(leaves);
                leaves.retain(|leaf| leaf.key.borrow() != key);
                leaves.is_empty()
            }
            Slot::Branch(branch) => {
                branch.remove(hash, key, shift + BITS);
                branch.slots.is_empty()
            }
        };
        if is_empty {
            let (before, behind) = self.slots.split_at(place);
            self.slots = before.iter().chain(&behind[1..]).cloned().collect();
            self.used &= !bit;
        }
    }
}

fn bit(bits: u64) -> u32 {
    1 << (bits & 31)
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self {
            root: Branch::default(),
            length: 0,
        }
    }
}

impl<K, V> Default for Branch<K, V> {
    fn default() -> Self {
        Self {
            used: 0,
            slots: Arc::default(),
        }
    }
}

// Derived `Clone` implementations would require `K: Clone` and `V: Clone`, although clones copy no entries.

impl<K, V> Clone for Map<K, V> {
    fn clone(&self) -> Self {
        Self {
            root: self.root.clone(),
            length: self.length,
        }
    }
}

impl<K, V> Clone for Branch<K, V> {
    fn clone(&self) -> Self {
        Self {
            used: self.used,
            slots: self.slots.clone(),
        }
    }
}

impl<K, V> Clone for Slot<K, V> {
    fn clone(&self) -> Self {
        match self {
            Self::Leaf(leaf) => Self::Leaf(leaf.clone()),
            Self::Branch(branch) => Self::Branch(branch.clone()),
            Self::Collision(leaves) => Self::Collision(leaves.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::hash::Hasher;

    /// A key type with only seven different hashes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    struct Colliding(u32);

    impl Hash for Colliding {
        fn hash<H: Hasher>(&self, state: &mut H) {
            (self.0 % 7).hash(state);
        }
    }

    fn check<K: Hash + Ord + Copy + std::fmt::Debug>(key: impl Fn(u32) -> K) {
        let mut random = 7_u32;
        let (mut map, mut known) = (Map::default(), BTreeMap::new());
        let mut before = (map.clone(), known.clone());
        for step in 0..20_000_u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = key(random >> 22);
            // The map grows first, then shrinks.
            if random >> 8 & 15 < if step < 10_000 { 10 } else { 4 } {
                assert_eq!(map.insert(key, step), known.insert(key, step));
            } else {
                assert_eq!(map.remove(&key), known.remove(&key));
            }
            assert_eq!(map.get(&key), known.get(&key));
            assert_eq!(map.len(), known.len());
            if step % 5_000 == 0 {
                let (map_before, known_before) = &before;
                let sorted: BTreeMap<_, _> = map_before.iter().map(|(k, v)| (*k, *v)).collect();
                assert_eq!(sorted, *known_before, "clones do not change");
                before = (map.clone(), known.clone());
            }
        }
        for key in known.keys() {
            assert_eq!(map.remove(key), known.get(key).copied());
        }
        assert!(map.is_empty() && map.iter().next().is_none());
        assert!(map.root.slots.is_empty());
    }

    #[test]
    fn behaves_as_a_map() {
        check(|number| number);
    }

    #[test]
    fn keys_whose_hashes_are_equal_are_told_apart() {
        check(Colliding);
    }

    #[test]
    fn a_change_copies_the_branches_on_its_way() {
        let mut map = Map::default();
        for key in 0..10_000_u32 {
            map.insert(key, Arc::new(key));
        }
        let before = map.clone();
        map.insert(5_000, Arc::new(0));
        let same = |key: &u32| Arc::ptr_eq(before.get(key).unwrap(), map.get(key).unwrap());
        assert!((0..10_000).all(|key| same(&key) == (key != 5_000)));
        let shared = before.root.slots.iter().zip(map.root.slots.iter());
        let copied = shared.filter(|pair| match pair {
            (Slot::Branch(one), Slot::Branch(two)) => !Arc::ptr_eq(&one.slots, &two.slots),
            _ => false,
        });
        assert_eq!(copied.count(), 1);
    }
}
