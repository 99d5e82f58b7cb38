//! The Persistent Event Log: keeps events, the oldest of which make room for new ones, and builds
//! the log page.
//!
//! `events` has a constructor for each kind of event; `context` has the reporting contexts, which
//! keep the page unchanged while a host reads it in pieces.
//!
//! NVMe Base 2.1, "Persistent Event" log page (0Dh).

mod context;
mod events;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use ebof_nvme::ControllerId;
use ebof_nvme::feature::Timestamp;
use ebof_nvme::log::{EventHeader, EventKind, PersistentEventHeader};
use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::stored::count;

pub use context::{CONTEXTS_MAX, Contexts, Page, Reply, Subsystem};
pub use events::{Event, RESET_CONTROLLERS_MAX, Thermal};

/// Events that are kept at most.
pub const EVENTS_MAX: usize = 4096;

/// Bytes of the log page at most; PELS counts it in 64 KiB.
pub const BYTES_MAX: usize = 1 << 20;

/// PELS of Identify Controller.
pub const PELS: u32 = 16;

/// Events that a drive records.
pub const SUPPORTED: [EventKind; 13] = [
    EventKind::SMART_SNAPSHOT,
    EventKind::FIRMWARE_COMMIT,
    EventKind::TIMESTAMP_CHANGE,
    EventKind::POWER_ON_OR_RESET,
    EventKind::HARDWARE_ERROR,
    EventKind::CHANGE_NAMESPACE,
    EventKind::FORMAT_START,
    EventKind::FORMAT_COMPLETION,
    EventKind::SANITIZE_START,
    EventKind::SANITIZE_COMPLETION,
    EventKind::SET_FEATURE,
    EventKind::TELEMETRY_CREATED,
    EventKind::THERMAL_EXCURSION,
];

/// The events, oldest first. Each [`Event`] is in the journal before it is
/// [applied](EventLog::apply).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventLog {
    events: VecDeque<Event>,
    /// How many events were ever recorded.
    #[serde(deserialize_with = "count::deserialize")]
    total: u64,
}

impl EventLog {
    /// Whether the event is to be recorded: not if there were 32 like it within the last minute.
    #[must_use]
    pub fn admits(&self, event: &Event) -> bool {
        let recent = self.events.iter().rev().take_while(|other| other.at_ms.saturating_add(60_000) > event.at_ms);
        recent.filter(|other| other.is_like(event)).take(FLOOD).count() < FLOOD
    }

    /// Records an event; the oldest make room for it.
    pub fn apply(&mut self, event: Event) {
        self.events.push_back(event);
        self.total += 1;
        while self.events.len() > EVENTS_MAX || self.page_bytes() > BYTES_MAX {
            self.events.pop_front();
        }
    }

    /// Drops the older half of the events.
    pub(crate) fn forget_half(&mut self) {
        self.events.drain(..self.events.len().div_ceil(2));
    }

    /// Events in the log.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Events that were ever recorded.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The events, the newest first: the type, the controller, and when it happened, milliseconds
    /// since 1970.
    pub fn latest(&self) -> impl Iterator<Item = (EventKind, ControllerId, u64)> + '_ {
        self.events.iter().rev().map(|event| (EventKind(event.kind), ControllerId(event.cntlid), event.at_ms))
    }

    /// Whether the log has no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The log page behind its header: the newest event first.
    fn body(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.page_bytes());
        for event in self.events.iter().rev() {
            let timestamp = U64::from_bytes(timestamp(event.at_ms));
            let header = EventHeader {
                ehai: NO_PORT,
                ..EventHeader::new(EventKind(event.kind), ControllerId(event.cntlid), timestamp.get(), event.data.len())
            };
            body.extend_from_slice(header.as_bytes());
            body.extend_from_slice(&event.data);
        }
        body
    }

    fn page_bytes(&self) -> usize {
        let events = self.events.iter().map(|event| size_of::<EventHeader>() + event.data.len());
        size_of::<PersistentEventHeader>() + events.sum::<usize>()
    }
}

/// A time in the format of the Timestamp feature, from a clock that was set.
fn timestamp(unix_ms: u64) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(Timestamp::new(unix_ms).with_attributes(true, false).as_bytes());
    bytes
}

/// Events of one kind in a minute at most; more are not recorded.
const FLOOD: usize = 32;

/// Event Header Additional Information: the event is not associated with a port.
const NO_PORT: u8 = 3;
