//! The Error Information log of a drive: the newest errors of all its controllers, with numbers
//! that are never reused.
//!
//! Errors are in the log page as soon as they are recorded. Those that were not flushed to the
//! journal are lost when the drive is killed. The owner of the journal decides when to flush;
//! [`ErrorLog::record`] says which errors cannot wait.
//!
//! NVMe Base 2.1, "Error Information" log page (01h).

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use ebof_nvme::log::{ErrorInformation, ParameterErrorLocation};
use ebof_nvme::{Cid, Nsid, QueueId, Status};
use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes;

use crate::stored::count;

/// Entries that can be kept at most (ELPE is one less).
pub const ENTRIES_MAX: usize = 256;

/// Entries that are kept where nothing else is asked for.
pub const ENTRIES_DEFAULT: usize = 64;

/// The log.
///
/// The serialized fields are what was flushed; the others are newer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorLog {
    /// Oldest first.
    entries: VecDeque<Entry>,
    /// The last number that may have been used: errors are numbered up to here without a flush.
    #[serde(deserialize_with = "count::deserialize")]
    reserved: u64,
    /// Number of the last error.
    #[serde(skip)]
    count: u64,
    /// Number of the last error that was flushed.
    #[serde(skip)]
    flushed: u64,
}

/// An entry, with the values of the log page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Entry {
    #[serde(deserialize_with = "count::deserialize")]
    count: u64,
    sqid: u16,
    cid: u16,
    status: u16,
    pel: Option<(u8, u8)>,
    lba: u64,
    nsid: u32,
    opcode: u8,
    information: u64,
}

/// An error of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// Queue of the command.
    pub queue: QueueId,
    /// The command.
    pub cid: Cid,
    /// How it completed.
    pub status: Status,
    /// What is wrong with the command.
    pub location: Option<ParameterErrorLocation>,
    /// Namespace of the command.
    pub nsid: Nsid,
    /// First block concerned.
    pub lba: u64,
    /// Opcode of the command.
    pub opcode: u8,
    /// Command Specific Information.
    pub information: u64,
}

/// What a flush makes durable: the errors since the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flush {
    entries: Vec<Entry>,
    #[serde(deserialize_with = "count::deserialize")]
    reserved: u64,
}

/// When an error has to be flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// With the next periodic flush.
    Periodic,
    /// At once: it is about lost data, or the reserved numbers are used up.
    AtOnce,
}

impl ErrorLog {
    /// Records an error. Returns when it has to be flushed. `entries` is how many are kept, 1 to
    /// [`ENTRIES_MAX`].
    pub fn record(&mut self, error: &Error, entries: usize) -> Urgency {
        self.begin();
        self.count += 1;
        self.entries.push_back(Entry::new(error, self.count));
        while self.entries.len() > entries.clamp(1, ENTRIES_MAX) {
            self.entries.pop_front();
        }
        if is_severe(error.status) || self.count >= self.reserved { Urgency::AtOnce } else { Urgency::Periodic }
    }

    /// Counts errors that are not known in detail, because the queue in front of the log was full.
    pub fn skip(&mut self, errors: u64) {
        if errors > 0 {
            self.begin();
            self.count = self.count.saturating_add(errors);
        }
    }

    fn begin(&mut self) {
        if self.count == 0 {
            // The first error since the drive was opened: if it was killed before, numbers up to
            // `reserved` may have been used.
            self.flushed = self.entries.back().map_or(0, |entry| entry.count);
            self.count = self.reserved;
        }
    }

    /// What is to be flushed; `None` if there is nothing new.
    #[must_use]
    pub fn flush(&self) -> Option<Flush> {
        (self.count > self.flushed).then(|| Flush { reserved: self.count + RESERVE, ..self.new_entries() })
    }

    /// What is to be flushed when the drive is closed, so that numbers continue without a gap.
    #[must_use]
    pub fn close(&self) -> Option<Flush> {
        let flush = Flush { reserved: self.last(), ..self.new_entries() };
        (!flush.entries.is_empty() || flush.reserved != self.reserved).then_some(flush)
    }

    /// Applies a flush that is in the journal.
    pub fn apply(&mut self, flush: Flush) {
        // There may be newer errors, which were recorded while it was written.
        self.flushed = flush.entries.last().map_or(self.flushed, |entry| entry.count);
        let known = self.entries.back().map_or(0, |entry| entry.count);
        self.entries.extend(flush.entries.into_iter().filter(|entry| entry.count > known));
        while self.entries.len() > ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.reserved = flush.reserved;
    }

    /// Number of the last error. After a kill, the last number that may have been used.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.last()
    }

    /// The log page: `entries` entries, the newest first, the rest zeros. While the drive is
    /// sanitized or formatted, `hide_lba` keeps blocks out of it (Base, "Admin Command Processing
    /// Restrictions").
    #[must_use]
    pub fn page(&self, entries: usize, transport: u8, hide_lba: bool) -> Vec<u8> {
        let entries = entries.clamp(1, ENTRIES_MAX);
        let mut page = Vec::with_capacity(entries * size_of::<ErrorInformation>());
        for entry in self.entries.iter().rev().take(entries) {
            let mut entry = entry.encode(transport);
            if hide_lba {
                entry.lba.set(0);
            }
            page.extend_from_slice(entry.as_bytes());
        }
        page.resize(entries * size_of::<ErrorInformation>(), 0);
        page
    }

    fn last(&self) -> u64 {
        if self.count == 0 { self.reserved } else { self.count }
    }

    fn new_entries(&self) -> Flush {
        let new = self.entries.iter().filter(|entry| self.count != 0 && entry.count > self.flushed);
        Flush { entries: new.cloned().collect(), reserved: 0 }
    }
}

impl Entry {
    fn new(error: &Error, count: u64) -> Self {
        Self {
            count,
            sqid: error.queue.0,
            cid: error.cid.0,
            status: error.status.0,
            pel: error.location.map(|at| (at.byte, at.bit)),
            lba: error.lba,
            nsid: error.nsid.0,
            opcode: error.opcode,
            information: error.information,
        }
    }

    fn encode(&self, transport: u8) -> ErrorInformation {
        let mut entry = ErrorInformation {
            ec: self.count.into(),
            sqid: self.sqid.into(),
            cid: self.cid.into(),
            lba: self.lba.into(),
            nsid: self.nsid.into(),
            trtype: transport,
            opc: self.opcode,
            csinfo: self.information.into(),
            lpver: 1,
            ..ErrorInformation::default()
        };
        entry.set_status(Status(self.status));
        entry.set_parameter_error_location(self.pel.map(|(byte, bit)| ParameterErrorLocation { byte, bit }));
        entry
    }
}

/// Whether an error has to be flushed at once: data may be lost, or it is an internal error.
#[must_use]
pub fn is_severe(status: Status) -> bool {
    status.is(Status::INTERNAL_ERROR) || is_media_error(status)
}

/// Whether SMART counts it as a Media and Data Integrity Error: statuses of that type, except those
/// that are the result of what the host asked for.
#[must_use]
pub fn is_media_error(status: Status) -> bool {
    let expected = [Status::COMPARE_FAILURE, Status::ACCESS_DENIED, Status::DEALLOCATED_BLOCK];
    status.code_type() == 2 && !expected.iter().any(|&other| status.is(other))
}

/// Numbers that a flush reserves: so many errors can be recorded before the next flush is needed.
const RESERVE: u64 = 1024;
