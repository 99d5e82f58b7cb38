//! Tests: self-tests from the command to the result.

use super::*;
use alloc::vec;
use ebof_nvme::{HostId, Nqn};
use proptest::prelude::*;

fn origin() -> Origin {
    let host = Nqn::parse("nqn.2014-08.org.example:host").unwrap();
    Origin::host(ControllerId(5), host, HostId([1; 16]))
}

/// Namespaces 1 and 2 with 3000 and 1000 extents of 1 MiB; 3 is not attached.
fn inventory() -> Inventory {
    Inventory { active: vec![(Nsid(1), 3000), (Nsid(2), 1000)], inactive: vec![Nsid(3)], extent_bytes: 1 << 20 }
}

fn start(code: SelfTestCode, nsid: Nsid) -> SelfTest {
    SelfTest::default().execute(&origin(), code, nsid, &inventory(), 7).unwrap().unwrap()
}

fn refused(test: &SelfTest, code: SelfTestCode, nsid: Nsid) -> Status {
    test.execute(&origin(), code, nsid, &inventory(), 7).unwrap_err().status
}

/// Executes all steps, each with the given `result`; returns the steps.
fn run(test: &mut SelfTest, result: impl Fn(SelfTestStep) -> Result<(), Failure>) -> Vec<SelfTestStep> {
    let mut steps = Vec::new();
    while let Some(step) = test.step() {
        steps.push(step);
        *test = test.advance(result(step), 8);
    }
    steps
}

#[test]
fn a_short_test_samples_and_an_extended_one_reads_everything() {
    let mut test = start(SelfTestCode::SHORT, Nsid::ALL);
    let steps = run(&mut test, |_| Ok(()));
    assert_eq!(steps.len(), 1024 + 3);
    assert_eq!((steps[0], steps[1], steps[1026]), (SelfTestStep::Health, SelfTestStep::Metadata, SelfTestStep::Life));
    assert_eq!(steps[3], SelfTestStep::Extent { nsid: Nsid(1), ordinal: 3 });
    assert_eq!(steps[1025], SelfTestStep::Extent { nsid: Nsid(2), ordinal: 996 });
    let mut test = start(SelfTestCode::EXTENDED, Nsid(2));
    let steps = run(&mut test, |_| Ok(()));
    let extents = (0..1000).map(|ordinal| SelfTestStep::Extent { nsid: Nsid(2), ordinal });
    assert!(steps[2..1002].iter().copied().eq(extents));
    let page = test.page();
    assert_eq!(page.current(), None);
    let entry = page.results[0];
    assert_eq!((entry.code(), entry.result(), entry.poh.get()), (SelfTestCode::EXTENDED, SelfTestResult::PASSED, 8));
    assert_eq!(page.results().count(), 1);
    // The controller alone.
    assert_eq!(run(&mut start(SelfTestCode::EXTENDED, Nsid::NONE), |_| Ok(())).len(), 3);
}

#[test]
fn progress_is_seen_while_it_runs() {
    let mut test = start(SelfTestCode::EXTENDED, Nsid(2));
    assert_eq!(test.page().current(), Some((SelfTestCode::EXTENDED, 0)));
    for _ in 0..502 {
        test = test.advance(Ok(()), 0);
    }
    assert_eq!(test.page().current(), Some((SelfTestCode::EXTENDED, 50)));
    assert!(refused(&test, SelfTestCode::SHORT, Nsid(1)).is(Status::SELF_TEST_IN_PROGRESS));
    // A test in the journal is resumed where it was.
    let kept: SelfTest = serde_json::from_slice(&serde_json::to_vec(&test).unwrap()).unwrap();
    assert_eq!(kept.interrupted(Cause::Restart, 9), None);
    assert_eq!(kept.step(), Some(SelfTestStep::Extent { nsid: Nsid(2), ordinal: 500 }));
}

#[test]
fn the_first_failure_is_reported_and_the_rest_is_tested() {
    let mut test = start(SelfTestCode::EXTENDED, Nsid::ALL);
    let bad = |step| match step {
        SelfTestStep::Extent { nsid, ordinal } if ordinal >= 900 => {
            Err(Failure::Data { nsid, lba: ordinal * 256, status: Status::UNRECOVERED_READ_ERROR.dnr() })
        }
        _ => Ok(()),
    };
    assert_eq!(run(&mut test, bad).len(), 4003);
    let entry = test.page().results[0];
    assert_eq!((entry.result(), entry.snum), (SelfTestResult::FAILED_SEGMENT, 3));
    assert_eq!((entry.failing_nsid(), entry.failing_lba()), (Some(Nsid(1)), Some(900 * 256)));
    assert!(entry.failing_status().unwrap().is(Status::UNRECOVERED_READ_ERROR));
    // Another kind of failure has no block.
    let mut test = start(SelfTestCode::SHORT, Nsid::NONE);
    run(&mut test, |step| if step == SelfTestStep::Life { Err(Failure::Segment) } else { Ok(()) });
    let entry = test.page().results[0];
    assert_eq!((entry.result(), entry.snum, entry.failing_lba()), (SelfTestResult::FAILED_SEGMENT, 4, None));
    // A fatal failure ends the test.
    let mut test = start(SelfTestCode::SHORT, Nsid(1));
    assert_eq!(run(&mut test, |_| Err(Failure::Fatal)).len(), 1);
    assert_eq!(test.page().results[0].result(), SelfTestResult::FATAL);
}

#[test]
fn a_host_aborts_it() {
    let test = start(SelfTestCode::EXTENDED, Nsid(1));
    let test = test.execute(&origin(), SelfTestCode::ABORT, Nsid::NONE, &inventory(), 9).unwrap().unwrap();
    assert_eq!((test.step(), test.page().results[0].result()), (None, SelfTestResult::ABORTED_BY_COMMAND));
    // If none is running, the log is unchanged.
    assert_eq!(test.execute(&origin(), SelfTestCode::ABORT, Nsid::NONE, &inventory(), 9).unwrap(), None);
}

#[test]
fn a_test_is_ended_by_the_events_of_the_specification() {
    let (one, all, none) = (Nsid(1), Nsid::ALL, Nsid::NONE);
    let (short, extended) = (SelfTestCode::SHORT, SelfTestCode::EXTENDED);
    let reset = Some(SelfTestResult::ABORTED_BY_RESET);
    let format = Some(SelfTestResult::ABORTED_BY_FORMAT);
    let table = [
        (short, one, Cause::Reset(ControllerId(5)), reset),
        (short, one, Cause::Reset(ControllerId(6)), None),
        (short, one, Cause::Restart, reset),
        (extended, one, Cause::Reset(ControllerId(5)), None),
        (extended, one, Cause::Restart, None),
        (short, one, Cause::Format(one), format),
        (short, one, Cause::Format(Nsid(2)), None),
        (extended, one, Cause::Format(all), format),
        (extended, all, Cause::Format(all), format),
        (extended, all, Cause::Format(one), format),
        (extended, none, Cause::Format(all), None),
        (extended, one, Cause::Removed(one), Some(SelfTestResult::ABORTED_NAMESPACE_REMOVED)),
        (extended, all, Cause::Removed(one), None),
        (extended, none, Cause::Sanitize, Some(SelfTestResult::ABORTED_BY_SANITIZE)),
    ];
    for (code, nsid, cause, expected) in table {
        let after = start(code, nsid).interrupted(cause, 3);
        let result = after.as_ref().map(|test| test.page().results[0].result());
        assert_eq!(result, expected, "{code:?} {nsid} {cause:?}");
        assert!(after.is_none_or(|test| test.step().is_none()));
    }
    assert_eq!(SelfTest::default().interrupted(Cause::Sanitize, 0), None);
}

#[test]
fn wrong_namespaces_and_codes_are_refused() {
    let test = SelfTest::default();
    assert!(refused(&test, SelfTestCode::SHORT, Nsid(3)).is(Status::INVALID_FIELD));
    assert!(refused(&test, SelfTestCode::SHORT, Nsid(4)).is(Status::INVALID_NAMESPACE));
    for code in [0, 3, 4, 0xd, 0xe] {
        assert!(refused(&test, SelfTestCode(code), Nsid(1)).is(Status::INVALID_FIELD), "{code}");
    }
}

#[test]
fn the_last_twenty_results_are_kept() {
    let mut test = SelfTest::default();
    for hours in 0..30 {
        test = test.execute(&origin(), SelfTestCode::SHORT, Nsid::NONE, &inventory(), hours).unwrap().unwrap();
        test = test.interrupted(Cause::Sanitize, hours).unwrap();
    }
    let hours: Vec<u64> = test.page().results().map(|entry| entry.poh.get()).collect();
    assert!(hours.into_iter().eq((10..30).rev()));
}

proptest! {
    #[test]
    fn any_test_ends_and_reads_only_existing_extents(
        extents in proptest::collection::vec(0_u64..3000, 0..6),
        extent_bytes in 1_u64..1 << 34,
        short: bool,
    ) {
        let active: Vec<(Nsid, u64)> = (1..).map(Nsid).zip(extents).collect();
        let inventory = Inventory { active: active.clone(), inactive: vec![], extent_bytes };
        let code = if short { SelfTestCode::SHORT } else { SelfTestCode::EXTENDED };
        let mut test = SelfTest::default().execute(&origin(), code, Nsid::ALL, &inventory, 0).unwrap().unwrap();
        let steps = run(&mut test, |_| Ok(()));
        let read: Vec<(Nsid, u64)> = steps.iter().filter_map(|step| match step {
            SelfTestStep::Extent { nsid, ordinal } => Some((*nsid, *ordinal)),
            _ => None,
        }).collect();
        prop_assert!(read.is_sorted_by(|a, b| a < b));
        prop_assert!(read.iter().all(|(nsid, ordinal)| active.iter().any(|(n, extents)| n == nsid && ordinal < extents)));
        let all: u64 = active.iter().map(|(_, extents)| extents).sum();
        let count = u64::try_from(read.len()).unwrap();
        if short {
            let namespaces = u64::try_from(active.len()).unwrap();
            prop_assert!(count.saturating_sub(namespaces) * extent_bytes <= SHORT_BYTES_MAX);
            let untouched = |nsid| !read.iter().any(|(read, _)| *read == nsid);
            prop_assert!(!active.iter().any(|(nsid, extents)| *extents > 0 && untouched(*nsid)));
        } else {
            prop_assert_eq!(count, all);
        }
    }
}
