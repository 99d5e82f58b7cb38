//! The JSON format is stable: a changed snapshot breaks programs that parse it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;

fn given(object: &str) -> NewEvent {
    NewEvent::new(EventKind::FunctionGiven, object, "given to port fabric0").who("admin")
}

fn refused(port: &str, who: &str) -> NewEvent {
    NewEvent::new(EventKind::ConnectionRefused, port, "not allowed").who(who)
}

fn ids(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.id).collect()
}

/// Events on a clock that stands still.
fn shared(now_ms: &Arc<AtomicU64>) -> SharedEvents {
    let clock = Arc::clone(now_ms);
    SharedEvents::new(ENTRIES_MAX, move || clock.load(Relaxed))
}

#[test]
fn events_keep_their_json_keys() {
    let now_ms = Arc::new(AtomicU64::new(1_795_000_000_000));
    let events = shared(&now_ms);
    events.report(given("d3/vf2"));
    events.report(NewEvent::new(EventKind::HealthWarning, "d3", "the spare is low").advice("replace the drive"));
    let answer = events.since(0, 10);
    let json = serde_json::to_string_pretty(&answer).unwrap();
    insta::assert_snapshot!("events", json);
    assert_eq!(serde_json::from_str::<EventsSince>(&json).unwrap(), answer);
    assert_eq!(answer.events[1].to_string(), "critical health-warning d3: the spare is low; replace the drive");
}

#[test]
fn kinds_keep_their_names() {
    let names: Vec<_> = EventKind::ALL.iter().map(|kind| format!("{kind} {}", kind.severity())).collect();
    insta::assert_snapshot!("kinds", names.join("\n"));
    for kind in EventKind::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
    }
}

#[test]
fn a_reader_is_told_what_it_missed() {
    let mut log = EventLog::new(8);
    assert_eq!(log.since(0, 10), (vec![], 0));
    for at in 0..10 {
        // Two kinds in turn, for each has a part of the log only.
        let kind = if at % 2 == 0 { EventKind::TaskBegan } else { EventKind::TaskEnded };
        log.record(at, NewEvent::new(kind, "", format!("{at}")));
    }
    let (events, lost) = log.since(3, 10);
    assert_eq!((ids(&events), lost), (vec![7, 8, 9, 10], 3));
    assert_eq!(log.latest(), 10);
    // A full answer ends at its last event; what is lost behind it is told by the next one.
    let (events, lost) = log.since(3, 2);
    assert_eq!((ids(&events), lost), (vec![7, 8], 3));
    let (events, lost) = log.since(8, 10);
    assert_eq!((ids(&events), lost), (vec![9, 10], 0));
    assert_eq!(log.since(10, 10), (vec![], 0));
    assert_eq!(log.since(u64::MAX, 10), (vec![], 0));
}

#[test]
fn many_events_of_a_kind_do_not_drive_out_others() {
    let mut log = EventLog::new(64);
    log.record(0, given("d3/vf2"));
    for at in 0..1000 {
        log.record(at, NewEvent::new(EventKind::TaskProgress, "", "further"));
    }
    let (events, lost) = log.since(0, 100);
    assert_eq!((events.len(), lost, events[0].kind), (17, 984, EventKind::FunctionGiven));
}

#[test]
fn the_whole_log_is_bounded() {
    let mut log = EventLog::new(64);
    for round in 0..100 {
        for kind in EventKind::ALL.iter().filter(|kind| !kind.is_by_others()) {
            log.record(round, NewEvent::new(*kind, "", "x"));
        }
    }
    let (events, lost) = log.since(0, 1000);
    assert_eq!(events.len(), 64);
    assert_eq!(lost + 64, log.latest());
    let kept: usize = log.by_kind.values().map(std::collections::VecDeque::len).sum();
    assert_eq!(kept, 64);
}

#[test]
fn what_others_repeat_is_counted_and_told_once() {
    let mut log = EventLog::new(ENTRIES_MAX);
    let new = (0..1000).filter(|at| log.record(*at, refused("fabric0", "192.0.2.1"))).count();
    assert_eq!(new, 4);
    // Another host's is not lost in that.
    assert!(log.record(1000, refused("fabric0", "192.0.2.2")));
    assert!(!log.tick(9_999));
    assert!(log.tick(10_000));
    let (events, lost) = log.since(4, 10);
    let seen: Vec<_> = events.iter().map(|event| (event.id, event.time_unix_ms, event.count)).collect();
    assert_eq!((seen, lost), (vec![(5, 1000, 1), (6, 999, 996)], 0));
    assert!(!log.tick(30_000));
}

#[test]
fn no_number_of_names_makes_the_log_grow() {
    let mut log = EventLog::new(ENTRIES_MAX);
    for at in 0..200_000 {
        log.record(at / 100, refused("fabric0", &format!("nqn.2014-08.org.example:{at}")));
    }
    assert!(log.windows.values().map(|window| window.alike.len()).sum::<usize>() <= 64);
    log.tick(10_000);
    let (events, lost) = log.since(0, 1000);
    assert_eq!((events.len(), lost), (65, 0));
    assert_eq!(events.iter().map(|event| event.count).sum::<u64>(), 200_000);
    let counts = log.counts();
    assert!(counts.contains(&(EventKind::ConnectionRefused, 200_000)) && counts.contains(&(EventKind::PortUp, 0)));
}

#[test]
fn a_clock_that_is_set_back_ends_the_counting() {
    let mut log = EventLog::new(ENTRIES_MAX);
    (0..10).for_each(|_| _ = log.record(5_000_000, refused("fabric0", "192.0.2.1")));
    assert!(log.record(1, refused("fabric0", "192.0.2.1")));
    assert_eq!(log.since(4, 10).0.iter().map(|event| event.count).collect::<Vec<_>>(), [6, 1]);
}

#[test]
fn hosts_cannot_fill_the_log_with_text() {
    let mut log = EventLog::new(ENTRIES_MAX);
    log.record(1, refused("fabric0", &"é".repeat(10_000)));
    assert_eq!(log.since(0, 1).0[0].who.as_ref().unwrap().len(), 512);
}

#[test]
fn a_log_for_nothing_numbers_events() {
    let mut log = EventLog::new(0);
    log.record(1, given("d3/vf2"));
    assert_eq!((log.since(0, 10), log.latest()), ((vec![], 1), 1));
}

#[test]
fn those_who_wait_are_woken_until_they_leave() {
    let now_ms = Arc::new(AtomicU64::new(0));
    let events = shared(&now_ms);
    let woken = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&woken);
    let wake: Arc<Wake> = Arc::new(move || _ = counter.fetch_add(1, Relaxed));
    events.subscribe(Arc::downgrade(&wake));
    events.report(given("d3/vf2"));
    assert_eq!((woken.load(Relaxed), events.latest()), (1, 1));
    (0..10).for_each(|_| events.report(refused("fabric0", "192.0.2.1")));
    assert_eq!(woken.load(Relaxed), 5);
    now_ms.store(10_000, Relaxed);
    events.tick();
    assert_eq!(woken.load(Relaxed), 6);
    drop(wake);
    events.report(given("d3/vf2"));
    assert_eq!((woken.load(Relaxed), events.latest()), (6, 7));
    assert_eq!(events.waiting.lock().unwrap().len(), 0);
}

#[test]
fn a_number_from_before_a_restart_begins_anew() {
    let events = shared(&Arc::new(AtomicU64::new(7)));
    events.report(given("d3/vf2"));
    let answer = events.since(500, 10);
    assert_eq!((ids(&answer.events), answer.latest, answer.started_unix_ms), (vec![1], 1, 7));
}

// @test redfish.cleared-log
#[test]
fn a_log_that_is_cleared_keeps_what_somebody_did() {
    let mut log = EventLog::new(100);
    for kind in EventKind::ALL {
        log.record(0, NewEvent::new(*kind, "d0", "it happened").who("admin"));
    }
    let before = log.since(0, 1000).0.len();
    let cleared = log.clear();
    let (left, lost) = log.since(0, 1000);
    assert_eq!((left.len() + cleared, lost), (before, 0), "nobody is told that they are lost");
    assert!(left.iter().all(|event| event.kind.is_trail()) && !left.is_empty());
    for kind in [EventKind::SessionRefused, EventKind::AccountChanged, EventKind::LogCleared, EventKind::TaskEnded] {
        assert!(left.iter().any(|event| event.kind == kind), "{kind}");
    }
    // Numbers go on, and the next event is found by who has read to the end.
    let latest = log.latest();
    log.record(1, given("d1"));
    assert_eq!((ids(&log.since(latest, 10).0), log.since(3, 1000).1), (vec![latest + 1], 0));
    assert_eq!(log.clear(), 1);
    assert_eq!(log.clear(), 0);
}
