//! What is left of the data of hosts by a sanitize operation, and what has to wait for one.

use ebof_nvme::log::critical_warning;
use ebof_nvme::media::{Sanitize, SanitizeAction};

use super::*;
use crate::logs::health::{Activity, Condition, Thresholds};
use crate::maintenance::sanitize::Method;

fn encrypting() -> Settings {
    Settings { encrypted: true, ..Settings::default() }
}

fn start(bench: &mut Bench, action: SanitizeAction) {
    bench.ask("a", 0, Request::Sanitize(Sanitize::new(action))).unwrap();
}

fn end(bench: &mut Bench, success: bool) {
    let ended = bench.drive.sanitize_ended(success, &origin("a", 0), &DecisionInput::default()).unwrap();
    ended.changes.into_iter().for_each(|change| bench.keep(change));
}

/// New keys erase what was encrypted. A drive that has had other blocks since its last sanitize
/// operation erases them, too, also if their namespace is deleted or encrypted by now.
#[test]
fn a_crypto_erase_erases_what_was_never_encrypted() {
    let method = |bench: &mut Bench| {
        start(bench, SanitizeAction::CryptoErase);
        let work = bench.drive.sanitize_work().unwrap();
        end(bench, true);
        work.method
    };
    let mut bench = Bench::new(encrypting());
    let encrypted = bench.create(8, true).unwrap();
    bench.ask("a", 0, Request::Attach(encrypted, vec![ControllerId(0)])).unwrap();
    assert_eq!(method(&mut bench), Method::NewKeys);

    // One from before the drive encrypted.
    bench.drive.settings.encrypted = false;
    let plain = bench.create(8, true).unwrap();
    bench.drive.settings.encrypted = true;
    assert_eq!(method(&mut bench), Method::Erase);
    assert_eq!(method(&mut bench), Method::Erase, "it is still there");
    bench.ask("a", 0, Request::Delete(plain)).unwrap();
    assert_eq!(method(&mut bench), Method::Erase, "its blocks were");
    assert_eq!(method(&mut bench), Method::NewKeys);
    // One that was there between two operations.
    bench.drive.settings.encrypted = false;
    let brief = bench.create(8, true).unwrap();
    bench.drive.settings.encrypted = true;
    bench.ask("a", 0, Request::Delete(brief)).unwrap();
    assert_eq!(method(&mut bench), Method::Erase);
    assert_eq!(method(&mut bench), Method::NewKeys);

    // By a format, and back.
    for is_encrypted in [false, true] {
        bench.drive.settings.encrypted = is_encrypted;
        bench.ask("a", 0, Request::Format(encrypted, ebof_nvme::media::Format::new(0))).unwrap();
    }
    start(&mut bench, SanitizeAction::CryptoErase);
    end(&mut bench, false);
    assert_eq!(method(&mut bench), Method::Erase, "an operation that fails has erased nothing");
    assert_eq!(method(&mut bench), Method::NewKeys);
}

/// Namespaces are neither made nor formatted in the middle of an operation, nor after one that
/// failed.
#[test]
fn a_drive_that_is_sanitized_makes_no_namespaces() {
    let mut bench = Bench::new(Settings::default());
    let nsid = bench.create(8, true).unwrap();
    bench.ask("a", 0, Request::Attach(nsid, vec![ControllerId(0)])).unwrap();
    for (success, status) in [(true, Status::SANITIZE_IN_PROGRESS), (false, Status::SANITIZE_FAILED)] {
        start(&mut bench, SanitizeAction::BlockErase);
        assert!(bench.drive.state().sanitize.is_processing());
        if !success {
            end(&mut bench, false);
        }
        assert!(bench.create(8, true).unwrap_err().is(status));
        for request in [Request::Delete(nsid), Request::Format(nsid, ebof_nvme::media::Format::new(0))] {
            assert!(bench.refused(request).is(status));
        }
        if success {
            end(&mut bench, true);
            assert!(!bench.drive.state().sanitize.is_processing());
            bench.create(8, true).unwrap();
        }
    }
}

/// What is wrong with a drive is captured when it begins, not what a host may mend.
#[test]
fn a_drive_that_breaks_captures_why() {
    let good = Condition { kelvin: 300, total_bytes: 1, free_bytes: 1, ..Condition::default() };
    for (condition, is_captured) in [
        (Condition { degraded: true, ..good.clone() }, true),
        (Condition { read_only: true, ..good.clone() }, true),
        (Condition { degraded: true, read_only: true, ..good.clone() }, true),
        (Condition { kelvin: 400, ..good.clone() }, false),
        (good.clone(), false),
    ] {
        let mut bench = Bench::new(Settings::default());
        let mut advance = |condition: &Condition| {
            let input = DecisionInput::default();
            let update = bench.drive.advance(&Activity::default(), condition.clone(), false, &origin("a", 0), &input);
            update.changes.into_iter().for_each(|change| bench.keep(change));
            (bench.drive.state().telemetry.is_available(), update.events.contains(&AsyncEvent::TELEMETRY_LOG_CHANGED))
        };
        assert_eq!(advance(&good), (false, false));
        assert_eq!(advance(&condition), (is_captured, is_captured), "{condition:?}");
        assert_eq!(advance(&condition), (is_captured, false), "{condition:?}");
    }
}

/// A warning that lasts is one event of the drive, and its reason is captured once.
#[test]
fn a_warning_that_lasts_is_told_once() {
    let mut bench = Bench::new(Settings::default());
    let mut advance = |condition: Condition| {
        let input = DecisionInput::default();
        let update = bench.drive.advance(&Activity::default(), condition, false, &origin("a", 0), &input);
        let recorded = update.changes.iter().filter(|change| matches!(change, Change::Happened { .. })).count();
        update.changes.into_iter().for_each(|change| bench.keep(change));
        (recorded, update.events.len())
    };
    let good = Condition { kelvin: 300, total_bytes: 1, free_bytes: 1, ..Condition::default() };
    let bad = Condition { degraded: true, ..good.clone() };
    assert_eq!(bad.warnings(&Thresholds::DEFAULT), critical_warning::DEGRADED);
    advance(good.clone());
    let told = [good.clone(), bad.clone(), bad.clone(), good, bad].map(&mut advance);
    assert!(told[1].0 > 0 && told[1].1 > 0 && told[4].0 > 0 && told[4].1 > 0, "{told:?}");
    assert_eq!([told[0], told[2], told[3]], [(0, 0); 3], "{told:?}");
}
