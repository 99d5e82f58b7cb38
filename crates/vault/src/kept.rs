//! Owners of slots: bytes, and values of other types.
//!
//! Soundness rests on one rule, that of a heap: a slot that was taken belongs to its owner alone,
//! and is given back when that is dropped.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;

use zeroize::{Zeroize as _, Zeroizing};

use crate::slots::{ALIGNMENT, slots};

/// A slot of a size, which is erased when it is dropped.
struct Slot {
    first: NonNull<u8>,
    bytes: usize,
}

impl Slot {
    /// Of so many bytes, which are zeros. Ends the process if there is no memory, as the heap does.
    fn new(bytes: usize) -> Self {
        let taken = slots().take(bytes);
        let first = taken.unwrap_or_else(|| {
            let layout = Layout::from_size_align(bytes, ALIGNMENT).unwrap_or(Layout::new::<u8>());
            handle_alloc_error(layout)
        });
        Self { first, bytes }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // SAFETY: the slot has so many bytes, and its owner has no reference to them any more. They
        // need not have been written as bytes.
        // JUSTIFICATION: a slot has no slice of its own, as a box would.
        let bytes = unsafe { slice::from_raw_parts_mut(self.first.as_ptr().cast::<MaybeUninit<u8>>(), self.bytes) };
        bytes.zeroize();
        slots().give_back(self.first, self.bytes);
    }
}

/// Secret bytes. They are neither swapped nor dumped, where the system can do that, and erased when
/// they are dropped. `Debug` shows how many there are.
pub struct KeptBytes {
    /// `None` if there are no bytes.
    slot: Option<Slot>,
}

// SAFETY: it owns its bytes, as a box of them would.
// JUSTIFICATION: they are behind a pointer, because memory of the heap is swapped and dumped.
unsafe impl Send for KeptBytes {}
// SAFETY: a shared reference gives shared access to the bytes only.
// JUSTIFICATION: as above.
unsafe impl Sync for KeptBytes {}

impl KeptBytes {
    /// Of these, which stay where they are.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let slot = (!bytes.is_empty()).then(|| Slot::new(bytes.len()));
        if let Some(slot) = &slot {
            // SAFETY: the slot is new, nobody else has its address, and it has as many bytes.
            // JUSTIFICATION: as above.
            unsafe { slot.first.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        }
        Self { slot }
    }
}

/// The bytes are erased where they were.
impl From<Vec<u8>> for KeptBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::copy_of(&Zeroizing::new(bytes))
    }
}

impl Clone for KeptBytes {
    fn clone(&self) -> Self {
        Self::copy_of(self)
    }
}

impl Deref for KeptBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.slot.as_ref().map_or(&[], |slot| {
            // SAFETY: all bytes were written when it was made, and are not changed until it is
            // dropped.
            // JUSTIFICATION: as above.
            unsafe { slice::from_raw_parts(slot.first.as_ptr(), slot.bytes) }
        })
    }
}

impl fmt::Debug for KeptBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secret bytes", self.len())
    }
}

/// A value that has a key in it. It is neither swapped nor dumped, where the system can do that.
/// When it is dropped, its memory is erased after the value.
pub struct KeptValue<T> {
    slot: Slot,
    value: PhantomData<T>,
}

// SAFETY: it owns its value, as a box would.
// JUSTIFICATION: it is behind a pointer, because memory of the heap is swapped and dumped.
unsafe impl<T: Send> Send for KeptValue<T> {}
// SAFETY: a shared reference gives a shared reference to the value only.
// JUSTIFICATION: as above.
unsafe impl<T: Sync> Sync for KeptValue<T> {}

impl<T> KeptValue<T> {
    /// Keeps what `make` returns, and erases what that has left on the stack.
    #[must_use]
    pub fn new(make: impl FnOnce() -> T) -> Self {
        const { assert!(align_of::<T>() <= ALIGNMENT && size_of::<T>() > 0, "a slot is made for it") };
        let slot = Slot::new(size_of::<T>());
        crate::with_clean_stack(|| {
            let value = make();
            // SAFETY: the slot is new, nobody else has its address, and it is large and aligned
            // enough. If `make` panics, nothing is in it.
            // JUSTIFICATION: as above.
            unsafe { slot.first.cast::<T>().write(value) };
        });
        Self { slot, value: PhantomData }
    }
}

impl<T> Deref for KeptValue<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value was written when it was made, and is there until it is dropped.
        // JUSTIFICATION: as above.
        unsafe { self.slot.first.cast::<T>().as_ref() }
    }
}

impl<T> Drop for KeptValue<T> {
    fn drop(&mut self) {
        // SAFETY: the value was written when it was made, and is dropped here alone. The slot is
        // erased afterwards.
        // JUSTIFICATION: as above.
        unsafe { self.slot.first.cast::<T>().drop_in_place() };
    }
}

impl<T> fmt::Debug for KeptValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptValue(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_byte_is_formatted() {
        assert_eq!(format!("{:?}", KeptBytes::from(vec![0xab; 32])), "32 secret bytes");
        assert_eq!(format!("{:?}", KeptValue::new(|| 0xab_u8)), "KeptValue(..)");
    }

    #[test]
    fn bytes_are_erased_when_they_are_dropped() {
        let key = KeptBytes::copy_of(&[0x5a; 1000]);
        // Keeps the pages, in which nobody else of this size is.
        let _neighbour = KeptBytes::copy_of(&[1; 1000]);
        let (first, bytes) = key.slot.as_ref().map(|slot| (slot.first, slot.bytes)).unwrap();
        drop(key);
        // SAFETY: the pages are there as long as the neighbour, and slots of this size are taken by
        // no other test.
        // JUSTIFICATION: what was given back has no owner.
        let left = unsafe { slice::from_raw_parts(first.as_ptr(), bytes) };
        assert!(left.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_value_is_dropped_once() {
        let counted = Rc::new(());
        let kept = KeptValue::new(|| (Rc::clone(&counted), 7_u8));
        assert_eq!((Rc::strong_count(&counted), kept.1), (2, 7));
        drop(kept);
        assert_eq!(Rc::strong_count(&counted), 1);
        let panicked = std::panic::catch_unwind(|| KeptValue::<u8>::new(|| panic!("on purpose")));
        assert!(panicked.is_err());
    }

    proptest! {
        #[test]
        fn bytes_are_what_they_were_among_many(all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..64)) {
            let mut kept: Vec<_> = all.iter().map(|bytes| KeptBytes::copy_of(bytes)).collect();
            let clones = kept.clone();
            kept.truncate(all.len() / 2);
            for (kept, bytes) in kept.iter().chain(&clones).zip(all.iter().take(kept.len()).chain(&all)) {
                prop_assert_eq!(&**kept, &bytes[..]);
            }
        }
    }
}
