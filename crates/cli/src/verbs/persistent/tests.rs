//! What follows from the logs of held services, without anything that is connected.

use clap::Parser as _;
use ebof_initiator::{DiscoveryLog, Which};
use ebof_nvme::log::DiscoveryEntry;

use super::*;
use crate::verbs::record::tests::record;
use crate::verbs::services::conf::options_of;

#[derive(clap::Parser)]
struct Arguments {
    #[command(flatten)]
    global: Global,
}

/// A log with these records, of which others are left out.
pub(super) fn log(entries: &[DiscoveryEntry], left_out: u64) -> DiscoveryLog {
    DiscoveryLog {
        generation: 1,
        record_format: 0,
        entries: entries.to_vec(),
        peer: ([127, 0, 0, 1], 8009).into(),
        left_out,
        not_offered: Which::default(),
    }
}

/// Two services, and an exclusion of all that they list: nothing is connected here.
fn held(directory: &std::path::Path) -> Persistent {
    std::fs::write(directory.join("exclusions.conf"), "[exclusions]\nexclusion = traddr=127.0.0.1\n").unwrap();
    let mut persistent = Persistent::new(&Arguments::parse_from(["ebof"]).global);
    persistent.places = Places::below(directory);
    for id in [0, 1] {
        let service = DiscoveryService::new(options_of("-t tcp -a 192.0.2.1").unwrap());
        let held = HeldService { service, front: Kind::default(), first_log: None };
        persistent.services.insert(id, FollowedService::new(held, true, Arc::default()));
    }
    persistent
}

fn ports(persistent: &Persistent) -> Vec<u16> {
    let mut ports: Vec<u16> = persistent.fates.keys().map(|(.., port)| *port).collect();
    ports.sort_unstable();
    ports
}

// @test host.persistent-bounds
#[test]
fn what_is_not_listed_any_more_is_forgotten_also_if_logs_are_too_long() {
    let directory = tempfile::tempdir().unwrap();
    let mut persistent = held(directory.path());
    let mut hear = |id, first: u16, left_out| {
        let entries: Vec<_> = (first..first + 100).map(record).collect();
        persistent.hear(id, Heard::Log(log(&entries, left_out))).unwrap();
        ports(&persistent)
    };
    hear(0, 1000, 0);
    for first in 1000..1010 {
        assert_eq!(hear(1, first * 2, 7), (1000..1100).chain(first * 2..first * 2 + 100).collect::<Vec<_>>());
    }
    assert_eq!(hear(1, 1000, 0), (1000..1100).collect::<Vec<_>>());
}

// @test host.persistent-bounds
#[test]
fn paths_that_failed_are_tried_again_when_that_is_due_and_not_at_each_event() {
    let directory = tempfile::tempdir().unwrap();
    let mut persistent = held(directory.path());
    let hear = |persistent: &mut Persistent, id| {
        persistent.hear(id, Heard::Log(log(&[record(4420)], 0))).unwrap();
        persistent.fates.values().next().cloned().unwrap()
    };
    assert_eq!(hear(&mut persistent, 0), Fate::LeftAlone);
    let failed = Fate::Failed("no answer".to_owned());
    persistent.fates.values_mut().for_each(|fate| *fate = failed.clone());
    assert_eq!(hear(&mut persistent, 0), failed, "an event is no reason to try it again");
    assert!(persistent.retry.is_some());
    assert_eq!(hear(&mut persistent, 1), Fate::LeftAlone, "another service lists it, too");
    persistent.fates.values_mut().for_each(|fate| *fate = failed.clone());
    persistent.try_again().unwrap();
    assert_eq!(persistent.fates.values().next(), Some(&Fate::LeftAlone));
    assert!(persistent.retry.is_none());
}
