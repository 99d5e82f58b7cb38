//! Asynchronous events of a controller: which happened, which were reported to the host, and the
//! requests that wait for the next one (Base, Asynchronous Event Request command).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use ebof_nvme::event::AsyncEvent;
use ebof_nvme::feature::AsyncEventConfig;
use ebof_nvme::log::Lid;
use ebof_nvme::{Cid, Status};

use crate::task::outcome::{Decision, Fault, Outcome};

/// Events and the requests that wait for them. Everything in it is bounded: requests by AERL,
/// events by their kinds.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Requests that wait, the oldest first.
    held: VecDeque<Cid>,
    /// Events that no request has taken yet, the oldest first.
    pending: VecDeque<AsyncEvent>,
    /// Events not to be raised again until their log page is read.
    masked: Vec<AsyncEvent>,
    /// Requests to be completed without an event.
    ended: VecDeque<(Cid, Status)>,
}

impl Events {
    /// Takes a request.
    pub(crate) fn request(&mut self, cid: Cid, limit: u16) -> Outcome {
        if self.held.len() >= usize::from(limit) {
            return Err(Fault::new(Status::ASYNC_EVENT_LIMIT_EXCEEDED));
        }
        self.held.push_back(cid);
        Ok(Decision::Held)
    }

    /// Requests that are outstanding.
    pub(crate) fn waiting(&self) -> usize {
        self.held.len() + self.ended.len()
    }

    /// An event happened. Nothing comes of it if the host does not want it or has not yet read
    /// about the last one.
    pub(crate) fn raise(&mut self, event: AsyncEvent, config: AsyncEventConfig) {
        if event.is_enabled_by(config) && !self.masked.contains(&event) {
            self.masked.push(event);
            self.pending.push_back(event);
        }
    }

    /// The host has read `log_page` without Retain Asynchronous Event: its events may be raised
    /// again.
    pub(crate) fn log_read(&mut self, log_page: Lid) {
        self.masked.retain(|event| event.log_page != log_page);
        self.pending.retain(|event| event.log_page != log_page);
    }

    /// Whether the host was sent the event, and has not read its log since.
    pub(crate) fn is_unread(&self, event: AsyncEvent) -> bool {
        self.masked.contains(&event) && !self.pending.contains(&event)
    }

    /// The next request to complete, with dword 0 of its completion.
    pub(crate) fn poll(&mut self) -> Option<(Cid, Status, u32)> {
        if let Some((cid, status)) = self.ended.pop_front() {
            return Some((cid, status, 0));
        }
        let event = *self.pending.front()?;
        let cid = self.held.pop_front()?;
        self.pending.pop_front();
        Some((cid, Status::SUCCESS, event.encode()))
    }

    /// Ends the request `cid`; whether it was waiting.
    pub(crate) fn abort(&mut self, cid: Cid) -> bool {
        let Some(at) = self.held.iter().position(|&held| held == cid) else { return false };
        self.held.remove(at);
        self.ended.push_back((cid, Status::ABORT_REQUESTED));
        true
    }

    /// Forgets the request `cid` without completing it; whether it was waiting.
    pub(crate) fn forget(&mut self, cid: Cid) -> bool {
        let before = self.held.len();
        self.held.retain(|&held| held != cid);
        self.held.len() < before
    }

    /// The controller was reset: requests end, events are forgotten.
    pub(crate) fn reset(&mut self) {
        self.pending.clear();
        self.masked.clear();
        let held = core::mem::take(&mut self.held);
        self.ended.extend(held.into_iter().map(|cid| (cid, Status::ABORTED_SQ_DELETION)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGED: AsyncEvent = AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED;
    const WANTED: AsyncEventConfig = AsyncEventConfig::NAMESPACE_ATTRIBUTE;

    #[test]
    fn one_event_of_a_kind_until_its_log_is_read() {
        let mut events = Events::default();
        events.request(Cid(1), 4).unwrap();
        events.request(Cid(2), 4).unwrap();
        events.raise(CHANGED, WANTED);
        events.raise(CHANGED, WANTED);
        assert_eq!(events.poll(), Some((Cid(1), Status::SUCCESS, 0x0004_0002)));
        assert_eq!(events.poll(), None);
        events.raise(CHANGED, WANTED);
        assert_eq!(events.poll(), None);
        events.log_read(Lid::CHANGED_NAMESPACES);
        assert_eq!(events.poll(), None);
        events.raise(CHANGED, WANTED);
        assert_eq!(events.poll(), Some((Cid(2), Status::SUCCESS, 0x0004_0002)));
    }

    #[test]
    fn events_wait_for_requests_and_disabled_ones_are_dropped() {
        let mut events = Events::default();
        events.raise(CHANGED, AsyncEventConfig::default());
        events.request(Cid(1), 1).unwrap();
        assert_eq!(events.poll(), None);
        assert_eq!(events.request(Cid(2), 1).unwrap_err().status, Status::ASYNC_EVENT_LIMIT_EXCEEDED.dnr());
        events.raise(CHANGED, WANTED);
        assert_eq!(events.poll().map(|(cid, ..)| cid), Some(Cid(1)));
    }

    #[test]
    fn requests_end_by_abort_and_reset() {
        let mut events = Events::default();
        events.request(Cid(1), 4).unwrap();
        events.request(Cid(2), 4).unwrap();
        assert!(events.abort(Cid(2)));
        assert!(!events.abort(Cid(2)));
        events.reset();
        assert_eq!(events.poll(), Some((Cid(2), Status::ABORT_REQUESTED, 0)));
        assert_eq!(events.poll(), Some((Cid(1), Status::ABORTED_SQ_DELETION, 0)));
        assert_eq!(events.poll(), None);
    }
}
