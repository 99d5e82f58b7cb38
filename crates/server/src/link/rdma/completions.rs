//! What the adapter reports: capsules that came, responses that were sent, data that were moved,
//! and the end of the connection.

use std::io;

use ebof_backend::Buffer;
use ebof_rdma::FatalError;
use ebof_verbs::{Completion, Event, WorkStatus};

use super::super::End;
use super::{Capsule, Fetched, Fetching, Rdma};

/// What a completion costs of the connection's share at least, bytes.
const COMPLETION_BYTES: usize = 16;

/// Looks that find nothing, until the queue pair is armed although its reactor does not sleep.
const IDLE_LOOKS_MAX: u32 = 256;

/// Every so many looks, events are asked for although nothing told of them.
const EVENTS_EVERY: u32 = 16;

/// The most that is collected before the reactor may sleep, bytes: there is nothing normally.
const LOOK_BYTES: usize = 1 << 20;

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
        let Some(pair) = self.pair() else { return Ok(true) };
        pair.arm()?;
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
                Event::Disconnected | Event::Unreachable(_) | Event::Rejected { .. } => self.note_end(End::PeerClosed),
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
            let Some(pair) = self.pair() else { break };
            let Some(completion) = pair.poll()? else { break };
            self.collected_bytes += COMPLETION_BYTES;
            match completion {
                Completion::Received { slot, length, .. } => {
                    self.collected_bytes += length as usize;
                    self.received.push_back(Capsule { slot, length });
                }
                Completion::Sent { slot } => self.on_sent(slot),
                Completion::Done { id } => self.on_read(id),
                Completion::Failed { status, .. } => {
                    self.on_failed(status);
                    break;
                }
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
        let Ok(tag) = u32::try_from(id) else { return };
        let Some(fetched) = self.core.on_read_done(tag) else { return };
        if let Some((fetching, buffer)) = self.take_fetching(tag) {
            self.collected_bytes += fetching.length as usize;
            let is_intact = fetched.is_complete && fetching.is_enough;
            self.fetched.push_back(Fetched { slot: tag, buffer, is_intact });
        }
    }

    /// The buffer of a command whose reads are over.
    pub(super) fn take_fetching(&mut self, slot: u32) -> Option<(Fetching, Buffer)> {
        let held = self.fetching.get(slot as usize)?.as_ref()?.held;
        let buffer = self.pair()?.release(held)?;
        Some((self.fetching[slot as usize].take()?, buffer))
    }

    fn on_failed(&mut self, status: WorkStatus) {
        // The reason may be an event: a disconnect, or the end of the device.
        self.take_events();
        self.note_end(match status {
            WorkStatus::Flushed => End::PeerClosed,
            status => End::Work(status),
        });
    }

    /// Looks whether anything that is under way goes on.
    pub(super) fn note_standstill(&mut self, now_ms: u64) {
        let is_idle = self.unsent_bytes == 0 && self.core.reads_under_way() == 0;
        self.standstill = match self.standstill {
            _ if is_idle || !self.is_established => None,
            Some((since_ms, done)) if done == self.done => Some((since_ms, done)),
            _ => Some((now_ms, self.done)),
        };
    }
}
