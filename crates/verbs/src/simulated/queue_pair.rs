//! The owner's part of an end: slots and buffers that nobody else accesses, and what was not
//! flushed.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ebof_region::{Buffer, Region};

use super::end::{Arrival, EndPhase, Receives, SendEntry};
use super::memory::Span;
use super::pair::{Asked, Pair, PairState, Side, UNREACHABLE};
use super::shared::NetworkState;
use crate::ledger::Ledger;
use crate::ledger::slots::{SharedReceives, Slot, slots};
use crate::ledger::windows::Windows;
use crate::{
    ACCEPT_PRIVATE_DATA_MAX, Attributes, Bell, Error, Event, Handshake, HeldMemory, REQUEST_PRIVATE_DATA_MAX, Remote,
    Window, WindowAccess, WorkCompletion, WorkRequest,
};

/// One end of a connection.
pub(crate) struct QueuePair {
    shared: Arc<NetworkState>,
    pair: Arc<Pair>,
    side: Side,
    polled: bool,
    ledger: Ledger,
    /// The first keys of its memory windows.
    windows: Vec<u32>,
    /// Receive slots, by number: those that are the owner's.
    received: Vec<Option<Box<[u8]>>>,
    /// Send slots, by number: those that are the owner's, or free.
    sends: Vec<Option<Box<[u8]>>>,
    /// Numbers of the free ones.
    free_sends: Vec<u32>,
    receives: Option<SharedReceives>,
    /// Posted and not flushed.
    new_receives: Vec<Slot>,
    new_work: VecDeque<SendEntry>,
    /// Taken from the completion queue.
    taken: VecDeque<Arrival>,
}

impl QueuePair {
    /// Opens an end that has no queue pair yet.
    pub(crate) fn open(
        shared: &Arc<NetworkState>,
        pair: &Arc<Pair>,
        side: Side,
        attributes: &Attributes,
    ) -> Result<Self, Error> {
        let Attributes { receives, receive_bytes, sends, send_bytes, operations, .. } = *attributes;
        let entries = sends as usize + operations as usize;
        let device = &shared.device;
        let count = attributes.shared_receives.as_ref().map_or(receives, SharedReceives::count);
        let receives_max =
            if attributes.shared_receives.is_some() { device.shared_receive_entries } else { device.queue_entries };
        check("receives", count as usize, receives_max)?;
        check("entries of a send queue", entries, device.queue_entries)?;
        check("memory windows", attributes.windows as usize, device.memory_windows)?;
        check("entries of a completion queue", count as usize + entries, device.completion_entries)?;
        shared.add_queue_pair()?;
        let queue = match &attributes.shared_receives {
            Some(shared) => {
                shared.fill();
                Receives::Shared(shared.clone())
            }
            None => Receives::Own(slots(receives, receive_bytes)),
        };
        let windows = shared.registry.add_windows(attributes.windows);
        pair.with(|state| {
            let [end, _] = state.both(side);
            end.receives = queue;
            end.work.reserve(entries);
            end.completions.reserve(count as usize + entries);
            if end.phase == EndPhase::Absent {
                end.phase = EndPhase::Open;
            }
            // The connection has ended since the request was made.
            if state.ended || state.cut {
                state.fail(side);
            }
        });
        Ok(Self {
            shared: Arc::clone(shared),
            pair: Arc::clone(pair),
            side,
            polled: attributes.polled,
            ledger: Ledger::new(entries, Windows::new(windows.clone())),
            windows,
            received: (0..count).map(|_| None).collect(),
            sends: (0..sends).map(|_| Some(vec![0; send_bytes as usize].into())).collect(),
            free_sends: (0..sends).rev().collect(),
            receives: attributes.shared_receives.clone(),
            new_receives: Vec::with_capacity(count as usize),
            new_work: VecDeque::with_capacity(entries),
            taken: VecDeque::with_capacity(count as usize + entries),
        })
    }

    pub(crate) fn connect(&mut self, handshake: &Handshake<'_>) -> Result<(), Error> {
        let private_data = padded(handshake.private_data, REQUEST_PRIVATE_DATA_MAX, self.shared.pads())?;
        let asked = Asked {
            private_data,
            responder_resources: handshake.initiator_depth,
            initiator_depth: handshake.responder_resources,
        };
        self.begin(Side::Host, handshake, EndPhase::Connecting)?;
        self.pair.with(|state| state.request = Some(asked));
        if !self.shared.stepped {
            self.shared.deliver(&self.pair);
        }
        Ok(())
    }

    pub(crate) fn accept(&mut self, handshake: &Handshake<'_>) -> Result<(), Error> {
        let private_data = padded(handshake.private_data, ACCEPT_PRIVATE_DATA_MAX, self.shared.pads())?;
        let given_up = self.begin(Side::Target, handshake, EndPhase::Ready)?;
        self.pair.with(|state| {
            if given_up {
                state.tell(Side::Target, Event::Unreachable(UNREACHABLE));
                return;
            }
            let host = &mut state.ends[Side::Host as usize];
            host.initiator_depth = host.initiator_depth.min(handshake.responder_resources);
            let established = Event::Established {
                private_data,
                responder_resources: handshake.initiator_depth,
                initiator_depth: host.initiator_depth,
            };
            state.tell(Side::Host, established);
            self.pair.run(state);
        });
        Ok(())
    }

    /// The end goes from `Open` to `phase`, unless the connection has ended: then it is in error,
    /// and this returns `true`.
    fn begin(&self, side: Side, handshake: &Handshake<'_>, phase: EndPhase) -> Result<bool, Error> {
        if self.side != side {
            return Err(Error::State(if side == Side::Host { "a target's" } else { "a host's" }));
        }
        self.pair.with(|state| {
            let given_up = state.ended || state.cut;
            let [end, _] = state.both(side);
            match end.phase {
                EndPhase::Open => end.phase = phase,
                EndPhase::Error if given_up => return Ok(true),
                _ => return Err(Error::State("connected, or was")),
            }
            end.responder_resources = handshake.responder_resources;
            end.initiator_depth = handshake.initiator_depth;
            end.rnr_retry_count = handshake.rnr_retry_count;
            Ok(false)
        })
    }

    pub(crate) fn disconnect(&mut self) {
        self.pair.with(|state| {
            let phase = state.ends[self.side as usize].phase;
            let ended = state.ended || state.cut;
            state.end(self.side, phase);
            if !ended && matches!(phase, EndPhase::Ready | EndPhase::Error) {
                state.tell(self.side, Event::Disconnected);
            }
        });
    }

    #[expect(clippy::unused_self, reason = "its counterpart of the system has one")]
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    pub(crate) fn set_bell(&self, bell: Bell) {
        let before = self.pair.with(|state| state.both(self.side)[0].bell.replace(bell));
        drop(before);
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        !self.taken.is_empty() || self.pair.has_completions(self.side) || self.pair.has_events(self.side)
    }

    pub(crate) fn poll_event(&mut self) -> Result<Option<Event>, Error> {
        if !self.pair.has_events(self.side) {
            return Ok(None);
        }
        Ok(self.pair.with(|state| {
            let [end, _] = state.both(self.side);
            let event = end.events.pop_front();
            if let (Some(Event::Established { .. }), Side::Host) = (&event, self.side) {
                self.established(state);
            }
            event
        }))
    }

    /// The host has learnt that it was accepted: only now the target does.
    fn established(&self, state: &mut PairState) {
        let over = state.ended || state.cut;
        let [host, target] = state.both(Side::Host);
        if host.phase == EndPhase::Connecting {
            host.phase = EndPhase::Ready;
        }
        if over {
            return;
        }
        target.told = true;
        let event = Event::Established {
            private_data: Vec::new(),
            responder_resources: target.responder_resources,
            initiator_depth: target.initiator_depth,
        };
        state.tell(Side::Target, event);
        self.pair.run(state);
    }

    #[inline]
    pub(crate) fn poll(&mut self) -> Result<Option<WorkCompletion>, Error> {
        loop {
            while let Some(arrival) = self.taken.pop_front() {
                if let Some(completion) = self.completion(arrival) {
                    return Ok(Some(completion));
                }
            }
            if !self.pair.has_completions(self.side) {
                return Ok(None);
            }
            let taken = &mut self.taken;
            self.pair.with(|state| std::mem::swap(&mut state.both(self.side)[0].completions, taken));
        }
    }

    /// What an entry of the completion queue says. Its memory is the owner's again.
    fn completion(&mut self, arrival: Arrival) -> Option<WorkCompletion> {
        match arrival {
            Arrival::Received { slot, length, invalidated } => {
                self.received[slot.number as usize] = Some(slot.memory);
                if let Some(key) = invalidated {
                    self.ledger.invalidated(key);
                }
                Some(WorkCompletion::Received { slot: slot.number, length, invalidated })
            }
            Arrival::NotReceived { slot, status } => {
                self.received[slot.number as usize] = Some(slot.memory);
                Some(WorkCompletion::Failed { what: WorkRequest::Receive(slot.number), status })
            }
            Arrival::Over { number, memory, status } => {
                let what = self.ledger.complete(number, status.is_some())?;
                if status.is_some() {
                    self.remove_lost_windows();
                }
                if let WorkRequest::Send(slot) = what {
                    self.sends[slot as usize] = memory;
                    self.free_sends.push(slot);
                }
                match (status, what) {
                    (Some(status), what) => Some(WorkCompletion::Failed { what, status }),
                    (None, WorkRequest::Send(slot)) => Some(WorkCompletion::Sent { slot }),
                    (None, WorkRequest::Operation(id)) => Some(WorkCompletion::Done { id }),
                    (None, WorkRequest::Receive(_) | WorkRequest::Unsignalled) => None,
                }
            }
        }
    }

    pub(crate) fn arm(&mut self) -> Result<(), Error> {
        if !self.polled {
            self.pair.with(|state| state.both(self.side)[0].armed = true);
        }
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        if self.new_receives.is_empty() && self.new_work.is_empty() {
            return Ok(());
        }
        // Otherwise the buffers of RDMA WRITEs behind which nothing is posted would not come back.
        if let Some(SendEntry::Write { signalled, .. } | SendEntry::Bind { signalled, .. }) = self.new_work.back_mut() {
            *signalled = true;
        }
        if let Some(shared) = self.receives.as_ref().filter(|_| !self.new_receives.is_empty()) {
            shared.post(self.new_receives.drain(..));
        }
        let is_refused = !self.shared.device.send_with_invalidate
            && self.new_work.iter().any(|work| matches!(work, SendEntry::Message { invalidate: Some(_), .. }));
        let (receives, work) = (&mut self.new_receives, &mut self.new_work);
        self.pair.with(|state| {
            let [end, _] = state.both(self.side);
            if let Receives::Own(slots) = &mut end.receives {
                receives.drain(..).for_each(|slot| slots.push_back(slot));
            }
            let result = match end.phase {
                EndPhase::Ready | EndPhase::Error => {
                    if end.work.is_empty() {
                        std::mem::swap(&mut end.work, work);
                    } else {
                        end.work.append(work);
                    }
                    Ok(())
                }
                _ if work.is_empty() => Ok(()),
                _ => Err(Error::State("not connected yet")),
            };
            if is_refused || end.phase == EndPhase::Error {
                state.fail(self.side);
            } else {
                self.pair.run(state);
            }
            if is_refused { Err(Error::State("in error: its device cannot send with invalidate")) } else { result }
        })
    }

    pub(crate) fn unflushed(&self) -> usize {
        self.new_receives.len() + self.new_work.len()
    }

    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.ledger.room()
    }

    #[inline]
    pub(crate) fn received(&self, slot: u32) -> &[u8] {
        self.received[slot as usize].as_deref().expect("a slot of the caller: see `QueuePair::received`")
    }

    #[inline]
    pub(crate) fn post_receive(&mut self, slot: u32) {
        let memory = self.received[slot as usize].take().expect("a slot of the caller: see `QueuePair::post_receive`");
        self.new_receives.push(Slot { number: slot, memory });
    }

    #[inline]
    pub(crate) fn take_send_slot(&mut self) -> Option<u32> {
        self.free_sends.pop()
    }

    #[inline]
    pub(crate) fn send_slot(&mut self, slot: u32) -> &mut [u8] {
        self.sends[slot as usize].as_deref_mut().expect("a slot of the caller: see `QueuePair::send_slot`")
    }

    #[inline]
    pub(crate) fn post_send(&mut self, slot: u32, length: u32, invalidate: Option<u32>) {
        let memory = self.sends[slot as usize].take().expect("a slot of the caller: see `QueuePair::post_send`");
        assert!(length as usize <= memory.len(), "longer than the slot");
        self.ledger.post_message(slot);
        self.new_work.push_back(SendEntry::Message { memory, length, invalidate });
    }

    #[inline]
    pub(crate) fn hold(&mut self, buffer: Buffer) -> Result<HeldMemory, (Buffer, Error)> {
        match self.shared.registry.register(buffer.region()) {
            Ok(()) => Ok(self.ledger.hold(buffer, 0)),
            Err(error) => Err((buffer, error)),
        }
    }

    #[inline]
    pub(crate) fn memory(&mut self, held: HeldMemory) -> Option<&mut [u8]> {
        self.ledger.memory(held)
    }

    #[inline]
    pub(crate) fn release(&mut self, held: HeldMemory) -> Option<Buffer> {
        self.ledger.release(held)
    }

    #[inline]
    pub(crate) fn post_read(&mut self, held: HeldMemory, offset: u32, length: u32, from: Remote, id: u64) {
        let to = self.span(held, offset, length);
        self.ledger.post_operation(held, Some(id));
        self.new_work.push_back(SendEntry::Read { to, from });
    }

    #[inline]
    pub(crate) fn post_write(&mut self, held: HeldMemory, offset: u32, length: u32, to: Remote, id: Option<u64>) {
        let from = self.span(held, offset, length);
        self.ledger.post_operation(held, id);
        self.new_work.push_back(SendEntry::Write { from, to, signalled: id.is_some() });
    }

    #[inline]
    pub(crate) fn post_write_of(&mut self, buffer: Buffer, length: u32, to: Remote) -> Result<(), (Buffer, Error)> {
        if let Err(error) = self.shared.registry.register(buffer.region()) {
            return Err((buffer, error));
        }
        let from = Span::from_buffer(&buffer, 0, length).expect("beyond the buffer");
        self.ledger.post_given(buffer, length);
        self.new_work.push_back(SendEntry::Write { from, to, signalled: false });
        Ok(())
    }

    #[inline]
    pub(crate) fn take_written(&mut self) -> Option<Buffer> {
        self.ledger.take_returned()
    }

    #[inline]
    pub(crate) fn post_bind(
        &mut self,
        region: &Arc<Region>,
        offset: usize,
        length: u32,
        access: WindowAccess,
    ) -> Result<Option<Window>, Error> {
        self.shared.registry.register(region)?;
        let Some(to) = Span::new(Arc::clone(region), offset, length as usize) else { return Ok(None) };
        let Some((_, window)) = self.ledger.post_bind(region) else { return Ok(None) };
        self.new_work.push_back(SendEntry::Bind { key: window.key, to, access, signalled: false });
        Ok(Some(window))
    }

    #[inline]
    pub(crate) fn post_invalidate(&mut self, window: Window, id: u64) {
        self.ledger.post_invalidate(window, id);
        self.new_work.push_back(SendEntry::Invalidate { key: window.key });
    }

    #[inline]
    pub(crate) fn is_bound(&self, window: Window) -> bool {
        self.ledger.is_bound(window)
    }

    /// Windows that could not be invalidated.
    #[cold]
    fn remove_lost_windows(&mut self) {
        while let Some((index, _region)) = self.ledger.take_lost() {
            self.shared.registry.disable_window(self.windows[index as usize]);
        }
    }

    fn span(&self, held: HeldMemory, offset: u32, length: u32) -> Span {
        self.ledger.part(held, offset, length);
        Span::from_buffer(self.ledger.buffer(held), offset, length).expect("the part was looked up before")
    }

    pub(crate) fn remote_key(&mut self, region: &Arc<Region>) -> Result<u32, Error> {
        self.shared.registry.key(region)
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let slots = self.pair.close(self.side);
        self.windows.iter().for_each(|key| self.shared.registry.remove_window(*key));
        self.shared.queue_pairs.fetch_sub(1, Ordering::Relaxed);
        if let Some(shared) = &self.receives {
            let own = self.received.iter_mut().enumerate().filter_map(|(number, memory)| {
                Some(Slot { number: u32::try_from(number).ok()?, memory: memory.take()? })
            });
            let taken = self.taken.drain(..).filter_map(Arrival::slot);
            shared.post(slots.into_iter().chain(own).chain(taken).chain(self.new_receives.drain(..)));
        }
    }
}

impl fmt::Debug for QueuePair {
    /// Without the messages, which belong in no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("pair", &self.pair).field("side", &self.side).finish_non_exhaustive()
    }
}

/// Private data as the peer sees them: with a fixed length, if `pads`.
pub(crate) fn padded(private_data: &[u8], max: usize, pads: bool) -> Result<Vec<u8>, Error> {
    if private_data.len() > max {
        return Err(Error::PrivateData { length: private_data.len(), max });
    }
    let mut padded = private_data.to_vec();
    if pads {
        padded.resize(max, 0);
    }
    Ok(padded)
}

fn check(what: &'static str, wanted: usize, max: u32) -> Result<(), Error> {
    let (wanted, max) = (wanted as u64, u64::from(max));
    if wanted > max { Err(Error::Limit { what, wanted, max }) } else { Ok(()) }
}
