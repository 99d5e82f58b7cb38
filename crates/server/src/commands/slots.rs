//! The commands that one queue has under way, by slot number. Grows to the queue's size once, then
//! allocates nothing.

/// A bounded slab.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    max: usize,
}

impl<T> Slots<T> {
    /// At most `max` entries; memory is taken as they are first used.
    pub(crate) fn new(max: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), max }
    }

    pub(crate) fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Stores `value`, also beyond the limit: the caller checks [`Slots::is_full`].
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(value);
            return slot;
        }
        let slot = u32::try_from(self.slots.len()).expect("queues have at most 65536 entries");
        self.slots.push(Some(value));
        slot
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// The command of a step of its own way: whoever ends it takes it off every list on which it
    /// waits, so that nothing goes on with it afterwards. Where an answer may come late, or the
    /// slot may be used again, there is [`Slots::get_mut`].
    ///
    /// # Panics
    /// The slot is free.
    #[inline]
    #[track_caller]
    pub(crate) fn expect_mut(&mut self, slot: u32) -> &mut T {
        self.get_mut(slot).expect("a command keeps its slot until it ends")
    }

    /// Takes the command of a step of its own way out, as [`Slots::expect_mut`] gives it.
    ///
    /// # Panics
    /// The slot is free.
    #[inline]
    #[track_caller]
    pub(crate) fn take(&mut self, slot: u32) -> T {
        self.remove(slot).expect("a command keeps its slot until it ends")
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let value = self.slots.get_mut(slot as usize)?.take();
        if value.is_some() {
            self.free.push(slot);
        }
        value
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.slots).filter_map(|(slot, value)| Some((slot, value.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused() {
        let mut slots = Slots::new(2);
        let a = slots.insert('a');
        let b = slots.insert('b');
        assert!(slots.is_full());
        assert_eq!(slots.remove(a), Some('a'));
        assert_eq!(slots.remove(a), None);
        assert_eq!(slots.insert('c'), a);
        assert_eq!(slots.iter().collect::<Vec<_>>(), [(a, &'c'), (b, &'b')]);
    }
}
