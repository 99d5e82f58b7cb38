//! The in-memory transport: whole commands and completions, between two ends in one process.
//!
//! Owns the target's end and the data that its commands may fetch. What is fetched is there at
//! once.

use std::collections::VecDeque;
use std::sync::Arc;

use ebof_backend::{Buffer, Device};
use ebof_loopback::{Bell, Capsule, CompletionMessage, TargetEnd};
use ebof_nvme::{Cid, Cqe, Sqe};

use super::event::AWAITED;
use super::message_queue::MessageQueue;
use super::transport::{BLOCKS, IN_MEMORY, Lender, Messages, Notifier, Transport};
use super::{End, Event, Fetch, Flushed, Opening, Received, Stopped};
use crate::ports::peer::Peer;
use crate::shared::buffer::Pool;
use crate::shared::reactor_context::ReactorContext;

/// One connection's end.
pub(crate) struct Loopback {
    /// `None` once it is broken off.
    end: Option<TargetEnd>,
    /// `None` where the host is attached directly: it sees its queue by itself.
    queue: Option<MessageQueue>,
    /// Received and not taken yet.
    commands: VecDeque<Capsule>,
    /// Data that commands brought and have not fetched.
    data: Vec<(Cid, Arc<[u8]>)>,
    /// Data that are in their buffers, and not reported yet.
    fetched: VecDeque<Fetched>,
    completions: Vec<CompletionMessage>,
    unsent_bytes: usize,
}

/// The fields of [`Event::Fetched`].
struct Fetched {
    slot: u32,
    buffer: Buffer,
    is_intact: bool,
}

impl Loopback {
    /// `bell` rings when the host has sent something, or is gone.
    pub(crate) fn new(end: TargetEnd, bell: Bell) -> Self {
        end.set_bell(bell);
        Self {
            queue: end.attachment().is_none().then(MessageQueue::new),
            end: Some(end),
            commands: VecDeque::new(),
            data: Vec::new(),
            fetched: VecDeque::new(),
            completions: Vec::new(),
            unsent_bytes: 0,
        }
    }

    /// The command has no more use for the data that it brought.
    fn forget_data(&mut self, cid: Cid) -> Option<Arc<[u8]>> {
        let at = self.data.iter().position(|(of, _)| *of == cid)?;
        Some(self.data.swap_remove(at).1)
    }

    fn complete(&mut self, cqe: &Cqe, data: Vec<u8>) {
        self.forget_data(cqe.cid());
        self.unsent_bytes += size_of::<Cqe>() + data.len();
        let cqe = self.queue.as_mut().map_or(*cqe, |queue| queue.complete(cqe));
        self.completions.push(CompletionMessage { cqe, data });
    }

    /// Copies the data of a command, which it announced as `fetch.length` bytes.
    fn copy(&mut self, mut fetch: Fetch) {
        let data = self.forget_data(fetch.cid);
        let is_intact = fetch.fill(data.as_deref());
        let Fetch { slot, buffer, .. } = fetch;
        self.fetched.push_back(Fetched { slot, buffer, is_intact });
    }

    /// The host sees the end when it has taken what was sent.
    fn break_off(&mut self) {
        self.end = None;
        self.completions.clear();
        self.unsent_bytes = 0;
    }
}

impl Transport for Loopback {
    fn notifier(&self) -> Notifier<'_> {
        Notifier::Bell
    }

    fn is_initialized(&self) -> bool {
        true
    }

    fn receive(&mut self, _limit: usize, _scratch: &mut [u8]) -> Result<Option<Received>, End> {
        let before = self.commands.len();
        let end = self.end.as_ref().ok_or(End::PeerClosed)?;
        // At most as many as the host's queue holds.
        end.take(&mut self.commands).map_err(|ebof_loopback::Closed| End::PeerClosed)?;
        let new = self.commands.range(before..);
        let bytes = |capsule: &Capsule| size_of::<Sqe>() + capsule.data.as_ref().map_or(0, |data| data.len());
        let total = new.map(bytes).sum();
        Ok((total > 0).then_some(Received { total, in_scratch: 0, room: usize::MAX }))
    }

    fn is_at_command(&self, _input: &[u8]) -> bool {
        self.fetched.is_empty() && !self.commands.is_empty()
    }

    fn poll(&mut self, _input: &mut &[u8], draining: bool) -> Result<Option<Event>, End> {
        if let Some(Fetched { slot, buffer, is_intact }) = self.fetched.pop_front() {
            return Ok(Some(Event::Fetched { slot, buffer, is_intact }));
        }
        let Some(Capsule { sqe, data }) = self.commands.pop_front() else { return Ok(None) };
        if draining {
            return Ok(Some(Event::Progress { answered: false }));
        }
        if let Some(data) = data {
            self.data.push((sqe.cid(), data));
        }
        Ok(Some(Event::Command { sqe, in_capsule: 0 }))
    }

    fn unparsed(&self) -> usize {
        self.commands.len() + self.fetched.len()
    }

    fn fetch(&mut self, fetch: Fetch) -> Result<(), Buffer> {
        self.copy(fetch);
        Ok(())
    }

    fn stop_fetching(&mut self, _cid: Cid, slot: u32) -> Stopped {
        let at = self.fetched.iter().position(|fetched| fetched.slot == slot).expect(AWAITED);
        Stopped::Ended(self.fetched.remove(at).expect("its place was found").buffer)
    }

    fn respond(&mut self, cqe: &Cqe) {
        self.complete(cqe, Vec::new());
    }

    fn send_bytes(&mut self, _cid: Cid, data: &[u8], cqe: &Cqe) {
        self.complete(cqe, data.to_vec());
    }

    fn send_buffer(&mut self, _cid: Cid, buffer: Buffer, length: u32, cqe: &Cqe, pool: &mut Pool) {
        self.complete(cqe, buffer.as_slice()[..length as usize].to_vec());
        pool.put(buffer);
    }

    fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    fn flush(&mut self, _turn: &mut ReactorContext<'_>) -> Result<Flushed, End> {
        let end = self.end.as_ref().ok_or(End::PeerClosed)?;
        end.complete(self.completions.drain(..));
        self.unsent_bytes = 0;
        Ok(Flushed::All)
    }

    fn drop_input(&mut self, give: &mut dyn FnMut(Buffer)) {
        self.commands.clear();
        self.data.clear();
        self.fetched.drain(..).for_each(|fetched| give(fetched.buffer));
    }

    fn start_closing(&mut self, _end: &End, _pool: &mut Pool) -> bool {
        self.break_off();
        false
    }

    fn close(&mut self, _peer: &Peer, _turn: &mut ReactorContext<'_>) {
        self.break_off();
    }

    fn peer_is_gone(&mut self) -> bool {
        self.end.as_ref().is_none_or(TargetEnd::host_is_gone)
    }

    fn shrink(&mut self, _pool: &mut Pool) {
        self.commands.shrink_to_fit();
        self.completions.shrink_to_fit();
    }
}

impl Messages for Loopback {
    fn open(&mut self, opening: &Opening) {
        if let Some(queue) = &mut self.queue {
            queue.open(opening.submission_queue);
        }
    }

    fn withdraw(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.withdraw();
        }
    }
}

impl Lender for Loopback {
    fn lend(&mut self, _cid: Cid, device: &Arc<dyn Device>, range: (u64, u32), cqe: &Cqe) {
        let mut at = range.0;
        let length = range.1 as usize;
        let resident = device.resident().expect(IN_MEMORY);
        let mut data = Vec::with_capacity(length);
        while data.len() < length {
            let lent = resident.lend(at, length - data.len(), true).expect(BLOCKS);
            at += lent.as_ref().len() as u64;
            data.extend_from_slice(lent.as_ref());
        }
        self.complete(cqe, data);
    }
}
