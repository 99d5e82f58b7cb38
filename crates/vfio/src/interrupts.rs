//! Interrupt vectors (MSI-X): which are connected to a descriptor of the client, which are masked,
//! and which interrupts are pending meanwhile.
//!
//! The descriptors stay with the owner of the socket, by vector; a client delivers an interrupt
//! when its descriptor is signalled. The table in BAR0 is memory of the host that nothing here
//! reads: clients keep a table of their own, and most never write this one.

use alloc::vec;
use alloc::vec::Vec;

use crate::errno::Errno;
use crate::message::{InterruptAction, InterruptData, SetInterrupts};
use crate::pci::VECTORS_MAX;

/// Kinds of interrupts that a PCI device has for a client: pin, MSI, MSI-X, error, request.
pub const KINDS: u32 = 5;
/// The kind that this function has.
pub const MSIX: u32 = 2;
/// One that tells the client of an error of the device. There is one because QEMU warns where there
/// is none; nothing ever signals it.
const ERROR: u32 = 3;

/// What the owner of the descriptors has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorChange {
    /// The next descriptor of the message is this vector's, instead of the one it had.
    Connect(u16),
    /// This vector's descriptor is closed, if it has one.
    Disconnect(u16),
    /// This vector's descriptor is to be signalled.
    Signal(u16),
}

#[derive(Clone, Copy, Debug, Default)]
struct Vector {
    /// It has a descriptor.
    is_connected: bool,
    is_masked: bool,
    is_pending: bool,
}

/// The vectors of a function.
#[derive(Debug)]
pub struct Vectors {
    vectors: Vec<Vector>,
    /// Message address, data and control of each vector, as the host wrote them.
    table: Vec<u8>,
}

/// Bytes of an entry of the table.
const ENTRY_BYTES: usize = 16;
/// Control of an entry after a reset: masked.
const CONTROL_RESET: [u8; 4] = [1, 0, 0, 0];

impl Vectors {
    /// So many of them, not connected; at most [`VECTORS_MAX`].
    #[must_use]
    pub fn new(count: u16) -> Self {
        let count = usize::from(count.min(VECTORS_MAX));
        let mut table = vec![0; count * ENTRY_BYTES];
        for entry in table.chunks_exact_mut(ENTRY_BYTES) {
            entry[12..].copy_from_slice(&CONTROL_RESET);
        }
        Self { vectors: vec![Vector::default(); count], table }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u16 {
        u16::try_from(self.vectors.len()).expect("at most VECTORS_MAX, see `new`")
    }

    /// How many interrupts of a kind there are; `None` if there is no such kind.
    #[must_use]
    pub fn count_of(&self, kind: u32) -> Option<u32> {
        match kind {
            MSIX => Some(self.count().into()),
            ERROR => Some(1),
            kind if kind < KINDS => Some(0),
            _ => None,
        }
    }

    /// As after a reset. Descriptors stay connected: they are the client's matter.
    pub fn reset(&mut self) {
        let connected: Vec<bool> = self.vectors.iter().map(|vector| vector.is_connected).collect();
        *self = Self::new(self.count());
        for (vector, is_connected) in self.vectors.iter_mut().zip(connected) {
            vector.is_connected = is_connected;
        }
    }

    /// DEVICE_SET_IRQS, with so many descriptors. Appends what is to be done, in order: each
    /// [`VectorChange::Connect`] takes the next descriptor. Descriptors that are left are closed.
    ///
    /// # Errors
    /// There are no such interrupts. Nothing changes.
    pub fn set(
        &mut self,
        set: &SetInterrupts<'_>,
        descriptors: usize,
        changes: &mut Vec<VectorChange>,
    ) -> Result<(), Errno> {
        let count = self.count_of(set.index).ok_or(Errno::INVALID)?;
        let end = set.start.checked_add(set.count).filter(|&end| end <= count).ok_or(Errno::INVALID)?;
        if set.index != MSIX {
            return Ok(());
        }
        if set.count == 0 {
            self.disconnect_all(set, changes);
        }
        for (at, number) in (set.start..end).enumerate() {
            let selected = match set.data {
                InterruptData::None | InterruptData::Descriptors => true,
                InterruptData::Bools(bytes) => bytes.get(at).is_some_and(|byte| *byte != 0),
            };
            if selected {
                let number = u16::try_from(number).expect("the end is at most the number of vectors, a u16");
                self.set_one(number, set, descriptors, changes);
            }
        }
        Ok(())
    }

    /// VFIO: no data and no interrupts, to be triggered, disconnects all of a kind.
    fn disconnect_all(&mut self, set: &SetInterrupts<'_>, changes: &mut Vec<VectorChange>) {
        if set.action == InterruptAction::Trigger && set.data == InterruptData::None {
            (0..self.count()).for_each(|number| self.disconnect(number, changes));
        }
    }

    fn set_one(&mut self, number: u16, set: &SetInterrupts<'_>, descriptors: usize, changes: &mut Vec<VectorChange>) {
        let vector = self.vector(number);
        match (set.action, set.data) {
            (InterruptAction::Trigger, InterruptData::Descriptors) if descriptors == 0 => {
                self.disconnect(number, changes);
            }
            (InterruptAction::Trigger, InterruptData::Descriptors) => {
                vector.is_connected = true;
                changes.push(VectorChange::Connect(number));
                self.deliver(number, changes);
            }
            (InterruptAction::Trigger, _) => {
                vector.is_pending = true;
                self.deliver(number, changes);
            }
            (InterruptAction::Mask, _) => vector.is_masked = true,
            (InterruptAction::Unmask, _) => {
                vector.is_masked = false;
                self.deliver(number, changes);
            }
        }
    }

    fn disconnect(&mut self, number: u16, changes: &mut Vec<VectorChange>) {
        if core::mem::take(&mut self.vector(number).is_connected) {
            changes.push(VectorChange::Disconnect(number));
        }
    }

    /// One of those that a client's message is about, whose range was looked at.
    fn vector(&mut self, number: u16) -> &mut Vector {
        self.vectors.get_mut(usize::from(number)).expect("the end is at most the number of vectors")
    }

    /// Delivers what is pending, if that is possible.
    fn deliver(&mut self, number: u16, changes: &mut Vec<VectorChange>) {
        let vector = self.vector(number);
        if vector.is_connected && !vector.is_masked && core::mem::take(&mut vector.is_pending) {
            changes.push(VectorChange::Signal(number));
        }
    }

    /// An interrupt: whether the vector's descriptor is to be signalled. Otherwise it is pending,
    /// unless there is no such vector.
    #[inline]
    #[must_use]
    pub fn raise(&mut self, number: u16) -> bool {
        let Some(vector) = self.vectors.get_mut(usize::from(number)) else { return false };
        let delivers = vector.is_connected && !vector.is_masked;
        vector.is_pending = !delivers;
        delivers
    }

    /// Reads the table; beyond its end it reads as zeros.
    pub(crate) fn read_table(&self, offset: u64, into: &mut [u8]) {
        for (at, byte) in (offset..).zip(into) {
            *byte = usize::try_from(at).ok().and_then(|at| self.table.get(at)).copied().unwrap_or(0);
        }
    }

    /// Writes the table; what is beyond its end is dropped.
    pub(crate) fn write_table(&mut self, offset: u64, from: &[u8]) {
        for (at, byte) in (offset..).zip(from) {
            if let Some(place) = usize::try_from(at).ok().and_then(|at| self.table.get_mut(at)) {
                *place = *byte;
            }
        }
    }

    /// Reads the pending bits; beyond the last vector they are 0.
    pub(crate) fn read_pending(&self, offset: u64, into: &mut [u8]) {
        for (at, byte) in (offset..).zip(into) {
            let first = usize::try_from(at).unwrap_or(usize::MAX).saturating_mul(8);
            let vectors = self.vectors.iter().skip(first).take(8);
            *byte = vectors.rev().fold(0, |bits, vector| bits << 1 | u8::from(vector.is_pending));
        }
    }
}
