//! Connections by number. The tokens of epoll events contain these numbers. A number becomes free for another
//! connection only after the current batch of events, because a later event in the batch may still refer to the old
//! connection.

pub struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
    /// Numbers that became free in this batch.
    freed: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// Returns the slot that the next `insert` fills.
    pub fn next(&self) -> usize {
        self.free.last().copied().unwrap_or(self.slots.len())
    }

    pub fn insert(&mut self, value: T) {
        match self.free.pop() {
            Some(slot) => self.slots[slot] = Some(value),
            None => self.slots.push(Some(value)),
        }
    }

    pub fn get_mut(&mut self, slot: usize) -> Option<&mut T> {
        self.slots.get_mut(slot)?.as_mut()
    }

    pub fn remove(&mut self, slot: usize) {
        if self.slots.get_mut(slot).and_then(Option::take).is_some() {
            self.freed.push(slot);
        }
    }

    pub fn end_of_batch(&mut self) {
        self.free.append(&mut self.freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_after_the_batch_in_which_it_became_free() {
        let mut slots = Slots::default();
        slots.insert('a');
        slots.insert('b');
        slots.remove(0);
        assert_eq!(slots.next(), 2);
        assert_eq!(slots.get_mut(0), None);
        slots.end_of_batch();
        assert_eq!(slots.next(), 0);
        slots.insert('c');
        assert_eq!(slots.get_mut(0), Some(&mut 'c'));
        assert_eq!(slots.next(), 2);
    }
}
