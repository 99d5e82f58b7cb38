//! Accounts of a queue pair, of either kind: the buffers that it holds, the entries of its send
//! queue, and its memory windows. The windows themselves, the receive slots of simulated queue
//! pairs, and names of memory are in the folder.
//!
//! An entry is known by its number: the first one is 0. A completion is of one number, and of the
//! work before it that has no completion of its own. Other work before it is not over: soft-iWARP
//! reports a write while a read that was posted before it is under way, whose buffer it still
//! accesses.

pub(crate) mod held;
pub(crate) mod slots;
pub(crate) mod windows;

use std::sync::Arc;

use ebof_region::{Buffer, Region};

use crate::{HeldMemory, Window, WorkRequest};

use windows::Windows;

/// The accounts of one queue pair.
#[derive(Debug)]
pub(crate) struct Ledger {
    held: Vec<HeldBuffer>,
    /// Indices in `held` without a buffer.
    free: Vec<u32>,
    /// What is in the send queue, or about to be, by [`Ledger::index`].
    entries: Box<[Entry]>,
    /// The buffers that were given with entries, likewise.
    given: Box<[Option<Buffer>]>,
    /// Those whose entries are over.
    returned: Vec<Buffer>,
    capacity: usize,
    /// Everything before this number is over.
    oldest: u64,
    /// Everything before this number that has no completion of its own is over.
    implied: u64,
    /// The number of the next one.
    next: u64,
    windows: Windows,
    /// Windows that could not be invalidated, and that were not taken away yet.
    lost: Vec<(u32, Option<Arc<Region>>)>,
}

#[derive(Debug)]
struct HeldBuffer {
    buffer: Option<Buffer>,
    /// Where it is, and its size in bytes.
    address: u64,
    length: u32,
    /// Of its region, for work of this end.
    key: u32,
    generation: u32,
    /// Entries of the send queue that use it.
    uses: u32,
}

/// Compact, since each is written and read for every message.
#[derive(Clone, Copy, Debug)]
struct Entry {
    state: State,
    /// What it uses: the slot of a message, the index of a buffer in `held` or of a window, or
    /// [`NOTHING`] or [`GIVEN`].
    used: u32,
    /// Of an operation, as posted.
    id: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Over,
    Unsignalled,
    Message,
    Operation,
    /// An operation of no bytes that is nobody's, with a completion of its own.
    Empty,
    /// An operation that invalidates a window.
    Invalidation,
}

impl Entry {
    const OVER: Self = Self { state: State::Over, used: NOTHING, id: 0 };
}

/// No index: there are far fewer buffers and windows.
const NOTHING: u32 = u32::MAX;
/// A buffer of its own.
const GIVEN: u32 = u32::MAX - 1;

/// Where a buffer is.
#[inline]
fn address_of(buffer: &Buffer) -> u64 {
    buffer.region().address().addr() as u64 + buffer.offset() as u64
}

/// A part of a held buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) key: u32,
}

impl Ledger {
    /// For a send queue of `capacity` entries.
    pub(crate) fn new(capacity: usize, windows: Windows) -> Self {
        Self {
            held: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            entries: vec![Entry::OVER; capacity.next_power_of_two()].into(),
            given: (0..capacity.next_power_of_two()).map(|_| None).collect(),
            returned: Vec::with_capacity(capacity),
            capacity,
            oldest: 0,
            implied: 0,
            next: 0,
            windows,
            lost: Vec::new(),
        }
    }

    /// `key` is that of its region, for work of this end.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub(crate) fn hold(&mut self, buffer: Buffer, key: u32) -> HeldMemory {
        let index = self.free.pop().unwrap_or_else(|| self.add());
        let entry = &mut self.held[index as usize];
        entry.address = address_of(&buffer);
        entry.length = u32::try_from(buffer.capacity()).unwrap_or(u32::MAX);
        entry.key = key;
        entry.buffer = Some(buffer);
        HeldMemory { index, generation: entry.generation }
    }

    #[cold]
    fn add(&mut self) -> u32 {
        self.held.push(HeldBuffer { buffer: None, address: 0, length: 0, key: 0, generation: 0, uses: 0 });
        // `release` then never has to allocate.
        self.free.reserve(self.held.len());
        u32::try_from(self.held.len() - 1).expect("each is a buffer of at least one page")
    }

    /// `None` if it is in use, or was released.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub(crate) fn release(&mut self, held: HeldMemory) -> Option<Buffer> {
        let entry = self.held.get_mut(held.index as usize)?;
        if entry.uses != 0 || entry.generation != held.generation {
            return None;
        }
        let buffer = entry.buffer.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(held.index);
        Some(buffer)
    }

    /// The buffer, which has the part that was looked up by [`Ledger::part`].
    #[inline]
    pub(crate) fn buffer(&self, held: HeldMemory) -> &Buffer {
        self.held[held.index as usize].buffer.as_ref().expect("it is held, as the look-up of its part has found")
    }

    /// The memory of a buffer; `None` if it is in use, or was released.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub(crate) fn memory(&mut self, held: HeldMemory) -> Option<&mut [u8]> {
        let entry = self.held.get_mut(held.index as usize)?;
        if entry.uses != 0 || entry.generation != held.generation {
            return None;
        }
        entry.buffer.as_mut().map(Buffer::as_mut_slice)
    }

    /// A part of a buffer.
    ///
    /// # Panics
    /// It has no such part, or there is no such buffer.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub(crate) fn part(&self, held: HeldMemory, offset: u32, length: u32) -> Part {
        let entry = &self.held[held.index as usize];
        assert!(entry.generation == held.generation && entry.buffer.is_some(), "the buffer was released");
        assert!(offset.checked_add(length).is_some_and(|end| end <= entry.length), "beyond the buffer");
        Part { address: entry.address + u64::from(offset), length, key: entry.key }
    }

    /// Free entries of the send queue.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub(crate) fn room(&self) -> usize {
        self.capacity - usize::try_from(self.next - self.oldest).expect("at most its capacity")
    }

    /// The number of the next entry.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Where an entry is, in a table of as many as [`Ledger::table_length`].
    #[inline]
    pub(crate) fn index(&self, number: u64) -> usize {
        usize::try_from(number & (self.entries.len() as u64 - 1)).expect("less than a length")
    }

    /// At least the capacity.
    pub(crate) fn table_length(&self) -> usize {
        self.entries.len()
    }

    /// Adds a message to the send queue, and returns its number.
    ///
    /// # Panics
    /// There is no room.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub(crate) fn post_message(&mut self, slot: u32) -> u64 {
        self.add_entry(Entry { state: State::Message, used: slot, id: 0 })
    }

    /// Adds an RDMA READ or WRITE that uses a buffer, and returns its number. `None`: it has no
    /// completion of its own.
    ///
    /// # Panics
    /// There is no room.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub(crate) fn post_operation(&mut self, held: HeldMemory, id: Option<u64>) -> u64 {
        self.held[held.index as usize].uses += 1;
        let state = if id.is_some() { State::Operation } else { State::Unsignalled };
        self.add_entry(Entry { state, used: held.index, id: id.unwrap_or_default() })
    }

    /// Adds an RDMA WRITE of a buffer, which [`Ledger::take_returned`] gives back when it is over.
    /// Returns its number and where the buffer is.
    ///
    /// # Panics
    /// There is no room, or `length` is more than the size of the buffer.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub(crate) fn post_given(&mut self, buffer: Buffer, length: u32) -> (u64, u64) {
        assert!(length as usize <= buffer.capacity(), "beyond the buffer");
        let address = address_of(&buffer);
        let number = self.add_entry(Entry { state: State::Unsignalled, used: GIVEN, id: 0 });
        let at = self.index(number);
        self.given[at] = Some(buffer);
        (number, address)
    }

    /// A buffer that was given, and is not used any more.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub(crate) fn take_returned(&mut self) -> Option<Buffer> {
        self.returned.pop()
    }

    /// Adds an entry that binds a free window to a part of a region, and returns its number as
    /// well. `None`: there is no free window.
    ///
    /// # Panics
    /// There is no room.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub(crate) fn post_bind(&mut self, region: &Arc<Region>) -> Option<(u64, Window)> {
        let window = self.windows.bind(region)?;
        Some((self.add_entry(Entry { state: State::Unsignalled, ..Entry::OVER }), window))
    }

    /// Adds an entry that invalidates a window, and returns its number.
    ///
    /// # Panics
    /// There is no room, or the window is not bound.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub(crate) fn post_invalidate(&mut self, window: Window, id: u64) -> u64 {
        self.windows.end(window);
        self.add_entry(Entry { state: State::Invalidation, used: window.index, id })
    }

    /// Adds an RDMA READ or WRITE that uses nothing and is nobody's, and returns its number.
    ///
    /// # Panics
    /// There is no room.
    pub(crate) fn post_nothing(&mut self) -> u64 {
        self.add_entry(Entry { state: State::Empty, ..Entry::OVER })
    }

    #[inline]
    fn add_entry(&mut self, entry: Entry) -> u64 {
        let number = self.next;
        assert!(number - self.oldest < self.capacity as u64, "there is no room in the send queue");
        let at = self.index(number);
        self.entries[at] = entry;
        self.next = number + 1;
        number
    }

    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub(crate) fn is_bound(&self, window: Window) -> bool {
        self.windows.is_bound(window)
    }

    /// The peer has invalidated a key.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub(crate) fn invalidated(&mut self, key: u32) {
        self.windows.invalidated(key);
    }

    /// A window that could not be invalidated, and has to be taken away before its region goes.
    pub(crate) fn take_lost(&mut self) -> Option<(u32, Option<Arc<Region>>)> {
        self.lost.pop()
    }

    /// The entry `number` is over, and so are those before it that have no completion of their own.
    /// Returns what it was; `None` if it was over before, or never posted. If it has failed, see
    /// [`Ledger::take_lost`].
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub(crate) fn complete(&mut self, number: u64, has_failed: bool) -> Option<WorkRequest> {
        let what = self.end(number, has_failed)?;
        let mut before = self.implied.max(self.oldest);
        // Whether nothing before it is left.
        let mut is_oldest = before == self.oldest;
        while before < number {
            let at = self.index(before);
            match self.entries[at].state {
                State::Unsignalled => {
                    self.entries[at].state = State::Over;
                    self.free(at);
                }
                State::Over => {}
                State::Message | State::Operation | State::Empty | State::Invalidation => is_oldest = false,
            }
            before += 1;
        }
        self.implied = self.implied.max(number + 1);
        if is_oldest {
            self.oldest = number + 1;
        }
        self.advance();
        Some(what)
    }

    /// The entry `number` has failed, without anything being said about others. As `complete`
    /// otherwise.
    pub(crate) fn cancel(&mut self, number: u64) -> Option<WorkRequest> {
        let what = self.end(number, true)?;
        self.advance();
        Some(what)
    }

    #[inline]
    fn end(&mut self, number: u64, has_failed: bool) -> Option<WorkRequest> {
        if !(self.oldest..self.next).contains(&number) {
            return None;
        }
        let at = self.index(number);
        let entry = &mut self.entries[at];
        let Entry { state, used, id } = *entry;
        entry.state = State::Over;
        match state {
            State::Message => Some(WorkRequest::Send(used)),
            State::Over => None,
            State::Unsignalled => {
                self.free(at);
                Some(WorkRequest::Unsignalled)
            }
            State::Empty => Some(WorkRequest::Unsignalled),
            State::Operation => {
                self.free(at);
                Some(WorkRequest::Operation(id))
            }
            State::Invalidation => {
                self.end_window(used, has_failed);
                Some(WorkRequest::Operation(id))
            }
        }
    }

    /// The buffer that an RDMA READ or WRITE has used, which is over, is free.
    #[inline]
    fn free(&mut self, at: usize) {
        match self.entries[at].used {
            GIVEN => self.returned.extend(self.given[at].take()),
            NOTHING => {}
            held => self.held[held as usize].uses -= 1,
        }
    }

    #[cold]
    fn end_window(&mut self, index: u32, has_failed: bool) {
        if has_failed {
            self.lost.push((index, self.windows.lost(index)));
        } else {
            self.windows.ended(index);
        }
    }

    #[inline]
    fn advance(&mut self) {
        while self.oldest < self.next && self.entries[self.index(self.oldest)].state == State::Over {
            self.oldest += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: WorkRequest = WorkRequest::Operation(7);

    #[test]
    fn work_without_a_completion_is_over_with_a_later_one() {
        let mut ledger = Ledger::new(3, Windows::default());
        let held = ledger.hold(Buffer::zeroed(4096), 0);
        assert_eq!(ledger.post_operation(held, None), 0);
        assert_eq!(ledger.post_operation(held, Some(7)), 1);
        assert_eq!(ledger.post_message(2), 2);
        assert_eq!((ledger.room(), ledger.complete(3, false)), (0, None));
        assert!(ledger.release(held).is_none() && ledger.memory(held).is_none());
        assert_eq!(ledger.complete(1, false), Some(READ));
        assert_eq!((ledger.room(), ledger.complete(0, false)), (2, None));
        assert_eq!(ledger.memory(held).map(|memory| memory.len()), Some(4096));
        assert!(ledger.release(held).is_some() && ledger.release(held).is_none() && ledger.memory(held).is_none());
        assert_eq!(ledger.complete(2, false), Some(WorkRequest::Send(2)));
        assert_eq!((ledger.complete(2, false), ledger.room()), (None, 3));
    }

    #[test]
    fn work_of_nobody_is_over_with_its_own_completion() {
        let mut ledger = Ledger::new(2, Windows::default());
        assert_eq!((ledger.post_nothing(), ledger.post_message(1)), (0, 1));
        assert_eq!((ledger.complete(1, false), ledger.room()), (Some(WorkRequest::Send(1)), 0));
        assert_eq!((ledger.complete(0, false), ledger.room()), (Some(WorkRequest::Unsignalled), 2));
    }

    #[test]
    fn work_with_a_completion_is_not_over_with_a_later_one() {
        let mut ledger = Ledger::new(4, Windows::default());
        let [read, write] = [(); 2].map(|()| ledger.hold(Buffer::zeroed(4096), 0));
        ledger.post_operation(read, Some(7));
        ledger.post_operation(write, None);
        ledger.post_message(0);
        assert_eq!(ledger.complete(2, false), Some(WorkRequest::Send(0)));
        assert!(ledger.release(read).is_none(), "its data have not come");
        assert!(ledger.release(write).is_some());
        assert_eq!(ledger.room(), 1, "entries come back in their order");
        assert_eq!(ledger.complete(0, false), Some(READ));
        assert!(ledger.release(read).is_some());
        assert_eq!(ledger.room(), 4);
    }

    #[test]
    fn what_is_cancelled_says_nothing_of_others() {
        let mut ledger = Ledger::new(2, Windows::default());
        let held = ledger.hold(Buffer::zeroed(4096), 0);
        ledger.post_operation(held, None);
        let other = ledger.hold(Buffer::zeroed(4096), 0);
        ledger.post_operation(other, Some(7));
        assert_eq!(ledger.cancel(1), Some(READ));
        assert!(ledger.release(held).is_none());
        assert_eq!(ledger.cancel(0), Some(WorkRequest::Unsignalled));
        assert!(ledger.release(held).is_some());
    }

    #[test]
    fn a_buffer_that_was_given_comes_back_when_its_work_is_over() {
        let mut ledger = Ledger::new(2, Windows::default());
        for round in 0..3 {
            let buffer = Buffer::zeroed(4096);
            let address = buffer.as_slice().as_ptr() as u64;
            assert_eq!(ledger.post_given(buffer, 4096), (2 * round, address));
            ledger.post_message(1);
            assert!(ledger.take_returned().is_none());
            assert_eq!(ledger.complete(2 * round + 1, false), Some(WorkRequest::Send(1)));
            assert_eq!(ledger.take_returned().map(|buffer| buffer.as_slice().as_ptr() as u64), Some(address));
            assert!(ledger.take_returned().is_none());
        }
        ledger.post_given(Buffer::zeroed(4096), 1);
        assert_eq!(ledger.cancel(6), Some(WorkRequest::Unsignalled));
        assert!(ledger.take_returned().is_some() && ledger.room() == 2);
    }

    #[test]
    fn a_window_is_in_use_until_it_is_invalid() {
        let mut ledger = Ledger::new(4, Windows::new(vec![0x100, 0x200]));
        let buffer = Buffer::zeroed(4096);
        let (bound, window) = ledger.post_bind(buffer.region()).unwrap();
        assert_eq!(ledger.complete(bound, false), Some(WorkRequest::Unsignalled));
        assert!(ledger.is_bound(window));
        ledger.invalidated(window.key());
        assert!(!ledger.is_bound(window));

        let (_, window) = ledger.post_bind(buffer.region()).unwrap();
        let ends = ledger.post_invalidate(window, 7);
        assert_eq!(ledger.complete(ends, true), Some(READ));
        assert!(matches!(ledger.take_lost(), Some((index, Some(_))) if index == window.index));
        assert!(ledger.take_lost().is_none());
        assert!(ledger.post_bind(buffer.region()).is_some());
        assert!(ledger.post_bind(buffer.region()).is_none(), "one of them is lost");
    }

    #[test]
    fn the_name_of_a_released_buffer_is_not_that_of_the_next_one() {
        let mut ledger = Ledger::new(1, Windows::default());
        let first = ledger.hold(Buffer::zeroed(4096), 0);
        ledger.release(first).unwrap();
        let second = ledger.hold(Buffer::zeroed(8192), 0);
        assert!(ledger.release(first).is_none());
        assert_eq!(ledger.part(second, 4096, 4096).length, 4096);
    }

    #[test]
    #[should_panic(expected = "beyond the buffer")]
    fn work_is_within_its_buffer() {
        let mut ledger = Ledger::new(1, Windows::default());
        let held = ledger.hold(Buffer::zeroed(4096), 0);
        let _ = ledger.part(held, 1, 4096);
    }
}
