//! Queues in the host's memory: heads, tails and phase tags of Submission and Completion Queues,
//! and their doorbells, by register or by shadow (Base, Doorbell Buffer Config).
//!
//! With shadow doorbells the host stores a tail or head in its own memory, and writes the register
//! only if it passes the event index that the controller left beside it. A controller that polls
//! keeps the event index behind what it sees; before it sleeps it calls `arm`, which sets it to
//! that, and looks once more. The values of registers are then only a hint: the shadow is newer.

use ebof_nvme::{Cqe, QueueId, Sqe};
use thiserror::Error;
use zerocopy::IntoBytes;

use crate::memory::{Fault, Memory};

/// A queue's host has broken it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RingError {
    /// The memory of the queue or of its doorbell is gone: the controller has failed (CSTS.CFS).
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A tail or head outside the queue, or a head past the last completion: an Asynchronous Event
    /// (Error status, Invalid Doorbell Write Value). The value is ignored.
    #[error("{value} in a doorbell of a queue of {entries} entries")]
    Value {
        /// What the doorbell says.
        value: u32,
        /// Entries of the queue.
        entries: u32,
    },
}

/// Where the shadow doorbell of a queue and its event index are in the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// Address of the doorbell.
    pub doorbell: u64,
    /// Address of the event index.
    pub event: u64,
}

impl Shadow {
    /// Those of a queue in the two buffers of Doorbell Buffer Config, which are laid out as the
    /// registers are.
    #[must_use]
    pub const fn for_queue(doorbells: u64, events: u64, queue: QueueId, is_completion: bool) -> Self {
        let offset = queue.0 as u64 * 8 + if is_completion { 4 } else { 0 };
        Self { doorbell: doorbells.wrapping_add(offset), event: events.wrapping_add(offset) }
    }
}

/// A Submission Queue.
#[derive(Clone, Copy, Debug)]
pub struct SubmissionRing {
    base: u64,
    entries: u32,
    head: u32,
    tail: u32,
    completion_queue: QueueId,
    shadow: Option<Shadow>,
    event: EventIndex,
    /// The value of the shadow doorbell that was refused last: it is an error once.
    refused: Option<u32>,
}

impl SubmissionRing {
    /// An empty queue of `entries` (2 to 65536, others are clamped) at `base`, whose completions go
    /// to `completion_queue`.
    #[must_use]
    pub const fn new(base: u64, entries: u32, completion_queue: QueueId) -> Self {
        let (shadow, event, refused) = (None, EventIndex::NEW, None);
        Self { base, entries: clamp(entries), head: 0, tail: 0, completion_queue, shadow, event, refused }
    }

    /// Where its completions go.
    #[must_use]
    pub const fn completion_queue(&self) -> QueueId {
        self.completion_queue
    }

    /// How many entries it has.
    #[must_use]
    pub const fn entries(&self) -> u32 {
        self.entries
    }

    /// Its head, for completions (SQHD).
    #[must_use]
    #[inline]
    pub const fn head(&self) -> u16 {
        index(self.head)
    }

    /// Commands between head and tail, as far as the tail was seen.
    #[must_use]
    #[inline]
    pub const fn waiting(&self) -> u32 {
        distance(self.head, self.tail, self.entries)
    }

    /// Uses a shadow doorbell from now on, which gets the tail as it is, or none.
    ///
    /// # Errors
    /// It is not memory.
    pub fn set_shadow(&mut self, shadow: Option<Shadow>, memory: &impl Memory) -> Result<(), Fault> {
        self.event = EventIndex::NEW;
        start_shadow(&mut self.shadow, shadow, self.tail, memory)
    }

    /// Whether it has a shadow doorbell.
    #[must_use]
    pub const fn has_shadow(&self) -> bool {
        self.shadow.is_some()
    }

    /// The host has written its doorbell register.
    ///
    /// # Errors
    /// The value is invalid, or the shadow's memory is gone.
    #[inline]
    pub fn ring(&mut self, tail: u16, memory: &impl Memory) -> Result<(), RingError> {
        match self.shadow {
            Some(_) => self.poll(memory).map(|_waiting| ()),
            None => self.move_tail(tail.into()),
        }
    }

    /// Looks at the shadow doorbell, if there is one. Returns whether there are commands.
    ///
    /// # Errors
    /// The value is invalid, and was not the last time; or the shadow's memory is gone.
    #[inline]
    pub fn poll(&mut self, memory: &impl Memory) -> Result<bool, RingError> {
        if let Some(shadow) = self.shadow {
            self.load(shadow, memory)?;
            self.event.stay_behind(shadow, self.tail, self.entries, memory)?;
        }
        Ok(self.head != self.tail)
    }

    #[inline]
    fn load(&mut self, shadow: Shadow, memory: &impl Memory) -> Result<(), RingError> {
        let tail = memory.load(shadow.doorbell)?;
        if self.refused != Some(tail) {
            let moved = self.move_tail(tail);
            self.refused = moved.is_err().then_some(tail);
            moved?;
        }
        Ok(())
    }

    /// Has the host write the register for the next command. `false`: there are commands already,
    /// and the register may stay silent.
    ///
    /// # Errors
    /// The value is invalid, or the shadow's memory is gone.
    pub fn arm(&mut self, memory: &impl Memory) -> Result<bool, RingError> {
        if let Some(shadow) = self.shadow {
            self.event.arm(shadow, self.tail, memory)?;
            self.load(shadow, memory)?;
        }
        Ok(self.head == self.tail)
    }

    fn move_tail(&mut self, tail: u32) -> Result<(), RingError> {
        if tail >= self.entries {
            return Err(RingError::Value { value: tail, entries: self.entries });
        }
        self.tail = tail;
        Ok(())
    }

    /// Copies the entry at the head out, and moves the head: the host may use the entry again.
    ///
    /// # Errors
    /// It is not memory; the head stays.
    #[inline]
    pub fn next(&mut self, memory: &impl Memory) -> Result<Option<Sqe>, Fault> {
        if self.head == self.tail {
            return Ok(None);
        }
        let mut bytes = [0; size_of::<Sqe>()];
        let address = entry(self.base, self.head, size_of::<Sqe>() as u64)?;
        memory.read(address, &mut bytes)?;
        self.head = advance(self.head, self.entries);
        Ok(Some(zerocopy::transmute!(bytes)))
    }
}

/// A Completion Queue.
#[derive(Clone, Copy, Debug)]
pub struct CompletionRing {
    base: u64,
    entries: u32,
    head: u32,
    tail: u32,
    /// Phase tag of the entries of this round.
    phase: bool,
    vector: Option<u16>,
    shadow: Option<Shadow>,
    event: EventIndex,
    /// The value of the shadow doorbell that was refused last: it is an error once.
    refused: Option<u32>,
}

impl CompletionRing {
    /// An empty queue of `entries` (2 to 65536, others are clamped) at `base`, whose interrupts go
    /// to `vector` if they are enabled.
    #[must_use]
    pub const fn new(base: u64, entries: u32, vector: Option<u16>) -> Self {
        let (shadow, event, refused) = (None, EventIndex::NEW, None);
        Self { base, entries: clamp(entries), head: 0, tail: 0, phase: true, vector, shadow, event, refused }
    }

    /// How many entries it has.
    #[must_use]
    pub const fn entries(&self) -> u32 {
        self.entries
    }

    /// The vector to raise after completions were [pushed](Self::push).
    #[must_use]
    pub const fn vector(&self) -> Option<u16> {
        self.vector
    }

    /// How many completions have room, as far as the head was seen. One entry stays free.
    #[must_use]
    #[inline]
    pub const fn room(&self) -> u32 {
        self.entries - 1 - self.unread()
    }

    /// Completions that the host has not taken, as far as the head was seen.
    #[must_use]
    #[inline]
    pub const fn unread(&self) -> u32 {
        distance(self.head, self.tail, self.entries)
    }

    /// Uses a shadow doorbell from now on, which gets the head as it is, or none.
    ///
    /// # Errors
    /// It is not memory.
    pub fn set_shadow(&mut self, shadow: Option<Shadow>, memory: &impl Memory) -> Result<(), Fault> {
        self.event = EventIndex::NEW;
        start_shadow(&mut self.shadow, shadow, self.head, memory)
    }

    /// Whether it has a shadow doorbell.
    #[must_use]
    pub const fn has_shadow(&self) -> bool {
        self.shadow.is_some()
    }

    /// The host has written its doorbell register.
    ///
    /// # Errors
    /// The value is invalid, or the shadow's memory is gone.
    pub fn ring(&mut self, head: u16, memory: &impl Memory) -> Result<(), RingError> {
        match self.shadow {
            Some(_) => self.poll(memory).map(|_room| ()),
            None => self.move_head(head.into()),
        }
    }

    /// Looks at the shadow doorbell, if there is one. Returns whether there is room.
    ///
    /// # Errors
    /// The value is invalid, and was not the last time; or the shadow's memory is gone.
    pub fn poll(&mut self, memory: &impl Memory) -> Result<bool, RingError> {
        if let Some(shadow) = self.shadow {
            self.load(shadow, memory)?;
            if self.room() > 0 {
                self.event.stay_behind(shadow, self.head, self.entries, memory)?;
            }
        }
        Ok(self.room() > 0)
    }

    fn load(&mut self, shadow: Shadow, memory: &impl Memory) -> Result<(), RingError> {
        let head = memory.load(shadow.doorbell)?;
        if self.refused != Some(head) {
            let moved = self.move_head(head);
            self.refused = moved.is_err().then_some(head);
            moved?;
        }
        Ok(())
    }

    /// Has the host write the register when it takes the next completion: for a queue that is full.
    /// `false`: there is room already.
    ///
    /// # Errors
    /// The value is invalid, or the shadow's memory is gone.
    pub fn arm(&mut self, memory: &impl Memory) -> Result<bool, RingError> {
        if let Some(shadow) = self.shadow {
            self.event.arm(shadow, self.head, memory)?;
            self.load(shadow, memory)?;
        }
        Ok(self.room() == 0)
    }

    fn move_head(&mut self, head: u32) -> Result<(), RingError> {
        if head >= self.entries || distance(self.head, head, self.entries) > self.unread() {
            return Err(RingError::Value { value: head, entries: self.entries });
        }
        self.head = head;
        Ok(())
    }

    /// Writes a completion of a command of `submission_queue`, whose head is `submission_head` now.
    /// `false`: the queue is full, also by its shadow doorbell.
    ///
    /// # Errors
    /// The queue or its shadow is not memory, or the shadow's value is invalid.
    #[inline]
    pub fn push(
        &mut self,
        cqe: &Cqe,
        submission_queue: QueueId,
        submission_head: u16,
        memory: &impl Memory,
    ) -> Result<bool, RingError> {
        if self.room() == 0 && !self.poll(memory)? {
            return Ok(false);
        }
        let mut cqe = cqe.with_sqhd(submission_head).with_sqid(submission_queue);
        cqe.status = (cqe.status.get() & !1 | u16::from(self.phase)).into();
        let mut bytes = [0; size_of::<Cqe>()];
        bytes.copy_from_slice(cqe.as_bytes());
        memory.write_completion(entry(self.base, self.tail, size_of::<Cqe>() as u64)?, &bytes)?;
        self.tail = advance(self.tail, self.entries);
        // A new round has the other phase tag.
        self.phase ^= self.tail == 0;
        Ok(true)
    }
}

/// What the host is told by an event index.
#[derive(Clone, Copy, Debug)]
struct EventIndex {
    /// What it is, if it is not armed.
    value: u32,
    /// The host writes the register for the next entry.
    is_armed: bool,
}

impl EventIndex {
    /// As a shadow doorbell begins.
    const NEW: Self = Self { value: 0, is_armed: true };

    /// The host writes the register when its index leaves `index`.
    fn arm(&mut self, shadow: Shadow, index: u32, memory: &impl Memory) -> Result<(), Fault> {
        self.is_armed = true;
        memory.store(shadow.event, index)
    }

    /// The host, whose index is at `index`, does not write the register: it is looked at anyway. As
    /// it goes round the queue, the event index is moved on before the host comes to it.
    #[inline]
    fn stay_behind(&mut self, shadow: Shadow, index: u32, entries: u32, memory: &impl Memory) -> Result<(), Fault> {
        let behind = if index == 0 { entries - 1 } else { index - 1 };
        if !self.is_armed && self.value == behind {
            return Ok(());
        }
        (self.is_armed, self.value) = (false, behind);
        memory.store(shadow.event, behind)
    }
}

fn start_shadow(
    place: &mut Option<Shadow>,
    shadow: Option<Shadow>,
    value: u32,
    memory: &impl Memory,
) -> Result<(), Fault> {
    if let Some(shadow) = shadow {
        // Both begin with what the register said last, as the host's own copies do.
        memory.store(shadow.event, value)?;
        memory.store(shadow.doorbell, value)?;
    }
    *place = shadow;
    Ok(())
}

/// The address of an entry.
#[inline]
fn entry(base: u64, index: u32, bytes: u64) -> Result<u64, Fault> {
    base.checked_add(u64::from(index) * bytes).ok_or(Fault { address: base })
}

const fn clamp(entries: u32) -> u32 {
    match entries {
        0..2 => 2,
        2..=0x1_0000 => entries,
        _ => 0x1_0000,
    }
}

/// Entries from one index to another, both of which are of the queue: what a host says is looked at
/// before it becomes a head or tail.
const fn distance(from: u32, to: u32, entries: u32) -> u32 {
    debug_assert!(from < entries && to < entries, "a head or tail outside of the queue");
    if to >= from { to - from } else { entries - from + to }
}

const fn advance(index: u32, entries: u32) -> u32 {
    debug_assert!(index < entries, "a head or tail outside of the queue");
    if index + 1 == entries { 0 } else { index + 1 }
}

/// An index of an entry as it stands in completions: queues have at most 65536 entries.
const fn index(index: u32) -> u16 {
    (index & 0xffff) as u16
}
