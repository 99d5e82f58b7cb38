//! Tests: errors as hosts read them, and after a kill.

use super::*;
use proptest::prelude::*;
use zerocopy::FromBytes;

fn error(cid: u16, status: Status) -> Error {
    Error {
        queue: QueueId(3),
        cid: Cid(cid),
        status,
        location: Some(ParameterErrorLocation { byte: 40, bit: 1 }),
        nsid: Nsid(7),
        lba: 0x1234,
        opcode: 2,
        information: 9,
    }
}

fn mild(cid: u16) -> Error {
    error(cid, Status::LBA_OUT_OF_RANGE.dnr().more())
}

fn page(log: &ErrorLog) -> Vec<ErrorInformation> {
    let page = log.page(ENTRIES_DEFAULT, 3, false);
    <[ErrorInformation]>::ref_from_bytes(&page).unwrap().to_vec()
}

/// The log after a restart.
fn restored(log: &ErrorLog) -> ErrorLog {
    serde_json::from_slice(&serde_json::to_vec(log).unwrap()).unwrap()
}

fn flush(log: &mut ErrorLog, durable: &mut ErrorLog) {
    if let Some(flush) = log.flush() {
        let kept: Flush = serde_json::from_slice(&serde_json::to_vec(&flush).unwrap()).unwrap();
        durable.apply(kept);
        log.apply(flush);
    }
}

#[test]
fn a_host_sees_the_newest_errors_first() {
    let mut log = ErrorLog::default();
    for cid in 0..100 {
        log.record(&mild(cid), ENTRIES_DEFAULT);
    }
    let page = page(&log);
    assert_eq!((page.len(), page[0].ec.get(), page[0].cid.get()), (64, 100, 99));
    assert_eq!((page[63].ec.get(), page[63].cid.get()), (37, 36));
    let first = page[0];
    assert_eq!((first.sqid.get(), first.nsid.get(), first.lba.get(), first.csinfo.get()), (3, 7, 0x1234, 9));
    assert_eq!((first.opc, first.trtype, first.lpver), (2, 3, 1));
    assert!(first.status().is(Status::LBA_OUT_OF_RANGE));
    assert_eq!(first.parameter_error_location(), Some(ParameterErrorLocation { byte: 40, bit: 1 }));
    let hidden = log.page(256, 3, true);
    assert_eq!(hidden.len(), 256 * 64);
    let hidden = <[ErrorInformation]>::ref_from_bytes(&hidden).unwrap();
    assert!(hidden.iter().all(|entry| entry.lba.get() == 0) && hidden[64].ec.get() == 0);
}

#[test]
fn lost_data_and_internal_errors_are_recorded_immediately() {
    let severe = [
        Status::INTERNAL_ERROR,
        Status::WRITE_FAULT,
        Status::UNRECOVERED_READ_ERROR.dnr(),
        Status::GUARD_CHECK_ERROR,
        Status::REFERENCE_TAG_CHECK_ERROR,
    ];
    let mut log = ErrorLog::default();
    // The first one reserves numbers.
    assert_eq!(log.record(&mild(0), 64), Urgency::AtOnce);
    flush(&mut log, &mut ErrorLog::default());
    for status in severe {
        assert_eq!(log.record(&error(1, status), 64), Urgency::AtOnce, "{status}");
    }
    for status in [Status::COMPARE_FAILURE, Status::INVALID_FIELD, Status::RESERVATION_CONFLICT] {
        assert_eq!(log.record(&error(1, status), 64), Urgency::Periodic, "{status}");
    }
    assert!(is_media_error(Status::WRITE_FAULT) && !is_media_error(Status::INTERNAL_ERROR));
}

#[test]
fn flushed_entries_survive_a_restart_and_numbers_are_never_reused() {
    let (mut log, mut durable) = (ErrorLog::default(), ErrorLog::default());
    for cid in 0..3 {
        log.record(&mild(cid), 64);
    }
    flush(&mut log, &mut durable);
    assert_eq!(log.flush(), None);
    log.record(&mild(3), 64);
    let shown = log.count();
    // Killed: the fourth is lost, and its number is not reused.
    let mut log = restored(&durable);
    assert_eq!(page(&log).iter().filter(|entry| entry.ec.get() != 0).count(), 3);
    log.record(&mild(4), 64);
    assert!(log.count() > shown);
    assert_eq!(page(&log)[1].ec.get(), 3);
    // Only new entries are written, and more may follow meanwhile.
    let flush = log.flush().unwrap();
    assert_eq!(flush.entries.len(), 1);
    log.record(&mild(6), 64);
    durable.apply(flush.clone());
    log.apply(flush);
    assert_eq!(log.flush().unwrap().entries.len(), 1);
    // After a close the numbers continue without a gap.
    let count = log.count();
    let close = log.close().unwrap();
    durable.apply(close.clone());
    log.apply(close);
    assert_eq!(log.close(), None);
    let mut log = restored(&durable);
    assert_eq!((log.count(), log.flush(), log.close()), (count, None, None));
    log.record(&mild(5), 64);
    assert_eq!(log.count(), count + 1);
}

proptest! {
    #[test]
    fn numbers_increase_across_kills_at_any_time(
        steps in proptest::collection::vec((0_u8..12, 1_u16..2000), 1..40),
    ) {
        let (mut log, mut durable) = (ErrorLog::default(), ErrorLog::default());
        let mut last = 0;
        for (step, errors) in steps {
            match step {
                0 => log = restored(&durable),
                1 => flush(&mut log, &mut durable),
                2 => if let Some(close) = log.close() {
                    durable.apply(close.clone());
                    log.apply(close);
                    log = restored(&durable);
                },
                _ => for cid in 0..errors {
                    if log.record(&mild(cid), 64) == Urgency::AtOnce {
                        flush(&mut log, &mut durable);
                    }
                    prop_assert!(log.count() > last);
                    last = log.count();
                    prop_assert_eq!(log.page(1, 3, false)[..8].to_vec(), last.to_le_bytes().to_vec());
                },
            }
            prop_assert!(log.count() >= last);
            prop_assert!(log.entries.len() <= ENTRIES_MAX);
            let numbers: Vec<u64> = log.entries.iter().map(|entry| entry.count).collect();
            prop_assert!(numbers.is_sorted_by(|a, b| a < b));
        }
    }
}

/// More errors between two checks than the log holds.
#[test]
fn errors_that_are_only_counted_leave_a_gap_in_the_numbers() {
    let mut log = ErrorLog::default();
    let mut durable = ErrorLog::default();
    log.skip(0);
    assert_eq!(log.count(), 0);
    log.skip(1000);
    log.record(&mild(1), ENTRIES_DEFAULT);
    assert_eq!((log.count(), page(&log)[0].ec.get(), page(&log)[1].ec.get()), (1001, 1001, 0));
    flush(&mut log, &mut durable);
    log.skip(5);
    log.record(&mild(2), ENTRIES_DEFAULT);
    assert_eq!((page(&log)[0].ec.get(), page(&log)[1].ec.get()), (1007, 1001));
    let close = log.close().unwrap();
    durable.apply(close);
    let mut next = restored(&durable);
    assert_eq!(next.count(), 1007);
    next.record(&mild(3), ENTRIES_DEFAULT);
    assert_eq!(page(&next)[0].ec.get(), 1008, "numbers go on");
}
