//! Slots of a few sizes in pages for keys: which are free, and when pages are given back.
//!
//! It owns no key: a slot is taken and given back by `kept.rs`, which erases it.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::pages::LockedPages;

/// The alignment of every slot.
pub(crate) const ALIGNMENT: usize = 64;

/// Sizes of slots: of keys and digests, of both schedules of a cipher, and of values of
/// Diffie-Hellman groups. What is larger has pages of its own.
const SIZES: [usize; 4] = [64, 256, 1024, 4096];

/// Bytes that slots are cut from at a time, at least a page.
const PIECE_BYTES: usize = 16 << 10;

/// Words of a bit map: there are at most 256 slots of the smallest size in a piece.
const WORDS: usize = PIECE_BYTES / SIZES[0] / u64::BITS as usize;

/// The slots of this process.
static SLOTS: Mutex<KeySlots> = Mutex::new(KeySlots::new());

/// The slots of this process.
pub(crate) fn slots() -> MutexGuard<'static, KeySlots> {
    // Nothing panics while it is held.
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Slots of all sizes.
pub(crate) struct KeySlots {
    pieces: [Vec<Piece>; SIZES.len()],
    /// Pages with one owner each.
    large: Vec<LockedPages>,
}

/// Pages that are cut into slots of one size.
struct Piece {
    pages: LockedPages,
    count: usize,
    /// A bit for each slot that is taken.
    taken: [u64; WORDS],
}

impl KeySlots {
    pub(crate) const fn new() -> Self {
        Self { pieces: [const { Vec::new() }; SIZES.len()], large: Vec::new() }
    }

    /// Takes memory of at least so many bytes, which are zeros. It belongs to the caller until it
    /// is given back. `None` if there is no memory.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let Some(class) = class(bytes) else {
            let pages = LockedPages::new(bytes)?;
            let first = pages.first();
            self.large.push(pages);
            return Some(first);
        };
        let pieces = &mut self.pieces[class];
        if let Some(slot) = pieces.iter_mut().find_map(|piece| piece.take(SIZES[class])) {
            return Some(slot);
        }
        let pages = LockedPages::new(PIECE_BYTES)?;
        let count = (pages.bytes() / SIZES[class]).min(WORDS * u64::BITS as usize);
        pieces.push(Piece { pages, count, taken: [0; WORDS] });
        pieces.last_mut()?.take(SIZES[class])
    }

    /// Gives back what was taken with so many bytes, and erased since. One empty piece of each
    /// size is kept for the next key; the others go back to the system.
    ///
    /// # Panics
    /// If it was not taken.
    pub(crate) fn give_back(&mut self, slot: NonNull<u8>, bytes: usize) {
        let Some(class) = class(bytes) else {
            let owned = self.large.iter().position(|pages| pages.first() == slot);
            self.large.swap_remove(owned.expect("it was taken, and is given back once"));
            return;
        };
        let pieces = &mut self.pieces[class];
        let found = pieces.iter().enumerate().find_map(|(at, piece)| Some((at, piece.pages.offset_of(slot)?)));
        let (at, offset) = found.expect("it was taken");
        let (word, bit) = place(offset / SIZES[class]);
        let taken = &mut pieces[at].taken[word];
        // One more owner of the same bytes would have another one's key.
        assert!(offset % SIZES[class] == 0 && *taken & bit != 0, "a slot is given back that nobody had");
        *taken &= !bit;
        if pieces[at].is_empty() && pieces.iter().filter(|piece| piece.is_empty()).count() > 1 {
            pieces.swap_remove(at);
        }
    }

    /// Bytes that the system has given for all this.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let pieces = self.pieces.iter().flatten().map(|piece| &piece.pages);
        pieces.chain(&self.large).map(LockedPages::bytes).sum()
    }
}

impl Piece {
    fn take(&mut self, size: usize) -> Option<NonNull<u8>> {
        let free = self.taken.iter().position(|word| *word != u64::MAX)?;
        let slot = free * u64::BITS as usize + self.taken[free].trailing_ones() as usize;
        if slot >= self.count {
            return None;
        }
        let (word, bit) = place(slot);
        self.taken[word] |= bit;
        // SAFETY: the slot is within the pages.
        // JUSTIFICATION: the memory has no slice to index: its slots have several owners.
        Some(unsafe { self.pages.first().add(slot * size) })
    }

    fn is_empty(&self) -> bool {
        self.taken.iter().all(|word| *word == 0)
    }
}

/// The word and the bit of a slot.
fn place(slot: usize) -> (usize, u64) {
    let bits = u64::BITS as usize;
    (slot / bits, 1 << (slot % bits))
}

/// The smallest size with so many bytes.
fn class(bytes: usize) -> Option<usize> {
    SIZES.iter().position(|size| bytes <= *size)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is left when everything was given back.
    const SPARE_BYTES: usize = SIZES.len() * PIECE_BYTES;

    /// Sizes around those of slots.
    fn size() -> impl Strategy<Value = usize> {
        prop_oneof![1..=70_usize, 200..=300_usize, 1000..=1100_usize, 4000..=20_000_usize]
    }

    proptest! {
        /// A size is taken; a number gives back one of those that there are.
        #[test]
        fn slots_never_overlap_and_pages_are_given_back(
            steps in prop::collection::vec(prop_oneof![3 => size(), 2 => Just(0)], 1..300),
            order in any::<usize>(),
        ) {
            let mut slots = KeySlots::new();
            let mut taken: Vec<(NonNull<u8>, usize)> = Vec::new();
            for (at, bytes) in steps.into_iter().enumerate() {
                if bytes > 0 {
                    let slot = slots.take(bytes).unwrap();
                    let first = slot.addr().get();
                    prop_assert_eq!(first % ALIGNMENT, 0);
                    for (other, others) in &taken {
                        let other = other.addr().get();
                        prop_assert!(first + bytes <= other || other + others <= first);
                    }
                    taken.push((slot, bytes));
                } else if !taken.is_empty() {
                    let which = (order >> (at % 32)) % taken.len();
                    let (slot, bytes) = taken.swap_remove(which);
                    slots.give_back(slot, bytes);
                }
            }
            let needed: usize = taken.iter().map(|(_, bytes)| bytes.next_power_of_two().max(4096)).sum();
            prop_assert!(slots.bytes() <= 4 * needed + 5 * SPARE_BYTES, "{} for {needed}", slots.bytes());
            for (slot, bytes) in taken {
                slots.give_back(slot, bytes);
            }
            prop_assert!(slots.bytes() <= SPARE_BYTES, "{} are kept", slots.bytes());
        }
    }

    #[test]
    fn many_small_keys_take_few_pages() {
        let mut slots = KeySlots::new();
        let taken: Vec<_> = (0..4096).map(|_| slots.take(32).unwrap()).collect();
        assert_eq!(slots.bytes(), 4096 * SIZES[0], "one slot each, and nothing beside");
        for slot in taken {
            slots.give_back(slot, 32);
        }
        assert_eq!(slots.bytes(), PIECE_BYTES);
    }

    #[test]
    #[should_panic(expected = "that nobody had")]
    fn a_slot_that_is_given_back_twice_is_noticed() {
        let mut slots = KeySlots::new();
        let _other = slots.take(32).unwrap();
        let slot = slots.take(32).unwrap();
        slots.give_back(slot, 32);
        slots.give_back(slot, 32);
    }
}
