//! The commands that are outstanding on one queue, with their buffers, and those that are over but
//! not yet collected.

use std::collections::VecDeque;

use ebof_nvme::{Cid, Cqe};

use crate::data::{AdminData, Completion, Data};
use crate::error::Error;

/// Where a command's data live.
#[derive(Debug)]
pub(crate) enum Payload<B> {
    /// Nowhere: it has none, or the slot is free.
    None,
    /// In a buffer that the slot owns; the controller fills it.
    ToHost(B),
    /// In a buffer that the slot owns; the controller takes it.
    FromHost(B),
    /// In the buffer that the caller lends for the time of one call, from this offset on.
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
    /// Bytes that are to be transferred.
    pub(crate) expected: u32,
    /// Bytes that have to be transferred for success.
    pub(crate) least: u32,
    /// Payloads that the link refers to: the buffer must stay until they are sent.
    pub(crate) unsent: u32,
    state: State,
    /// How it ended, once it did.
    result: Option<Result<Cqe, Error>>,
    /// When it times out, in milliseconds of [`crate::wait::now_ms`]; `u64::MAX` never.
    pub(crate) deadline_ms: u64,
    /// Whether an Abort was asked for.
    pub(crate) aborted: bool,
}

/// `Free` -> `Outstanding` -> (`Ending` while payloads are still being sent) -> `Over` -> `Free`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Outstanding,
    Ending,
    Over,
}

/// The slots of a queue.
#[derive(Debug)]
pub(crate) struct Slots<B> {
    slots: Vec<Slot<B>>,
    free: Vec<u16>,
    over: VecDeque<u16>,
    lent_over: VecDeque<(u64, Result<Cqe, Error>)>,
    /// Commands with lent buffers that are not over.
    lent: usize,
    /// What is added to a CID with every use of its slot: the number of slots, a power of two.
    step: u16,
    /// Commands that may be outstanding at once.
    limit: usize,
}

impl<B> Slot<B> {
    /// Whether the buffer is the slot's own until the command is over.
    pub(crate) fn is_owner(&self) -> bool {
        matches!(self.payload, Payload::ToHost(_) | Payload::FromHost(_))
    }
}

impl<B> Slots<B> {
    pub(crate) fn at(&mut self, index: u16) -> &mut Slot<B> {
        &mut self.slots[usize::from(index)]
    }

    /// A payload of the command was sent completely.
    pub(crate) fn payload_sent(&mut self, index: u16) {
        let slot = self.at(index);
        slot.unsent -= 1;
        if slot.unsent == 0 && slot.state == State::Ending {
            self.over(index);
        }
    }

    /// Buffers of which something is not sent are never given back; their commands end without
    /// them. Returns how many.
    pub(crate) fn withhold_unsent(&mut self) -> usize {
        let unsent = self.slots.iter_mut().filter(|slot| slot.unsent > 0 && slot.is_owner());
        unsent.map(|slot| std::mem::forget(std::mem::replace(&mut slot.payload, Payload::None))).count()
    }

    /// Commands that are not collected yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn over(&mut self, index: u16) {
        let slot = self.at(index);
        slot.state = State::Over;
        if matches!(slot.payload, Payload::Lent { .. }) {
            let done = self.release(index);
            self.lent -= 1;
            self.lent_over.push_back((done.user, done.result));
        } else {
            self.over.push_back(index);
        }
    }

    fn release(&mut self, index: u16) -> Completion<B> {
        let slot = self.at(index);
        slot.state = State::Free;
        let data = match std::mem::replace(&mut slot.payload, Payload::None) {
            Payload::ToHost(buffer) => Data::ToHost(buffer),
            Payload::FromHost(buffer) => Data::FromHost(buffer),
            Payload::None | Payload::Lent { .. } => Data::None,
        };
        let result = slot.result.take().unwrap_or(Err(Error::Malformed("a command without an end")));
        let user = slot.user;
        self.free.push(index);
        Completion { user, result, data }
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Slots<B> {
    /// Room for `limit` commands, at least 1 and at most 4096.
    pub(crate) fn new(limit: u16) -> Self {
        let limit = limit.clamp(1, 4096);
        let slots = (0..limit).map(|index| Slot {
            cid: Cid(index),
            user: 0,
            payload: Payload::None,
            expected: 0,
            least: 0,
            unsent: 0,
            state: State::Free,
            result: None,
            deadline_ms: u64::MAX,
            aborted: false,
        });
        Self {
            slots: slots.collect(),
            free: (0..limit).rev().collect(),
            over: VecDeque::with_capacity(usize::from(limit)),
            lent_over: VecDeque::with_capacity(usize::from(limit)),
            lent: 0,
            step: limit.next_power_of_two(),
            limit: usize::from(limit),
        }
    }

    /// Places in the connection's table: command identifiers differ modulo this.
    pub(crate) const fn table(&self) -> usize {
        self.step as usize
    }

    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Lowers (or raises, up to what was made) how many commands may be outstanding.
    pub(crate) fn set_limit(&mut self, limit: u16) {
        self.limit = usize::from(limit).clamp(1, self.slots.len());
    }

    /// Commands with lent buffers that are not over.
    pub(crate) const fn lent(&self) -> usize {
        self.lent
    }

    /// Takes a free slot for a command; `None` when there is none.
    pub(crate) fn take(
        &mut self,
        payload: Payload<B>,
        user: u64,
        timeout_ms: u64,
        now_ms: u64,
    ) -> Result<u16, Payload<B>> {
        if self.in_flight() >= self.limit {
            return Err(payload);
        }
        let Some(index) = self.free.pop() else { return Err(payload) };
        let slot = &mut self.slots[usize::from(index)];
        slot.cid = Cid(slot.cid.0.wrapping_add(self.step));
        slot.user = user;
        self.lent += usize::from(matches!(payload, Payload::Lent { .. }));
        slot.payload = payload;
        slot.expected = 0;
        slot.least = 0;
        slot.state = State::Outstanding;
        slot.deadline_ms = now_ms.saturating_add(timeout_ms);
        slot.aborted = false;
        Ok(index)
    }

    /// The slot of an outstanding command.
    pub(crate) fn find(&self, cid: Cid) -> Option<u16> {
        let index = cid.0 & (self.step - 1);
        let slot = self.slots.get(usize::from(index))?;
        (slot.cid == cid && slot.state == State::Outstanding).then_some(index)
    }

    /// The bytes of a command's data.
    pub(crate) fn bytes<'a>(&'a self, index: u16, lent: &'a AdminData<'_>) -> Option<&'a [u8]> {
        match (&self.slots.get(usize::from(index))?.payload, lent) {
            (Payload::FromHost(buffer) | Payload::ToHost(buffer), _) => Some(buffer.as_ref()),
            (Payload::Lent { start, length }, AdminData::FromHost(bytes)) => bytes.get(*start..*start + *length),
            _ => None,
        }
    }

    /// Where the next bytes for a command belong.
    pub(crate) fn room<'a>(&'a mut self, index: u16, lent: &'a mut AdminData<'_>) -> Option<&'a mut [u8]> {
        match (&mut self.slots.get_mut(usize::from(index))?.payload, lent) {
            (Payload::ToHost(buffer), _) => Some(buffer.as_mut()),
            (Payload::Lent { start, length }, AdminData::ToHost(bytes)) => bytes.get_mut(*start..*start + *length),
            _ => None,
        }
    }

    /// The command is over; it can be collected once its buffer is not being sent any more.
    // By itself it costs a tenth of all that a completion does, and every link's `receive` has one.
    #[inline(always)]
    pub(crate) fn finish(&mut self, index: u16, result: Result<Cqe, Error>) {
        let slot = self.at(index);
        slot.result = Some(result);
        if slot.unsent > 0 {
            slot.state = State::Ending;
        } else {
            self.over(index);
        }
    }

    /// The connection is gone, and the send queue with it: everything that is not over ends with
    /// `error`.
    pub(crate) fn finish_all(&mut self, error: &Error) {
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            slot.unsent = 0;
            if slot.state == State::Outstanding {
                slot.result = Some(Err(error.clone()));
            }
            if matches!(slot.state, State::Outstanding | State::Ending)
                && let Ok(index) = u16::try_from(index)
            {
                self.over(index);
            }
        }
    }

    /// The next command that is over.
    pub(crate) fn pop(&mut self) -> Option<Completion<B>> {
        let index = self.over.pop_front()?;
        Some(self.release(index))
    }

    /// The next command with a lent buffer that is over.
    pub(crate) fn pop_lent(&mut self) -> Option<(u64, Result<Cqe, Error>)> {
        self.lent_over.pop_front()
    }

    /// The outstanding commands of `user`.
    pub(crate) fn of_user(&self, user: u64) -> impl Iterator<Item = Cid> {
        self.slots.iter().filter(move |slot| slot.state == State::Outstanding && slot.user == user).map(|slot| slot.cid)
    }

    /// Outstanding commands whose time is over at `now_ms`: to be aborted the first time (told to
    /// `abort`), with `grace_ms` for that to work; `true` when that time is over too. Those that
    /// the controller has answered without taking their data have as long: it could keep their
    /// buffers for ever.
    pub(crate) fn expire(&mut self, now_ms: u64, grace_ms: u64, mut abort: impl FnMut(Cid, u64)) -> bool {
        let mut hopeless = false;
        for slot in &mut self.slots {
            if !matches!(slot.state, State::Outstanding | State::Ending) || slot.deadline_ms > now_ms {
                continue;
            }
            hopeless |= slot.aborted;
            if !slot.aborted {
                slot.aborted = true;
                slot.deadline_ms = now_ms.saturating_add(grace_ms);
                if slot.state == State::Outstanding {
                    abort(slot.cid, slot.user);
                }
            }
        }
        hopeless
    }

    /// The earliest deadline of a command that is not over; `u64::MAX` for none.
    pub(crate) fn next_deadline_ms(&self) -> u64 {
        let not_over = self.slots.iter().filter(|slot| matches!(slot.state, State::Outstanding | State::Ending));
        not_over.map(|slot| slot.deadline_ms).min().unwrap_or(u64::MAX)
    }
}
