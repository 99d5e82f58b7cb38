//! Tests: counters, warnings and pages as hosts see them.

use super::*;
use alloc::vec;

const ENDURANCE: Endurance = Endurance { rated_bytes: 1_000_000_000_000, amplification_percent: 150 };

fn condition() -> Condition {
    Condition { kelvin: TEMPERATURE_KELVIN, total_bytes: 1000, free_bytes: 900, ..Condition::default() }
}

fn page(health: &Health, nsid: Nsid) -> SmartHealth {
    health.page(nsid, &condition(), &Thresholds::DEFAULT, &ENDURANCE)
}

fn activity(nsid: u32, usage: Usage) -> Activity {
    Activity {
        elapsed_ms: 90_000,
        busy_ms: 60_000,
        namespaces: vec![(Nsid(nsid), usage)],
        kelvin: 300,
        ..Activity::default()
    }
}

#[test]
fn counters_are_for_all_hosts_and_for_each_namespace() {
    let mut health = Health::default().opened();
    let usage = Usage { bytes_read: 512_001, bytes_written: 1_000_000, read_commands: 3, write_commands: 4 };
    health.advance(&activity(1, usage), &ENDURANCE);
    health.advance(&activity(2, Usage { bytes_read: 1, ..usage }), &ENDURANCE);
    let all = page(&health, Nsid::ALL);
    assert_eq!((all.dur.get(), all.duw.get()), (2, 4));
    assert_eq!((all.hrc.get(), all.hwc.get()), (6, 8));
    assert_eq!((all.cbt.get(), all.pwrc.get(), all.poh.get()), (2, 1, 0));
    assert_eq!((all.cw, all.avsp, all.avspt, all.pused), (0, 100, 10, 0));
    assert_eq!(all.temperature_celsius(), Some(35));
    let one = page(&health, Nsid(2));
    assert_eq!((one.dur.get(), one.duw.get(), one.hrc.get()), (1, 2, 3));
    assert_eq!(one.pwrc, all.pwrc);
    health.forget(Nsid(2));
    assert_eq!(page(&health, Nsid(2)).hrc.get(), 0);
    assert_eq!(page(&health, Nsid::NONE), page(&health, Nsid::ALL));
    assert_eq!(page(&health, Nsid::NONE).hrc.get(), 6);
}

#[test]
fn opening_counts_power_cycles_and_kills() {
    let closed = Health::default().opened().closed();
    assert_eq!((closed.power_cycles, closed.unsafe_shutdowns), (1, 0));
    let killed = closed.opened();
    let kept: Health = serde_json::from_slice(&serde_json::to_vec(&killed).unwrap()).unwrap();
    let again = kept.opened();
    assert_eq!((again.power_cycles, again.unsafe_shutdowns), (3, 1));
}

#[test]
fn percentage_used_grows_with_writes_and_may_exceed_100() {
    let mut health = Health::default();
    let write = |bytes_written| activity(1, Usage { bytes_written, ..Usage::default() });
    health.advance(&write(400_000_000_000), &ENDURANCE);
    assert_eq!(health.percentage_used(&ENDURANCE), 60);
    health.advance(&Activity { overhead_bytes: 50_000_000_000, ..Activity::default() }, &ENDURANCE);
    assert_eq!(health.percentage_used(&ENDURANCE), 65);
    health.advance(&write(1_200_000_000_000), &ENDURANCE);
    assert_eq!(health.percentage_used(&ENDURANCE), 245);
    health.advance(&write(u64::MAX), &ENDURANCE);
    assert_eq!(health.percentage_used(&ENDURANCE), 255);
    assert_eq!(health.percentage_used(&Endurance { rated_bytes: 0, ..ENDURANCE }), 0);
    let group = health.endurance_page(&condition(), &ENDURANCE);
    assert_eq!((group.ee.get(), group.pused, group.tegcap.get(), group.uegcap.get()), (667, 255, 1000, 900));
    assert!(group.muw.get() >= group.duw.get());
}

#[test]
fn temperature_warns_and_its_minutes_are_counted() {
    let mut health = Health::default();
    for (kelvin, minutes) in [(342, 5), (343, 2), (352, 1), (353, 4), (400, 1)] {
        health.advance(&Activity { elapsed_ms: minutes * 60_000, kelvin, ..Activity::default() }, &ENDURANCE);
    }
    let at = |kelvin| Condition { kelvin, sensors: vec![kelvin, 301], ..condition() };
    let page = health.page(Nsid::ALL, &at(343), &Thresholds::DEFAULT, &ENDURANCE);
    assert_eq!((page.wctt.get(), page.cctt.get(), page.cw), (3, 5, critical_warning::TEMPERATURE));
    assert_eq!((page.tsen[0].get(), page.tsen[1].get(), page.tsen[2].get()), (343, 301, 0));
    // A host's own thresholds.
    let thresholds = Thresholds { over: 310, under: 290 };
    let table = [(289, true), (290, true), (291, false), (309, false), (310, true)];
    for (kelvin, warns) in table {
        assert_eq!(at(kelvin).warnings(&thresholds) != 0, warns, "{kelvin}");
    }
    assert_eq!(excursion(308, 345), Some((Thermal::Warning, 2)));
    assert_eq!(excursion(308, 360), Some((Thermal::Critical, 7)));
    assert_eq!(excursion(360, 340), Some((Thermal::Normal, 3)));
    assert_eq!((excursion(345, 346), excursion(360, 350), excursion(300, 310)), (None, None, None));
}

#[test]
fn an_overcommitted_drive_warns_before_it_is_full() {
    let nearly = Condition { free_bytes: 99, ..condition() };
    assert_eq!((nearly.spare_percent(), nearly.warnings(&Thresholds::DEFAULT)), (100, 0));
    let nearly = Condition { overcommitted: true, ..nearly };
    assert_eq!((nearly.spare_percent(), nearly.warnings(&Thresholds::DEFAULT)), (9, critical_warning::SPARE));
    let page = Health::default().page(Nsid::ALL, &nearly, &Thresholds::DEFAULT, &ENDURANCE);
    assert_eq!((page.avsp, page.cw, page.egcws), (9, 1, 1));
}

#[test]
fn new_warnings_are_events_once() {
    let all = critical_warning::SPARE
        | critical_warning::TEMPERATURE
        | critical_warning::DEGRADED
        | critical_warning::READ_ONLY;
    let expected = [AsyncEvent::SPARE_BELOW_THRESHOLD, AsyncEvent::TEMPERATURE_THRESHOLD, AsyncEvent::RELIABILITY];
    assert_eq!(events(0, all), expected);
    assert_eq!(events(all, all), []);
    assert_eq!(events(all, 0), []);
    assert_eq!(
        events(critical_warning::DEGRADED, critical_warning::DEGRADED | critical_warning::READ_ONLY),
        [AsyncEvent::RELIABILITY]
    );
}

#[test]
fn a_snapshot_is_due_once_a_day() {
    let mut health = Health::default();
    let hours = |hours: u64| Activity { elapsed_ms: hours * 3_600_000, ..Activity::default() };
    health.advance(&hours(23), &ENDURANCE);
    assert!(!health.is_snapshot_due());
    health.advance(&hours(1), &ENDURANCE);
    assert!(health.is_snapshot_due());
    health.snapshot_taken();
    assert!(!health.is_snapshot_due());
}
