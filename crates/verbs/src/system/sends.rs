//! The send queue: slots for messages, and the work that is queued or under way, in its order.
//!
//! Work is numbered by the ledger, which knows when it is over. That before `taken` is, or was, the
//! adapter's; that from there to `flushed` was refused; that behind is queued.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use ebof_region::{Buffer, Region};

use super::device::Device;
use super::memory::MessageSlots;
use super::windows::MemoryWindows;
use super::{check, ffi};
use crate::ledger::windows::{self, Windows};
use crate::ledger::{Ledger, Part};
use crate::{Attributes, Error, HeldMemory, Remote, Window, WindowAccess, WorkCompletion, WorkRequest, WorkStatus};

/// The send queue of a queue pair.
pub(super) struct Sends {
    slots: MessageSlots,
    states: Box<[SlotState]>,
    free: Vec<u32>,
    /// Bytes of a message that are copied into the work request.
    inline_max: u32,
    /// Before the regions that they are bound to, which the ledger has.
    windows: MemoryWindows,
    ledger: Ledger,
    /// By the ledger's index.
    requests: Box<[ffi::SendWr]>,
    entries: Box<[ffi::Sge]>,
    taken: u64,
    flushed: u64,
    /// Refused work before this number was reported.
    reported: u64,
    /// It takes no work any more.
    broken: bool,
    /// All work has a completion.
    signals_all: bool,
}

// SAFETY: its pointers are into its own boxes.
// JUSTIFICATION: the library takes a list that is chained by pointers.
unsafe impl Send for Sends {}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotState {
    Free,
    Taken,
    Posted,
}

impl Sends {
    pub(super) fn new(device: &Arc<Device>, attributes: &Attributes) -> Result<Sends, Error> {
        let Attributes { sends: count, send_bytes: bytes, operations, windows, .. } = *attributes;
        let entries = u64::from(count) + u64::from(operations);
        let max = device.attributes().queue_entries;
        if entries > u64::from(max) {
            return Err(Error::Limit { what: "entries of a send queue", wanted: entries, max: max.into() });
        }
        let windows = MemoryWindows::new(device, windows)?;
        let entries = usize::try_from(entries).expect("at most an u32").max(1);
        let ledger = Ledger::new(entries, Windows::new(windows.keys()));
        let length = ledger.table_length();
        Ok(Sends {
            slots: MessageSlots::new(device, count, bytes)?,
            states: vec![SlotState::Free; count as usize].into(),
            free: (0..count).rev().collect(),
            inline_max: 0,
            windows,
            ledger,
            requests: (0..length).map(|_| ffi::SendWr::EMPTY).collect(),
            entries: vec![ffi::Sge::default(); length].into(),
            taken: 0,
            flushed: 0,
            reported: 0,
            broken: false,
            // Soft-iWARP sends the data of other work out of their pages, which TCP may still have
            // to do when a later completion says that they may be used again.
            signals_all: device.is_iwarp(),
        })
    }

    pub(super) fn set_inline_max(&mut self, bytes: u32) {
        self.inline_max = bytes;
    }

    /// Entries of the queue, of which none is in use.
    pub(super) fn capacity(&self) -> usize {
        self.ledger.room()
    }

    #[inline]
    pub(super) fn room(&self) -> usize {
        self.ledger.room()
    }

    /// How much was ever posted.
    pub(super) fn posted(&self) -> u64 {
        self.ledger.next()
    }

    pub(super) fn queued(&self) -> usize {
        usize::try_from(self.ledger.next() - self.flushed).expect("at most the length of the queue")
    }

    #[inline]
    pub(super) fn hold(&mut self, buffer: Buffer, key: u32) -> HeldMemory {
        self.ledger.hold(buffer, key)
    }

    #[inline]
    pub(super) fn memory(&mut self, held: HeldMemory) -> Option<&mut [u8]> {
        self.ledger.memory(held)
    }

    #[inline]
    pub(super) fn release(&mut self, held: HeldMemory) -> Option<Buffer> {
        self.ledger.release(held)
    }

    #[inline]
    pub(super) fn take_slot(&mut self) -> Option<u32> {
        let slot = self.free.pop()?;
        self.states[slot as usize] = SlotState::Taken;
        Some(slot)
    }

    #[inline]
    pub(super) fn slot(&mut self, slot: u32) -> &mut [u8] {
        assert!(self.states[slot as usize] == SlotState::Taken, "send slot {slot} is not the caller's");
        // SAFETY: the adapter does not have the slot, and it is posted only through an exclusive
        // borrow of this.
        // JUSTIFICATION: other slots are accessed by the adapter meanwhile.
        unsafe { self.slots.slice_mut(slot) }
    }

    #[inline]
    pub(super) fn post_message(&mut self, slot: u32, length: u32, invalidate: Option<u32>) {
        let state = std::mem::replace(&mut self.states[slot as usize], SlotState::Posted);
        assert!(state == SlotState::Taken, "send slot {slot} is not the caller's");
        assert!(length <= self.slots.bytes(), "a message of {length} bytes is longer than its slot");
        let entry = self.slots.entry(slot, length);
        let inline = if length <= self.inline_max { ffi::SEND_INLINE } else { 0 };
        let opcode = if invalidate.is_some() { ffi::WR_SEND_WITH_INV } else { ffi::WR_SEND };
        let number = self.ledger.post_message(slot);
        let request = self.prepare(number, entry);
        request.opcode = opcode;
        request.send_flags = ffi::SEND_SIGNALED | inline;
        request.invalidate_rkey = invalidate.unwrap_or_default();
    }

    #[inline]
    pub(super) fn post_read(&mut self, held: HeldMemory, offset: u32, length: u32, from: Remote, id: u64) {
        let request = self.operate(Some(id), held, offset, length, from);
        request.opcode = ffi::WR_RDMA_READ;
        request.send_flags = ffi::SEND_SIGNALED;
    }

    #[inline]
    pub(super) fn post_write(&mut self, held: HeldMemory, offset: u32, length: u32, to: Remote, id: Option<u64>) {
        let flags = self.write_flags(id.is_some());
        let request = self.operate(id, held, offset, length, to);
        request.opcode = ffi::WR_RDMA_WRITE;
        request.send_flags = flags;
    }

    /// `key` is that of the buffer's region.
    #[inline]
    pub(super) fn post_write_of(&mut self, buffer: Buffer, length: u32, key: u32, to: Remote) {
        let (number, address) = self.ledger.post_given(buffer, length);
        let flags = self.write_flags(false);
        let request = self.prepare(number, ffi::Sge { addr: address, length, lkey: key });
        request.opcode = ffi::WR_RDMA_WRITE;
        request.send_flags = flags;
        request.remote_addr = to.address;
        request.rkey = to.key;
    }

    #[inline]
    pub(super) fn take_written(&mut self) -> Option<Buffer> {
        self.ledger.take_returned()
    }

    /// Of an RDMA WRITE.
    #[inline]
    fn write_flags(&self, is_signalled: bool) -> u32 {
        if is_signalled || self.signals_all { ffi::SEND_SIGNALED } else { 0 }
    }

    /// `registration` is that of the region, for windows. `None`: there is no free window.
    #[inline]
    pub(super) fn post_bind(
        &mut self,
        (region, registration): (&Arc<Region>, NonNull<ffi::Mr>),
        offset: usize,
        length: u32,
        access: WindowAccess,
    ) -> Option<Window> {
        let (number, window) = self.ledger.post_bind(region)?;
        let pointer = self.windows.prepare(window.index, windows::before(window));
        let request = self.prepare(number, ffi::Sge::default());
        request.num_sge = 0;
        request.opcode = ffi::WR_BIND_MW;
        request.send_flags = 0;
        // Soft-RoCE insists.
        request.invalidate_rkey = 0;
        request.mw = pointer;
        request.mw_rkey = window.key;
        request.mw_mr = registration.as_ptr();
        request.mw_addr = region.address() as u64 + offset as u64;
        request.mw_length = length.into();
        request.mw_access = match access {
            WindowAccess::Read => ffi::ACCESS_REMOTE_READ,
            WindowAccess::Write => ffi::ACCESS_REMOTE_WRITE,
        }
        .cast_unsigned();
        Some(window)
    }

    #[inline]
    pub(super) fn post_invalidate(&mut self, window: Window, id: u64) {
        let number = self.ledger.post_invalidate(window, id);
        let request = self.prepare(number, ffi::Sge::default());
        request.num_sge = 0;
        request.opcode = ffi::WR_LOCAL_INV;
        request.send_flags = ffi::SEND_SIGNALED;
        request.invalidate_rkey = window.key;
    }

    /// An RDMA READ or WRITE of no bytes, which has no completion for the owner unless it fails. No
    /// key and no address are checked for it.
    pub(super) fn post_nothing(&mut self, opcode: i32) {
        let number = self.ledger.post_nothing();
        let request = self.prepare(number, ffi::Sge::default());
        request.opcode = opcode;
        request.send_flags = ffi::SEND_SIGNALED;
        request.remote_addr = 0;
        request.rkey = 0;
    }

    #[inline]
    pub(super) fn is_bound(&self, window: Window) -> bool {
        self.ledger.is_bound(window)
    }

    pub(super) fn windows(&mut self) -> &mut MemoryWindows {
        &mut self.windows
    }

    /// The peer has invalidated a key.
    #[inline]
    pub(super) fn invalidated(&mut self, key: u32) {
        self.ledger.invalidated(key);
    }

    #[inline]
    fn operate(
        &mut self,
        id: Option<u64>,
        held: HeldMemory,
        offset: u32,
        length: u32,
        remote: Remote,
    ) -> &mut ffi::SendWr {
        let Part { address, length, key } = self.ledger.part(held, offset, length);
        let number = self.ledger.post_operation(held, id);
        let request = self.prepare(number, ffi::Sge { addr: address, length, lkey: key });
        request.remote_addr = remote.address;
        request.rkey = remote.key;
        request
    }

    /// The request of a number, with one scatter entry.
    #[inline]
    fn prepare(&mut self, number: u64, entry: ffi::Sge) -> &mut ffi::SendWr {
        let at = self.ledger.index(number);
        self.entries[at] = entry;
        let request = &mut self.requests[at];
        request.wr_id = number;
        request.num_sge = 1;
        request
    }

    /// From now on nothing is given to the adapter: it comes back.
    pub(super) fn stop(&mut self) {
        self.broken = true;
    }

    /// Gives everything that is queued to the adapter.
    ///
    /// # Errors
    /// Some of it was not taken, as nothing will be from now on: `poll_refused` returns it.
    pub(super) fn flush(&mut self, queue_pair: NonNull<ffi::Qp>) -> Result<(), Error> {
        let (from, next) = (self.flushed, self.ledger.next());
        if from == next {
            return Ok(());
        }
        self.flushed = next;
        if self.broken {
            return Ok(());
        }
        let first = self.link(from, next);
        let mut bad: *mut ffi::SendWr = ptr::null_mut();
        // SAFETY: the queue pair is alive; the requests are a list that ends. What they refer to is
        // the adapter's until a completion: slots by their state, buffers by their count.
        // JUSTIFICATION: the header of the library does the same.
        let returned = unsafe {
            let context = queue_pair.as_ref().context.as_ref();
            context
                .and_then(|context| context.ops.post_send)
                .map_or(libc::ENOSYS, |post| post(queue_pair.as_ptr(), first, &raw mut bad))
        };
        let result = check("ibv_post_send", returned);
        if result.is_ok() {
            self.taken = next;
        } else {
            self.broken = true;
            let requests = self.requests.as_ptr();
            let is_bad = |number: &u64| ptr::eq(requests.wrapping_add(self.ledger.index(*number)), bad);
            self.taken = (from..next).find(is_bad).unwrap_or(from);
        }
        result
    }

    /// The requests of these numbers, as a list, each with its scatter entry. The last one always
    /// has a completion: otherwise the buffers of RDMA WRITEs behind which nothing is posted would
    /// not come back.
    #[inline]
    fn link(&mut self, from: u64, next: u64) -> *mut ffi::SendWr {
        let (first, last) = (self.ledger.index(from), self.ledger.index(next - 1));
        self.requests[last].send_flags |= ffi::SEND_SIGNALED;
        let count = self.requests.len();
        let requests = self.requests.as_mut_ptr();
        let entries = self.entries.as_mut_ptr();
        let mut at = first;
        loop {
            let following = if at + 1 == count { 0 } else { at + 1 };
            let next = if at == last { ptr::null_mut() } else { requests.wrapping_add(following) };
            // SAFETY: `at` is an index of both boxes.
            // JUSTIFICATION: the pointers in the list are derived from one for the whole box.
            unsafe {
                let request = requests.add(at);
                (*request).next = next;
                (*request).sg_list = entries.add(at);
            }
            if at == last {
                return requests.wrapping_add(first);
            }
            at = following;
        }
    }

    /// The next piece of work that was refused.
    #[inline]
    pub(super) fn poll_refused(&mut self) -> Option<WorkCompletion> {
        if !self.broken {
            return None;
        }
        self.next_refused()
    }

    #[cold]
    fn next_refused(&mut self) -> Option<WorkCompletion> {
        let number = self.reported.max(self.taken);
        if number >= self.flushed {
            return None;
        }
        self.reported = number + 1;
        let what = self.ledger.cancel(number)?;
        self.take_away_lost();
        self.over(what);
        Some(WorkCompletion::Failed { what, status: WorkStatus::Flushed })
    }

    /// The completion of a number. `None`: nobody has asked for it.
    ///
    /// # Errors
    /// There is no work of this number: the adapter, or the library, is broken.
    #[inline]
    pub(super) fn complete(&mut self, completion: &ffi::Wc) -> Result<Option<WorkCompletion>, Error> {
        let number = completion.wr_id;
        if number >= self.taken {
            return Err(Error::State("in error: a completion is of nothing that was posted"));
        }
        // One that was implied by a later one can still be reported.
        let has_failed = completion.status != ffi::WC_SUCCESS;
        let Some(what) = self.ledger.complete(number, has_failed) else { return Ok(None) };
        self.over(what);
        if has_failed {
            self.take_away_lost();
            let status = super::completions::status(completion.status);
            return Ok(Some(WorkCompletion::Failed { what, status }));
        }
        Ok(match what {
            WorkRequest::Send(slot) => Some(WorkCompletion::Sent { slot }),
            WorkRequest::Operation(id) => Some(WorkCompletion::Done { id }),
            WorkRequest::Receive(_) | WorkRequest::Unsignalled => None,
        })
    }

    /// Windows that could not be invalidated are taken away.
    #[cold]
    fn take_away_lost(&mut self) {
        while let Some((index, _region)) = self.ledger.take_lost() {
            self.windows.take_away(index);
        }
    }

    /// A piece of work is over: a slot is free again.
    #[inline]
    fn over(&mut self, what: WorkRequest) {
        if let WorkRequest::Send(slot) = what {
            self.states[slot as usize] = SlotState::Free;
            self.free.push(slot);
        }
    }
}
