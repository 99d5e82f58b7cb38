//! Whether a connection is there, goes on, and why it ends: what events and failed work say.

use std::io;

use ebof_verbs::{Event, WorkStatus};

use super::super::End;
use super::endpoint::{Endpoint, GivenUp};

/// What is known of a connection.
#[derive(Default)]
pub(super) struct ConnectionHealth {
    pub(super) is_established: bool,
    /// The peer's end of the connection is gone.
    pub(super) peer_is_gone: bool,
    /// Why it ends, until that is reported.
    end: Option<End>,
    /// How much was ever sent or fetched.
    done: u64,
    /// Since when that has not changed although something is under way, milliseconds, and what it
    /// was.
    standstill: Option<(u64, u64)>,
}

impl ConnectionHealth {
    /// Takes events. Returns whether the connection is established by one of them.
    pub(super) fn take_events(&mut self, endpoint: &mut Endpoint) -> bool {
        let mut is_new = false;
        while let Some(pair) = endpoint.pair() {
            let event = match pair.poll_event() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    self.note_end(End::Verbs(error));
                    break;
                }
            };
            match event {
                Event::Established { .. } => {
                    self.is_established = true;
                    endpoint.core.on_established();
                    is_new = true;
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
        is_new
    }

    /// Work has failed, and events say nothing about it. Returns whether the adapter has given up
    /// the connection with it.
    pub(super) fn on_failed(&mut self, status: WorkStatus, endpoint: &mut Endpoint) -> bool {
        if self.end.is_some() || endpoint.loss.is_some() {
            return false;
        }
        match status {
            WorkStatus::Flushed | WorkStatus::RetryExceeded if self.is_established => {
                endpoint.loss = Some(GivenUp { status, since_ms: None });
                true
            }
            status => {
                self.note_end(End::Work(status));
                false
            }
        }
    }

    /// The first reason is the one that counts.
    fn note_end(&mut self, end: End) {
        self.peer_is_gone = true;
        self.end.get_or_insert(end);
    }

    /// It ends although its peer is there.
    pub(super) fn end_with(&mut self, end: End) {
        self.end = Some(end);
    }

    /// An error, once, if it ends.
    #[inline]
    pub(super) fn check(&mut self) -> Result<(), End> {
        self.end.take().map_or(Ok(()), Err)
    }

    /// Something was sent or fetched.
    #[inline]
    pub(super) fn on_done(&mut self) {
        self.done += 1;
    }

    /// Looks whether anything goes on. `is_idle`: there is nothing that could.
    pub(super) fn note_standstill(&mut self, now_ms: u64, is_idle: bool) {
        self.standstill = match self.standstill {
            _ if is_idle || !self.is_established => None,
            Some((since_ms, done)) if done == self.done => Some((since_ms, done)),
            _ => Some((now_ms, self.done)),
        };
    }

    /// Since when nothing goes on, milliseconds of the target's clock.
    pub(super) fn standstill_since_ms(&self) -> Option<u64> {
        self.standstill.map(|(since_ms, _)| since_ms)
    }

    /// This end has ended it.
    pub(super) fn on_disconnected(&mut self) {
        self.standstill = None;
        self.peer_is_gone = true;
    }
}
