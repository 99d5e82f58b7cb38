//! Accounts of a queue pair, of either kind: the buffers that it holds, the entries of its send
//! queue, and its memory windows.
//!
//! An entry is known by its number: the first one is 0. A completion is of one number, and of the
//! work before it that has no completion of its own. Other work before it is not over: soft-iWARP
//! reports a write while a read that was posted before it is under way, whose buffer it still
//! accesses.

use std::sync::Arc;

use ebof_region::{Buffer, Region};

use crate::windows::Windows;
use crate::{Held, Window, WorkRequest};

/// The accounts of one queue pair.
#[derive(Debug)]
pub(crate) struct Ledger {
    held: Vec<HeldBuffer>,
    /// Indices in `held` without a buffer.
    free: Vec<u32>,
    /// What is in the send queue, or about to be, by [`Ledger::index`]; `None`: over.
    entries: Box<[Option<Entry>]>,
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

#[derive(Clone, Copy, Debug)]
struct Entry {
    what: WorkRequest,
    about: About,
}

#[derive(Clone, Copy, Debug)]
enum About {
    Nothing,
    /// It uses a buffer: the index in `held`.
    Buffer(u32),
    /// It invalidates a window.
    Window(u32),
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
            entries: vec![None; capacity.next_power_of_two()].into(),
            capacity,
            oldest: 0,
            implied: 0,
            next: 0,
            windows,
            lost: Vec::new(),
        }
    }

    /// `key` is that of its region, for work of this end.
    #[inline]
    pub(crate) fn hold(&mut self, buffer: Buffer, key: u32) -> Held {
        let index = self.free.pop().unwrap_or_else(|| self.add());
        let entry = &mut self.held[index as usize];
        entry.address = buffer.region().address().addr() as u64 + buffer.offset() as u64;
        entry.length = u32::try_from(buffer.capacity()).unwrap_or(u32::MAX);
        entry.key = key;
        entry.buffer = Some(buffer);
        Held { index, generation: entry.generation }
    }

    #[cold]
    fn add(&mut self) -> u32 {
        self.held.push(HeldBuffer { buffer: None, address: 0, length: 0, key: 0, generation: 0, uses: 0 });
        // `release` then never has to allocate.
        self.free.reserve(self.held.len());
        u32::try_from(self.held.len() - 1).expect("each is a buffer of at least one page")
    }

    /// `None` if it is in use, or was released.
    #[inline]
    pub(crate) fn release(&mut self, held: Held) -> Option<Buffer> {
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
    pub(crate) fn buffer(&self, held: Held) -> &Buffer {
        self.held[held.index as usize].buffer.as_ref().expect("it is held, as the look-up of its part has found")
    }

    /// A part of a buffer.
    ///
    /// # Panics
    /// It has no such part, or there is no such buffer.
    #[inline]
    pub(crate) fn part(&self, held: Held, offset: u32, length: u32) -> Part {
        let entry = &self.held[held.index as usize];
        assert!(entry.generation == held.generation && entry.buffer.is_some(), "the buffer was released");
        assert!(offset.checked_add(length).is_some_and(|end| end <= entry.length), "beyond the buffer");
        Part { address: entry.address + u64::from(offset), length, key: entry.key }
    }

    /// Free entries of the send queue.
    #[inline]
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

    /// Adds an entry to the send queue, and returns its number.
    ///
    /// # Panics
    /// There is no room.
    #[inline]
    pub(crate) fn post(&mut self, what: WorkRequest, held: Option<Held>) -> u64 {
        let about = held.map_or(About::Nothing, |held| About::Buffer(held.index));
        if let Some(held) = held {
            self.held[held.index as usize].uses += 1;
        }
        self.add_entry(what, about)
    }

    /// Adds an entry that binds a free window to a part of a region, and returns its number as
    /// well. `None`: there is no free window.
    ///
    /// # Panics
    /// There is no room.
    #[inline]
    pub(crate) fn post_bind(&mut self, region: &Arc<Region>) -> Option<(u64, Window)> {
        let window = self.windows.bind(region)?;
        Some((self.add_entry(WorkRequest::Unsignalled, About::Nothing), window))
    }

    /// Adds an entry that invalidates a window, and returns its number.
    ///
    /// # Panics
    /// There is no room, or the window is not bound.
    #[inline]
    pub(crate) fn post_invalidate(&mut self, window: Window, id: u64) -> u64 {
        self.windows.end(window);
        self.add_entry(WorkRequest::Operation(id), About::Window(window.index))
    }

    #[inline]
    fn add_entry(&mut self, what: WorkRequest, about: About) -> u64 {
        assert!(self.room() > 0, "there is no room in the send queue");
        let number = self.next;
        self.entries[self.index(number)] = Some(Entry { what, about });
        self.next += 1;
        number
    }

    #[inline]
    pub(crate) fn is_bound(&self, window: Window) -> bool {
        self.windows.is_bound(window)
    }

    /// The peer has invalidated a key.
    #[inline]
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
    #[inline]
    pub(crate) fn complete(&mut self, number: u64, has_failed: bool) -> Option<WorkRequest> {
        let what = self.end(number, has_failed)?;
        while self.implied < number {
            let at = self.index(self.implied);
            if self.entries[at].is_some_and(|entry| entry.what == WorkRequest::Unsignalled) {
                self.end(self.implied, has_failed);
            }
            self.implied += 1;
        }
        self.implied = self.implied.max(number + 1);
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
        let Entry { what, about } = self.entries[self.index(number)].take()?;
        match about {
            About::Nothing => {}
            About::Buffer(index) => self.held[index as usize].uses -= 1,
            About::Window(index) if has_failed => self.lost.push((index, self.windows.lost(index))),
            About::Window(index) => self.windows.ended(index),
        }
        Some(what)
    }

    #[inline]
    fn advance(&mut self) {
        while self.oldest < self.next && self.entries[self.index(self.oldest)].is_none() {
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
        assert_eq!(ledger.post(WorkRequest::Unsignalled, Some(held)), 0);
        assert_eq!(ledger.post(READ, Some(held)), 1);
        assert_eq!(ledger.post(WorkRequest::Send(2), None), 2);
        assert_eq!((ledger.room(), ledger.complete(3, false)), (0, None));
        assert!(ledger.release(held).is_none());
        assert_eq!(ledger.complete(1, false), Some(READ));
        assert_eq!((ledger.room(), ledger.complete(0, false)), (2, None));
        assert!(ledger.release(held).is_some() && ledger.release(held).is_none());
        assert_eq!(ledger.complete(2, false), Some(WorkRequest::Send(2)));
        assert_eq!((ledger.complete(2, false), ledger.room()), (None, 3));
    }

    #[test]
    fn work_with_a_completion_is_not_over_with_a_later_one() {
        let mut ledger = Ledger::new(4, Windows::default());
        let [read, write] = [(); 2].map(|()| ledger.hold(Buffer::zeroed(4096), 0));
        ledger.post(READ, Some(read));
        ledger.post(WorkRequest::Unsignalled, Some(write));
        ledger.post(WorkRequest::Send(0), None);
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
        ledger.post(WorkRequest::Unsignalled, Some(held));
        ledger.post(READ, None);
        assert_eq!(ledger.cancel(1), Some(READ));
        assert!(ledger.release(held).is_none());
        assert_eq!(ledger.cancel(0), Some(WorkRequest::Unsignalled));
        assert!(ledger.release(held).is_some());
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
