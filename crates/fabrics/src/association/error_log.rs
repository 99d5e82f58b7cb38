//! The Error Information log of a controller: written by the threads of all its queues, read by its
//! Admin Queue's.
//!
//! Errors are rare and must not cost the others anything, so the log is a ring of slots that are
//! written like a seqlock: a slot that two writers want at once keeps the first, a slot that is
//! being written is not shown.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use ebof_drive::error_log::Error;
use ebof_nvme::log::{ErrorInformation, ParameterErrorLocation};
use ebof_nvme::{Cid, Nsid, QueueId, Status};
use zerocopy::IntoBytes;

/// Entries that the log keeps (ELPE + 1).
pub(crate) const ENTRIES: usize = 64;

/// Words of an entry.
const WORDS: usize = 5;

/// The log.
#[derive(Debug)]
pub(crate) struct ErrorLog {
    count: AtomicU64,
    slots: Box<[Slot]>,
}

/// Odd `sequence`: being written. The words: error count; queue, CID, status and location; LBA;
/// NSID and opcode; command specific information.
#[derive(Debug, Default)]
struct Slot {
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl ErrorLog {
    pub(crate) fn new() -> Self {
        Self { count: AtomicU64::new(0), slots: (0..ENTRIES).map(|_| Slot::default()).collect() }
    }

    /// Errors since the controller was made.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Enters an error; `false` if it was only counted, because another thread was writing the same
    /// slot.
    pub(crate) fn record(&self, entry: &Error) -> bool {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let index = usize::try_from((count - 1) % (ENTRIES as u64)).expect("below 64");
        let slot = &self.slots[index];
        let sequence = slot.sequence.load(Ordering::Relaxed);
        let free = sequence & 1 == 0;
        if !free
            || slot.sequence.compare_exchange(sequence, sequence + 1, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return false;
        }
        fence(Ordering::Release);
        let location = entry.location.map_or(u16::MAX, |at| u16::from_le_bytes([at.byte, at.bit]));
        let place = u64::from(entry.queue.0)
            | u64::from(entry.cid.0) << 16
            | u64::from(entry.status.0) << 32
            | u64::from(location) << 48;
        let rest = u64::from(entry.nsid.0) | u64::from(entry.opcode) << 32;
        let words = [count, place, entry.lba, rest, entry.information];
        for (to, word) in slot.words.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        slot.sequence.store(sequence + 2, Ordering::Release);
        true
    }

    /// The errors behind number `after` that are still there, oldest first, with their numbers.
    pub(crate) fn since(&self, after: u64) -> Vec<(u64, Error)> {
        let mut entries: Vec<_> = self.slots.iter().filter_map(Slot::read).filter(|words| words[0] > after).collect();
        entries.sort_by_key(|words| words[0]);
        entries.into_iter().map(|words| (words[0], error_of(words))).collect()
    }

    /// The log page: [`ENTRIES`] entries, the newest first, the rest zeros.
    pub(crate) fn page(&self, transport: u8) -> Vec<u8> {
        let mut entries: Vec<[u64; WORDS]> = self.slots.iter().filter_map(Slot::read).collect();
        entries.sort_by_key(|words| core::cmp::Reverse(words[0]));
        let mut page = Vec::with_capacity(ENTRIES * size_of::<ErrorInformation>());
        for words in entries {
            page.extend_from_slice(decode(words, transport).as_bytes());
        }
        page.resize(ENTRIES * size_of::<ErrorInformation>(), 0);
        page
    }
}

impl Slot {
    fn read(&self) -> Option<[u64; WORDS]> {
        let before = self.sequence.load(Ordering::Acquire);
        let words = core::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let after = self.sequence.load(Ordering::Relaxed);
        let [count, ..]: [u64; WORDS] = words;
        (before == after && before & 1 == 0 && count != 0).then_some(words)
    }
}

fn error_of(words: [u64; WORDS]) -> Error {
    // The transport is not part of it.
    let entry = decode(words, 0);
    Error {
        queue: QueueId(entry.sqid.get()),
        cid: Cid(entry.cid.get()),
        status: entry.status(),
        location: entry.parameter_error_location(),
        nsid: Nsid(entry.nsid.get()),
        lba: entry.lba.get(),
        opcode: entry.opc,
        information: entry.csinfo.get(),
    }
}

fn decode([count, place, lba, rest, information]: [u64; WORDS], transport: u8) -> ErrorInformation {
    let [q0, q1, c0, c1, s0, s1, byte, bit] = place.to_le_bytes();
    let [n0, n1, n2, n3, opcode, ..] = rest.to_le_bytes();
    let mut entry = ErrorInformation {
        ec: count.into(),
        sqid: u16::from_le_bytes([q0, q1]).into(),
        cid: u16::from_le_bytes([c0, c1]).into(),
        lba: lba.into(),
        nsid: u32::from_le_bytes([n0, n1, n2, n3]).into(),
        trtype: transport,
        opc: opcode,
        csinfo: information.into(),
        lpver: 1,
        ..ErrorInformation::default()
    };
    entry.set_status(Status(u16::from_le_bytes([s0, s1])));
    let known = (byte, bit) != (0xff, 0xff);
    entry.set_parameter_error_location(known.then_some(ParameterErrorLocation { byte, bit }));
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    fn entry(cid: u16) -> Error {
        Error {
            queue: QueueId(3),
            cid: Cid(cid),
            status: Status::LBA_OUT_OF_RANGE.dnr().more(),
            location: Some(ParameterErrorLocation { byte: 40, bit: 0 }),
            nsid: Nsid(7),
            lba: 0x1234_5678_9abc,
            opcode: 2,
            information: 0,
        }
    }

    #[test]
    fn the_newest_error_comes_first_and_the_log_keeps_64() {
        let log = ErrorLog::new();
        for cid in 0..100 {
            assert!(log.record(&entry(cid)));
        }
        let page = log.page(3);
        let entries = <[ErrorInformation]>::ref_from_bytes(&page).unwrap();
        assert_eq!(entries.len(), ENTRIES);
        assert_eq!((entries[0].ec.get(), entries[0].cid.get()), (100, 99));
        assert_eq!((entries[63].ec.get(), entries[63].cid.get()), (37, 36));
        let first = entries[0];
        assert_eq!((first.sqid.get(), first.nsid.get(), first.lba.get()), (3, 7, 0x1234_5678_9abc));
        assert_eq!((first.opc, first.trtype, first.lpver), (2, 3, 1));
        assert!(first.status().is(Status::LBA_OUT_OF_RANGE));
        assert_eq!(first.parameter_error_location(), Some(ParameterErrorLocation { byte: 40, bit: 0 }));
    }

    #[test]
    fn concurrent_writers_do_not_mix_their_entries() {
        extern crate std;
        let log = ErrorLog::new();
        std::thread::scope(|scope| {
            for writer in 0..4_u16 {
                let log = &log;
                scope.spawn(move || {
                    for turn in 0..2000_u16 {
                        let cid = writer << 12 | turn;
                        log.record(&Error { lba: cid.into(), nsid: Nsid(cid.into()), ..entry(cid) });
                    }
                });
            }
            for _ in 0..200 {
                let page = log.page(3);
                let entries = <[ErrorInformation]>::ref_from_bytes(&page).unwrap();
                for entry in entries.iter().filter(|entry| entry.ec.get() != 0) {
                    assert_eq!(u64::from(entry.cid.get()), entry.lba.get());
                    assert_eq!(u32::from(entry.cid.get()), entry.nsid.get());
                }
                assert!(entries.is_sorted_by_key(|entry| core::cmp::Reverse(entry.ec.get())));
            }
        });
        assert_eq!(log.count(), 8000);
    }

    #[test]
    fn errors_are_returned_once() {
        let log = ErrorLog::new();
        (0..3).for_each(|cid| assert!(log.record(&entry(cid))));
        let since = |after| log.since(after);
        assert_eq!(since(0), [(1, entry(0)), (2, entry(1)), (3, entry(2))]);
        assert_eq!(since(2), [(3, entry(2))]);
        assert_eq!(since(3), []);
    }

    #[test]
    fn an_error_without_a_location_has_none() {
        let log = ErrorLog::new();
        assert!(log.record(&Error { location: None, ..entry(1) }));
        let page = log.page(3);
        let entries = <[ErrorInformation]>::ref_from_bytes(&page).unwrap();
        assert_eq!(entries[0].parameter_error_location(), None);
        assert_eq!(entries[1].ec.get(), 0);
    }
}
