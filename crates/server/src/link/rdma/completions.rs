//! What the adapter reports: capsules that came, responses that were sent, data that were moved,
//! and the end of the connection.
//!
//! An adapter that gives up what it retries says nothing about the host: the network may be cut for
//! a while. Such a queue pair moves nothing any more, and is kept all the same until somebody knows
//! more ([`GivenUp`]): a request to disconnect that is sent into a network that is cut reaches
//! nobody, and soft-RoCE's management queue pair does not survive it.

use std::io;

use ebof_backend::Buffer;
use ebof_rdma::FatalError;
use ebof_verbs::{Event, WorkCompletion, WorkRequest, WorkStatus};

use super::super::End;
use super::{Capsule, Fetched, Fetching, Rdma};
use crate::observe::log_limit::Kind;
use crate::shared::reactor_context::ReactorContext;

/// What a completion costs of the connection's share at least, bytes.
const COMPLETION_BYTES: usize = 16;

/// Looks that find nothing, until the queue pair is armed although its reactor does not sleep.
const IDLE_LOOKS_MAX: u32 = 256;

/// Every so many looks, events are asked for although nothing told of them.
const EVENTS_EVERY: u32 = 16;

/// The most that is collected before the reactor may sleep, bytes: there is nothing normally.
const LOOK_BYTES: usize = 1 << 20;

/// How long a queue pair is kept that the adapter has given up, milliseconds: longer than
/// keep-alive time-outs are, and not for ever where a host has none.
pub(super) const KEPT_MS: u64 = 600_000;

/// The adapter has given up the connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenUp {
    pub(super) status: WorkStatus,
    /// Since when, milliseconds of the target's clock; `None` until it is reported.
    pub(super) since_ms: Option<u64>,
}

impl Rdma {
    /// Collects what is there, up to `limit` bytes.
    pub(super) fn look(&mut self, limit: usize) -> Result<(), End> {
        // Also where it was told that there is something: it will not be told again.
        let was_armed = std::mem::replace(&mut self.is_armed, false);
        if was_armed || self.idle_looks.is_multiple_of(EVENTS_EVERY) {
            self.take_events();
        }
        self.collect(limit)?;
        if self.collected_bytes > 0 {
            self.idle_looks = 0;
            return Ok(());
        }
        self.idle_looks = self.idle_looks.wrapping_add(1);
        if was_armed || (self.idle_looks >= IDLE_LOOKS_MAX && !self.is_busy_polled) {
            self.arm_and_look()?;
        }
        Ok(())
    }

    /// Has its descriptor or bell tell what comes from now on. `false`: something has come before.
    pub(super) fn arm_and_look(&mut self) -> Result<bool, End> {
        self.connected().arm()?;
        self.idle_looks = 0;
        self.take_events();
        self.collect(LOOK_BYTES)?;
        self.is_armed = self.collected_bytes == 0;
        Ok(self.is_armed)
    }

    /// Takes events.
    pub(super) fn take_events(&mut self) {
        while let Some(pair) = self.pair() {
            let event = match pair.poll_event() {
                Ok(Some(event)) => event,
                Ok(None) => return,
                Err(error) => {
                    self.note_end(End::Verbs(error));
                    return;
                }
            };
            match event {
                Event::Established { .. } => {
                    self.is_established = true;
                    self.core.on_established();
                    self.has_progress = true;
                    self.collected_bytes += COMPLETION_BYTES;
                }
                Event::Unreachable(status) if status < 0 && !self.is_established => {
                    self.note_end(End::NotEstablished(io::Error::from_raw_os_error(status.saturating_neg())));
                }
                Event::Disconnected => self.note_end(End::PeerClosed),
                Event::Unreachable(_) | Event::Rejected { .. } => self.note_end(End::Unreachable),
                Event::DeviceRemoved => self.note_end(End::DeviceRemoved),
                Event::Fatal(reason) => self.note_end(End::QueuePair(reason)),
                // It works on, or fails later.
                Event::AddressChanged => {}
            }
        }
    }

    /// The first reason is the one that counts.
    fn note_end(&mut self, end: End) {
        self.peer_is_gone = true;
        self.end.get_or_insert(end);
    }

    fn collect(&mut self, limit: usize) -> Result<(), End> {
        while self.collected_bytes < limit {
            let Some(completion) = self.connected().poll()? else { break };
            self.collected_bytes += COMPLETION_BYTES;
            match completion {
                WorkCompletion::Received { slot, length, .. } => {
                    self.collected_bytes += length as usize;
                    self.received.push_back(Capsule { slot, length });
                }
                WorkCompletion::Sent { slot } => self.on_sent(slot),
                WorkCompletion::Done { id } => self.on_read(id),
                WorkCompletion::Failed { what, status } => self.on_failed(what, status),
            }
        }
        // With receives of its own, a host cannot send more commands than that.
        if self.received.len() > self.core.entries() as usize {
            return Err(FatalError::TooManyCommands { entries: self.core.entries() }.into());
        }
        self.end.take().map_or(Ok(()), Err)
    }

    #[inline]
    fn on_read(&mut self, id: u64) {
        self.done += 1;
        // The next read may begin.
        self.has_progress = true;
        let tag = u32::try_from(id).expect("only reads have one, and it is their tag");
        // The command may have more of them.
        let Some(fetched) = self.core.on_read_done(tag) else { return };
        let (fetching, buffer) = self.take_fetching(tag);
        self.collected_bytes += fetching.length as usize;
        let is_intact = fetched.is_complete && fetching.is_enough;
        self.fetched.push_back(Fetched { slot: tag, buffer, is_intact });
    }

    /// The buffer of a command whose reads are over.
    pub(super) fn take_fetching(&mut self, slot: u32) -> (Fetching, Buffer) {
        let fetching = self.fetching.get_mut(slot as usize).and_then(Option::take);
        let fetching = fetching.expect("the core knows those only that were given to it, until they are over");
        let buffer = self.connected().release(fetching.held).expect("all reads into it are over");
        (fetching, buffer)
    }

    fn on_failed(&mut self, what: WorkRequest, status: WorkStatus) {
        // The reason may be an event: a disconnect, or the end of the device.
        self.take_events();
        if let WorkRequest::Receive(slot) = what
            && self.shares_receives
        {
            self.post_receive(slot);
        }
        if self.end.is_some() || self.loss.is_some() {
            return;
        }
        match status {
            WorkStatus::Flushed | WorkStatus::RetryExceeded if self.is_established => {
                self.loss = Some(GivenUp { status, since_ms: None });
                self.has_progress = true;
            }
            status => self.note_end(End::Work(status)),
        }
    }

    /// Says once what was seen of a connection that is kept.
    pub(super) fn report_loss(&mut self, context: &ReactorContext<'_>) {
        let Some(GivenUp { status, since_ms: since_ms @ None }) = &mut self.loss else { return };
        *since_ms = Some(context.now_ms);
        let peer = self.peer;
        if let Some(more) = context.shared.may_log(peer.about(), Kind::Lost) {
            tracing::warn!(
                %peer,
                "the adapter has given up a connection ({status}): it is kept until the host comes back, \
                 disconnects or is silent for its keep-alive time-out{more}"
            );
        }
    }

    /// Looks whether anything that is under way goes on.
    pub(super) fn note_standstill(&mut self, now_ms: u64) {
        let is_idle = self.unsent_bytes == 0 && self.core.reads_under_way() == 0;
        self.standstill = match self.standstill {
            _ if is_idle || !self.is_established || self.loss.is_some() => None,
            Some((since_ms, done)) if done == self.done => Some((since_ms, done)),
            _ => Some((now_ms, self.done)),
        };
    }
}
