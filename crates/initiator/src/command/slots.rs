//! The commands of one queue with their buffers: those outstanding, and those completed but not yet
//! collected.

use std::collections::VecDeque;
use std::sync::Arc;

use ebof_nvme::{Cid, Cqe};
use ebof_region::Region;

use crate::command::data::{AdminData, Completion, Data, IoBuffer};
use crate::error::Error;

/// Where a command's data live.
#[derive(Debug)]
pub(crate) enum Payload<B> {
    /// The command has no data, or the slot is free.
    None,
    /// The slot owns the buffer; the controller fills it.
    ToHost(B),
    /// The slot owns the buffer; the controller reads it.
    FromHost(B),
    /// A part of the buffer that the caller lends with every call.
    Lent {
        /// Offset in the lent buffer.
        start: usize,
        /// Length in bytes.
        length: usize,
    },
}

/// One command.
#[derive(Debug)]
pub(crate) struct Slot<B> {
    /// The full command identifier; the low bits are the slot's index, the others change with every
    /// use.
    pub(crate) cid: Cid,
    pub(crate) user: u64,
    pub(crate) payload: Payload<B>,
    /// Bytes to transfer.
    pub(crate) expected: u32,
    /// Bytes that have to be transferred for success.
    pub(crate) required: u32,
    /// Parts of the buffer in the link's send queue. It is not given back before they are sent.
    pub(crate) unsent: u32,
    state: State,
    /// The result, once the command completed.
    result: Option<Result<Cqe, Error>>,
    /// When it times out, in milliseconds of [`crate::wait::Time::now_ms`]; `u64::MAX` for never.
    pub(crate) deadline_ms: u64,
    /// Whether an Abort was requested.
    pub(crate) aborted: bool,
}

/// `Free` -> `Outstanding` -> (`Draining` while payloads are still being sent) -> `Completed` ->
/// `Free`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Outstanding,
    Draining,
    Completed,
}

/// The slots of a queue.
#[derive(Debug)]
pub(crate) struct Slots<B> {
    slots: Vec<Slot<B>>,
    free: Vec<u16>,
    completed: VecDeque<u16>,
    completed_lent: VecDeque<(u64, Result<Cqe, Error>)>,
    /// Outstanding commands with lent buffers.
    lent: usize,
    /// What is added to a CID with every use of its slot: the number of slots, a power of two.
    step: u16,
    /// Commands that may be outstanding at once.
    limit: usize,
}

impl<B> Slot<B> {
    /// Whether the slot owns the buffer until the command completes.
    pub(crate) fn is_owner(&self) -> bool {
        matches!(self.payload, Payload::ToHost(_) | Payload::FromHost(_))
    }
}

impl<B> Slots<B> {
    pub(crate) fn at(&mut self, index: u16) -> &mut Slot<B> {
        &mut self.slots[usize::from(index)]
    }

    /// The link has sent one part of the command's buffer.
    pub(crate) fn payload_sent(&mut self, index: u16) {
        let slot = self.at(index);
        debug_assert!(slot.unsent > 0, "each part in the send queue was counted");
        slot.unsent -= 1;
        if slot.unsent == 0 && slot.state == State::Draining {
            self.complete(index);
        }
    }

    /// Leaks the buffers that are not sent completely; their commands complete without data.
    /// Returns how many. For memory that a network card may still read.
    pub(crate) fn leak_unsent(&mut self) -> usize {
        let unsent = self.slots.iter_mut().filter(|slot| slot.unsent > 0 && slot.is_owner());
        unsent.map(|slot| std::mem::forget(std::mem::replace(&mut slot.payload, Payload::None))).count()
    }

    /// Commands that are outstanding or not collected yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn complete(&mut self, index: u16) {
        let slot = self.at(index);
        slot.state = State::Completed;
        if matches!(slot.payload, Payload::Lent { .. }) {
            let done = self.release(index);
            self.lent -= 1;
            self.completed_lent.push_back((done.user, done.result));
        } else {
            self.completed.push_back(index);
        }
    }

    fn release(&mut self, index: u16) -> Completion<B> {
        let slot = self.at(index);
        debug_assert!(slot.state == State::Completed, "a slot is free again when its command was completed, once");
        slot.state = State::Free;
        let data = match std::mem::replace(&mut slot.payload, Payload::None) {
            Payload::ToHost(buffer) => Data::ToHost(buffer),
            Payload::FromHost(buffer) => Data::FromHost(buffer),
            Payload::None | Payload::Lent { .. } => Data::None,
        };
        let result = slot.result.take().expect("a command completes with a result");
        let user = slot.user;
        self.free.push(index);
        Completion { user, result, data }
    }
}

impl<B: IoBuffer> Slots<B> {
    /// Room for `limit` commands, at least 1 and at most 4096.
    pub(crate) fn new(limit: u16) -> Self {
        let limit = limit.clamp(1, 4096);
        let slots = (0..limit).map(|index| Slot {
            cid: Cid(index),
            user: 0,
            payload: Payload::None,
            expected: 0,
            required: 0,
            unsent: 0,
            state: State::Free,
            result: None,
            deadline_ms: u64::MAX,
            aborted: false,
        });
        Self {
            slots: slots.collect(),
            free: (0..limit).rev().collect(),
            completed: VecDeque::with_capacity(usize::from(limit)),
            completed_lent: VecDeque::with_capacity(usize::from(limit)),
            lent: 0,
            step: limit.next_power_of_two(),
            limit: usize::from(limit),
        }
    }

    /// Size of the link's table of commands: outstanding command identifiers differ modulo this.
    pub(crate) const fn table_size(&self) -> usize {
        self.step as usize
    }

    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Sets how many commands may be outstanding: at most as many as there are slots.
    pub(crate) fn set_limit(&mut self, limit: u16) {
        self.limit = usize::from(limit).clamp(1, self.slots.len());
    }

    /// Outstanding commands with lent buffers.
    pub(crate) const fn lent(&self) -> usize {
        self.lent
    }

    /// Whether as many commands are in use as may be at once.
    pub(crate) fn is_full(&self) -> bool {
        self.in_flight() >= self.limit
    }

    /// Puts a command into a free slot. Nothing may be taken while [`Slots::is_full`].
    pub(crate) fn take(&mut self, payload: Payload<B>, user: u64, timeout_ms: u64, now_ms: u64) -> u16 {
        debug_assert!(!self.is_full(), "a queue has no more commands than its limit");
        let index = self.free.pop().expect("there are at least `limit` slots, and fewer are in use");
        let slot = &mut self.slots[usize::from(index)];
        debug_assert!(slot.state == State::Free, "two commands would have one slot");
        slot.cid = Cid(slot.cid.0.wrapping_add(self.step));
        slot.user = user;
        self.lent += usize::from(matches!(payload, Payload::Lent { .. }));
        slot.payload = payload;
        slot.expected = 0;
        slot.required = 0;
        slot.state = State::Outstanding;
        slot.deadline_ms = now_ms.saturating_add(timeout_ms);
        slot.aborted = false;
        index
    }

    /// The slot of an outstanding command.
    pub(crate) fn find(&self, cid: Cid) -> Option<u16> {
        let index = cid.0 & (self.step - 1);
        let slot = self.slots.get(usize::from(index))?;
        (slot.cid == cid && slot.state == State::Outstanding).then_some(index)
    }

    /// The data that a command sends; `None` if there are none.
    pub(crate) fn data<'a>(&'a self, index: u16, lent: &'a AdminData<'_>) -> Option<&'a [u8]> {
        match (&self.slots.get(usize::from(index))?.payload, lent) {
            (Payload::FromHost(buffer) | Payload::ToHost(buffer), _) => Some(buffer.as_ref()),
            (Payload::Lent { start, length }, AdminData::FromHost(bytes)) => bytes.get(*start..*start + *length),
            _ => None,
        }
    }

    /// The region that all data of a command lie in, and their address in this process; `None` if
    /// there is no such region, or if the slot does not own them.
    pub(crate) fn in_region(&self, index: u16) -> Option<(&Arc<Region>, usize)> {
        let (Payload::ToHost(buffer) | Payload::FromHost(buffer)) = &self.slots.get(usize::from(index))?.payload else {
            return None;
        };
        let (region, bytes) = (buffer.region()?, buffer.as_ref());
        let offset = bytes.as_ptr().addr().checked_sub(region.address().addr())?;
        let end = offset.checked_add(bytes.len())?;
        (end <= region.capacity()).then_some((region, offset))
    }

    /// The buffer that a command receives into; `None` if there is none.
    pub(crate) fn data_mut<'a>(&'a mut self, index: u16, lent: &'a mut AdminData<'_>) -> Option<&'a mut [u8]> {
        match (&mut self.slots.get_mut(usize::from(index))?.payload, lent) {
            (Payload::ToHost(buffer), _) => Some(buffer.as_mut()),
            (Payload::Lent { start, length }, AdminData::ToHost(bytes)) => bytes.get_mut(*start..*start + *length),
            _ => None,
        }
    }

    /// The command completed with `result`. It can be collected once its buffer is not in the send
    /// queue any more.
    // Inlined: the call was a tenth of a completion's instructions.
    #[inline(always)]
    pub(crate) fn finish(&mut self, index: u16, result: Result<Cqe, Error>) {
        let slot = self.at(index);
        // Whatever a target sends: links find a command's slot by `find`.
        debug_assert!(slot.state == State::Outstanding, "a command completes once");
        slot.result = Some(result);
        if slot.unsent > 0 {
            slot.state = State::Draining;
        } else {
            self.complete(index);
        }
    }

    /// Completes all outstanding commands with `error`, after the link and its send queue are gone.
    pub(crate) fn fail_all(&mut self, error: &Error) {
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            slot.unsent = 0;
            if slot.state == State::Outstanding {
                slot.result = Some(Err(error.clone()));
            }
            if matches!(slot.state, State::Outstanding | State::Draining) {
                self.complete(u16::try_from(index).expect("there are at most 4096 slots"));
            }
        }
    }

    /// Whether [`Slots::pop`] has something.
    pub(crate) fn has_completed(&self) -> bool {
        !self.completed.is_empty()
    }

    /// The next completed command that owned its data.
    pub(crate) fn pop(&mut self) -> Option<Completion<B>> {
        let index = self.completed.pop_front()?;
        Some(self.release(index))
    }

    /// Whether the next is there.
    pub(crate) fn has_completed_lent(&self) -> bool {
        !self.completed_lent.is_empty()
    }

    /// The next completed command with a lent buffer: its user value and result.
    pub(crate) fn pop_lent(&mut self) -> Option<(u64, Result<Cqe, Error>)> {
        self.completed_lent.pop_front()
    }

    /// The outstanding commands submitted with `user`.
    pub(crate) fn outstanding_of(&self, user: u64) -> impl Iterator<Item = Cid> {
        self.slots.iter().filter(move |slot| slot.state == State::Outstanding && slot.user == user).map(|slot| slot.cid)
    }

    /// Passes commands whose deadline is past at `now_ms` to `abort`, and gives them `grace_ms`
    /// more. Returns `true` if a command is still outstanding after that. Commands that the
    /// controller completed without reading their data have the same deadline: it could hold their
    /// buffers for ever.
    pub(crate) fn expire(&mut self, now_ms: u64, grace_ms: u64, mut abort: impl FnMut(Cid, u64)) -> bool {
        let mut abort_timed_out = false;
        for slot in &mut self.slots {
            if !matches!(slot.state, State::Outstanding | State::Draining) || slot.deadline_ms > now_ms {
                continue;
            }
            abort_timed_out |= slot.aborted;
            if !slot.aborted {
                slot.aborted = true;
                slot.deadline_ms = now_ms.saturating_add(grace_ms);
                if slot.state == State::Outstanding {
                    abort(slot.cid, slot.user);
                }
            }
        }
        abort_timed_out
    }

    /// The earliest deadline, in milliseconds; `u64::MAX` for none.
    pub(crate) fn next_deadline_ms(&self) -> u64 {
        let not_over = self.slots.iter().filter(|slot| matches!(slot.state, State::Outstanding | State::Draining));
        not_over.map(|slot| slot.deadline_ms).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
