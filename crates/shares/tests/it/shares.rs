//! What flows get of a device that all of them keep busy.

use ebof_shares::{Depth, Flow, Kind, Request, Scheduler, Share, Verdict};

use crate::support::{Host, Service, World, assert_equal, assert_near, second};

const SERVICES: [Service; 3] = [Service::Constant, Service::Jittery, Service::SlowWrites];

fn weight(weight: u16) -> Share {
    Share { weight, ..Share::default() }
}

#[test]
fn five_equal_flows_get_the_same() {
    for service in SERVICES {
        let got = second(service, 8, vec![Host::reader(128); 5]);
        assert_equal(&got, 1);
        let alone = second(service, 8, vec![Host::reader(640)]);
        assert!(got.iter().sum::<u64>() * 100 >= alone[0] * 98, "{got:?} of {alone:?}");
    }
}

#[test]
fn a_larger_depth_and_more_queues_gain_nothing() {
    for service in SERVICES {
        let mut hosts = vec![Host::reader(128); 5];
        hosts[0].depth = 1024;
        assert_equal(&second(service, 8, hosts.clone()), 1);
        hosts[0].queues = 64;
        hosts[0].depth = 32;
        assert_equal(&second(service, 8, hosts), 1);
    }
}

#[test]
fn weights_are_kept() {
    for service in SERVICES {
        let mut hosts = vec![Host::reader(128); 5];
        hosts[0] = hosts[0].with(weight(4));
        let got = second(service, 8, hosts);
        assert_equal(&got[1..], 2);
        assert_near(got[0], 4 * got[1], 2);
    }
}

#[test]
fn large_requests_pay_for_their_pages() {
    let large = Host { request: Request { kind: Kind::Read, bytes: 131_072 }, ..Host::reader(128) };
    let mut hosts = vec![Host::reader(128); 5];
    hosts[0] = large;
    let mut world = World::new(Depth::adaptive(), Service::Constant, 8, hosts);
    world.run(1_000_000);
    let got = world.measure(4_000_000);
    assert_equal(&got[1..], 1);
    assert_near(got[0] * 33, got[1] * 2, 3);
}

#[test]
fn a_writer_pays_for_what_writes_take() {
    let mut hosts = vec![Host::reader(128); 5];
    hosts[0].request.kind = Kind::Write;
    let mut world = World::new(Depth::adaptive(), Service::SlowWrites, 8, hosts);
    world.run(8_000_000);
    let factor = world.scheduler.write_factor();
    assert!((3.0..=5.5).contains(&factor), "a factor of {factor}");
    let got = world.measure(12_000_000);
    assert_equal(&got[1..], 2);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
    assert_near(got[0] * (factor * 100.0) as u64, got[1] * 100, 10);
}

#[test]
fn two_of_five_get_all_of_it() {
    for service in SERVICES {
        let mut hosts = vec![Host::reader(128); 5];
        for idle in &mut hosts[2..] {
            idle.active_us = (0, 500_000);
        }
        let got = second(service, 8, hosts);
        assert_equal(&got[..2], 1);
        assert_eq!(got[2..], [0; 3]);
        let alone = second(service, 8, vec![Host::reader(640)]);
        assert!((got[0] + got[1]) * 100 >= alone[0] * 97, "{got:?} of {alone:?}");
    }
}

#[test]
fn shares_change_within_100_ms() {
    for service in SERVICES {
        let mut hosts = vec![Host::reader(256); 3];
        hosts[1].active_us = (1_000_000, 2_000_000);
        let mut world = World::new(Depth::adaptive(), service, 8, hosts);
        world.run(1_100_000);
        assert_equal(&world.measure(1_300_000), 3);
        world.run(2_100_000);
        let got = world.measure(2_300_000);
        assert_eq!(got[1], 0);
        assert_equal(&[got[0], got[2]], 3);
        world.scheduler.set_share(World::flow(0), weight(3), world.now_us);
        world.run(2_400_000);
        let got = world.measure(2_600_000);
        assert_near(got[0], 3 * got[2], 3);
    }
}

#[test]
fn a_flow_that_was_idle_has_no_credit() {
    let mut hosts = vec![Host::reader(256); 3];
    hosts[1].active_us = (5_000_000, u64::MAX);
    let mut world = World::new(Depth::adaptive(), Service::Constant, 8, hosts);
    world.run(5_000_000);
    let got = world.measure(5_050_000);
    assert!(got[1] <= got[0] + 40, "{got:?}");
    assert!(got[1] * 2 >= got[0], "{got:?}");
}

#[test]
fn a_lone_reader_hardly_waits_for_large_streams() {
    // The p99 of the first one, and how much the others get done.
    let measure = |hosts: Vec<Host>| {
        let mut world = World::new(Depth::adaptive(), Service::Constant, 8, hosts);
        world.run(2_000_000);
        world.latencies[0].clear();
        let done = world.measure(4_000_000);
        let mut all = std::mem::take(&mut world.latencies[0]);
        all.sort_unstable();
        (all.get(all.len() * 99 / 100).copied().unwrap_or_default(), done[1..].iter().sum::<u64>())
    };
    let (alone, _) = measure(vec![Host::reader(1)]);
    let stream = Host { request: Request { kind: Kind::Read, bytes: 131_072 }, ..Host::reader(32) };
    let mut hosts = vec![stream; 5];
    hosts[0] = Host::reader(1);
    let (beside, streams) = measure(hosts.clone());
    // A request of the streams takes 162 us.
    assert!(beside <= 3 * alone, "{beside} us beside streams, {alone} us alone");
    hosts[0].active_us = (0, 500_000);
    let (_, most) = measure(hosts);
    // The reader has a part of the device, too: one of the 8 that are served at a time.
    assert!(streams * 100 >= most * 70, "{streams} of {most}");
}

#[test]
fn the_depth_follows_the_device() {
    let depth = |service, parallel| {
        let mut world = World::new(Depth::adaptive(), service, parallel, vec![Host::reader(1000); 2]);
        world.run(6_000_000);
        world.scheduler.depth().requests() as usize
    };
    for service in SERVICES {
        for parallel in [4, 16, 64] {
            let depth = depth(service, parallel);
            assert!((parallel..=6 * parallel).contains(&depth), "{depth} for {parallel}, {service:?}");
        }
    }
}

#[test]
fn only_a_flow_that_is_alone_and_unlimited_need_not_ask() {
    let mut scheduler = Scheduler::new(Depth::adaptive());
    let [first, second] = [1, 2].map(|number| Flow::new(number).unwrap());
    let read = Request { kind: Kind::Read, bytes: 4096 };
    assert_eq!(scheduler.sole(0), None);
    let ticket = scheduler.submit(first, read, (), 20_000).ticket();
    assert_eq!(scheduler.sole(20_000), Some(first));
    assert_eq!(scheduler.sole(20_001), None, "not asked for all the time");
    let other = scheduler.submit(second, read, (), 40_000).ticket();
    assert_eq!(scheduler.sole(40_000), None, "there are two");
    scheduler.release(other, 50_000);
    scheduler.release(ticket, 900_000);
    assert_eq!(scheduler.sole(900_000), None, "the other one was there a moment ago");
    let waiting: Vec<_> = (0..100).map(|_| scheduler.submit(first, read, (), 1_100_000)).collect();
    assert_eq!(scheduler.sole(1_100_000), Some(first));
    let gone = waiting.iter().filter(|verdict| matches!(verdict, Verdict::Go(_))).count();
    let released = std::iter::from_fn(|| scheduler.next(1_100_000)).count();
    assert!(gone < 50 && gone + released == 100, "what waits goes, whatever the depth: {gone} and {released}");
    scheduler.set_share(first, Share { iops: Some(10), ..Share::default() }, 1_100_001);
    assert_eq!(scheduler.sole(1_100_001), None, "it has a limit");
}

#[test]
fn there_are_129_flows() {
    assert_eq!(Flow::new(128).map(Flow::number), Some(128));
    assert_eq!(Flow::new(129), None);
}
