//! Buffers that the adapter writes to the host from: of responses that are queued, by tag, and
//! those that are kept for the next data.

use ebof_verbs::HeldMemory;

/// Where a buffer comes from, and goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The reactor's pool, whose budget it counts in.
    Pool,
    /// It is [`Kept`].
    Kept,
    /// The connection itself.
    Own,
}

/// A buffer with data on their way to the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) held: HeldMemory,
    /// Its size, and
    pub(super) buffer_bytes: u32,
    /// bytes of data in it.
    pub(super) length: u32,
    pub(super) origin: Origin,
}

/// Why a tag has a buffer: the core asks for those only that it was given with a response, until
/// that is posted.
const QUEUED: &str = "a buffer is there until its response is posted";

/// Those of responses that are queued, by tag.
#[derive(Debug)]
pub(super) struct HeldBuffers {
    table: Vec<Option<Outgoing>>,
    free: Vec<u32>,
}

impl HeldBuffers {
    /// Allocates nothing until there are more than `expected`.
    pub(super) fn new(expected: usize) -> Self {
        Self { table: Vec::with_capacity(expected), free: Vec::with_capacity(expected) }
    }

    /// Its tag.
    #[inline]
    pub(super) fn insert(&mut self, outgoing: Outgoing) -> u32 {
        if let Some(tag) = self.free.pop() {
            self.table[tag as usize] = Some(outgoing);
            return tag;
        }
        self.table.push(Some(outgoing));
        u32::try_from(self.table.len() - 1).expect("no more than responses that are outstanding")
    }

    #[inline]
    pub(super) fn held(&self, tag: u32) -> HeldMemory {
        self.table[tag as usize].as_ref().expect(QUEUED).held
    }

    #[inline]
    pub(super) fn remove(&mut self, tag: u32) -> Outgoing {
        let outgoing = self.table[tag as usize].take().expect(QUEUED);
        self.free.push(tag);
        outgoing
    }

    /// All of them.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Outgoing> + '_ {
        self.free.clear();
        self.table.drain(..).flatten()
    }
}

/// Buffers that stay with the queue pair after their data are sent, for data that are copied into
/// them. They count in a budget of the pool's own
/// ([`Pool::keep`](crate::shared::buffer::Pool::keep)).
#[derive(Debug)]
pub(super) struct Kept {
    /// Those without data.
    free: Vec<HeldMemory>,
    /// All of them.
    count: usize,
    max: usize,
    /// Commands that would have used one more.
    missed: usize,
}

impl Kept {
    /// Size of each: what a reading host mostly asks for.
    pub(super) const BYTES: u32 = 4096;

    /// At most `max`, for which no memory has to be allocated later.
    pub(super) fn new(max: usize) -> Self {
        Self { free: Vec::with_capacity(max), count: 0, max, missed: 0 }
    }

    /// The next one for `length` bytes of data. It stays the next one until it is taken.
    #[inline]
    pub(super) fn next(&mut self, length: u32) -> Option<HeldMemory> {
        if length > Self::BYTES {
            return None;
        }
        let next = self.free.last().copied();
        if next.is_none() {
            self.missed = self.max.min(self.missed + 1);
        }
        next
    }

    #[inline]
    pub(super) fn take(&mut self) -> Option<HeldMemory> {
        self.free.pop()
    }

    /// One of them has no data any more.
    #[inline]
    pub(super) fn put(&mut self, held: HeldMemory) {
        debug_assert!(self.free.len() < self.count, "it was taken before");
        self.free.push(held);
    }

    /// Whether another one would be of use.
    #[inline]
    pub(super) fn wants(&mut self) -> bool {
        if self.missed == 0 || self.count == self.max {
            return false;
        }
        self.missed -= 1;
        true
    }

    pub(super) fn add(&mut self, held: HeldMemory) {
        assert!(self.count < self.max, "only as many are added as `wants` says");
        self.count += 1;
        self.free.push(held);
    }

    /// Takes one of them out for good.
    pub(super) fn remove(&mut self) -> Option<HeldMemory> {
        let held = self.free.pop()?;
        self.count -= 1;
        Some(held)
    }
}
