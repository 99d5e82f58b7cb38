//! Limits and minimums.

use std::collections::VecDeque;

use ebof_shares::{Depth, Flow, Kind, Request, Scheduler, Share, Ticket, Verdict};

use crate::support::{Host, Service, World, assert_equal, assert_near, second};

#[test]
fn limits_are_kept_and_reached() {
    for service in [Service::Constant, Service::Jittery] {
        for iops in [200, 3_333, 10_000] {
            let limited = Host::reader(64).with(Share { iops: Some(iops), ..Share::default() });
            assert_near(second(service, 8, vec![limited])[0], iops, 2);
            let got = second(service, 8, vec![limited, Host::reader(64), Host::reader(64)]);
            assert_near(got[0], iops, 2);
            let alone = second(service, 8, vec![Host::reader(640)]);
            assert!(got.iter().sum::<u64>() * 100 >= alone[0] * 97, "the others have the rest: {got:?} of {alone:?}");
        }
        let stream = Host { request: Request { kind: Kind::Read, bytes: 131_072 }, ..Host::reader(16) };
        let limited = stream.with(Share { bytes_per_second: Some(250 << 20), ..Share::default() });
        let got = second(service, 8, vec![limited, Host::reader(64)]);
        assert_near(got[0], (250 << 20) / 131_072, 2);
    }
}

#[test]
fn a_limit_that_changes_holds_at_once() {
    let limited = Host::reader(64).with(Share { iops: Some(1_000), ..Share::default() });
    let mut world = World::new(Depth::adaptive(), Service::Constant, 8, vec![limited]);
    world.run(1_000_000);
    world.scheduler.set_share(World::flow(0), Share { iops: Some(5_000), ..Share::default() }, world.now_us);
    world.run(1_010_000);
    assert_near(world.measure(2_010_000)[0], 5_000, 2);
    world.scheduler.set_share(World::flow(0), Share { iops: Some(500), ..Share::default() }, world.now_us);
    assert_near(world.measure(3_010_000)[0], 500, 5);
    let figures = world.scheduler.figures(World::flow(0), world.now_us);
    assert!(figures.throttled_us > 2_500_000, "{figures:?}");
    assert!(figures.waited_us > 0);
}

#[test]
fn a_minimum_is_kept_beside_any_weights_and_nobody_starves() {
    for service in [Service::Constant, Service::Jittery] {
        let share = Share { weight: 1, minimum_iops: Some(20_000), ..Share::default() };
        let mut hosts = vec![Host::reader(256).with(Share { weight: 1000, ..Share::default() }); 4];
        hosts[0] = Host::reader(256).with(share);
        let got = second(service, 8, hosts.clone());
        let total: u64 = got.iter().sum();
        assert!(total > 44_000, "more than the minimum is there: {got:?}");
        assert_near(got[0], 20_000, 3);
        // More is promised than there is: the others are not starved.
        hosts[0].share.minimum_iops = Some(10_000_000);
        let got = second(service, 8, hosts);
        assert!(got[0] * 100 >= total * 80, "{got:?}");
        assert!(got[1..].iter().all(|&other| other * 50 >= total), "{got:?}");
    }
}

#[test]
fn who_lacks_its_minimum_for_longest_comes_first() {
    // More is promised than there is.
    let promised = Share { minimum_iops: Some(10_000_000), ..Share::default() };
    let heavy = Host::reader(256).with(Share { weight: 1000, ..Share::default() });
    let hosts = vec![heavy, Host::reader(256).with(promised), Host::reader(256).with(promised)];
    // Where eight requests end at once, one has four of the seven that are not the other's.
    for (service, percent) in [(Service::Jittery, 5), (Service::Constant, 30)] {
        let got = second(service, 8, hosts.clone());
        assert!(got[1] > 2 * got[0], "{got:?}");
        assert_equal(&got[1..], percent);
    }
}

#[test]
fn a_request_that_is_withdrawn_is_kept_by_a_limit_no_longer() {
    let mut scheduler = Scheduler::new(Depth::adaptive());
    let flow = Flow::new(1).unwrap();
    let read = Request { kind: Kind::Read, bytes: 4096 };
    scheduler.set_share(flow, Share { iops: Some(1), ..Share::default() }, 0);
    assert!(matches!(scheduler.submit(flow, read, (), 0), Verdict::Go(_)));
    let waiting = scheduler.submit(flow, read, (), 1_000);
    assert!(matches!(waiting, Verdict::Wait(_)) && scheduler.next(2_000).is_none());
    assert_eq!(scheduler.figures(flow, 3_000).throttled_us, 2_000);
    scheduler.release(waiting.ticket(), 5_000);
    for now_us in [5_000, 900_000] {
        assert_eq!(scheduler.figures(flow, now_us).throttled_us, 4_000);
    }
}

#[test]
fn what_a_minimum_gave_is_not_held_against_a_flow_for_ever() {
    let share = Share { weight: 1, minimum_iops: Some(20_000), ..Share::default() };
    let mut hosts = vec![Host::reader(256); 2];
    hosts[0] = Host::reader(256).with(share);
    let mut world = World::new(Depth::adaptive(), Service::Constant, 8, hosts);
    world.run(5_000_000);
    world.scheduler.set_share(World::flow(0), Share::default(), world.now_us);
    world.run(5_100_000);
    let got = world.measure(5_300_000);
    assert_near(got[0], got[1], 3);
}

#[test]
fn the_least_weight_is_served() {
    let mut hosts = vec![Host::reader(256).with(Share { weight: 1000, ..Share::default() }); 5];
    hosts[0].share.weight = 1;
    let mut world = World::new(Depth::adaptive(), Service::Constant, 8, hosts);
    world.run(1_000_000);
    let got = world.measure(11_000_000);
    assert_near(got[0] * 1000, got[1], 5);
}

const READ: Request = Request { kind: Kind::Read, bytes: 4096 };

/// A device that has one request at a time, and which flows it had.
struct Single {
    scheduler: Scheduler<Flow>,
    at_device: VecDeque<(Ticket, Flow)>,
}

impl Single {
    fn submit(&mut self, flow: Flow, now_us: u64) {
        if let Verdict::Go(ticket) = self.scheduler.submit(flow, READ, flow, now_us) {
            self.at_device.push_back((ticket, flow));
        }
    }

    /// The device is done with what it has. Returns the flow of the next request.
    fn turn(&mut self, now_us: u64) -> Option<Flow> {
        self.at_device.drain(..).for_each(|(ticket, _)| self.scheduler.release(ticket, now_us));
        let (ticket, flow) = self.scheduler.next(now_us)?;
        self.at_device.push_back((ticket, flow));
        Some(flow)
    }
}

#[test]
fn of_those_below_their_minimum_the_one_for_longest_is_first() {
    let [slow, quick, other] = [1, 2, 3].map(World::flow);
    let mut single = Single { scheduler: Scheduler::new(Depth::fixed(1)), at_device: VecDeque::new() };
    let minimum = |per_second| Share { minimum_iops: Some(per_second), ..Share::default() };
    single.scheduler.set_share(slow, minimum(100), 0);
    single.scheduler.set_share(quick, minimum(1000), 0);
    single.scheduler.set_share(other, Share { weight: 1000, ..Share::default() }, 0);
    for flow in [other, other, other, other, slow, slow, quick, quick] {
        single.submit(flow, 0);
    }
    // Each has one; the next ones are due after 10 ms and 1 ms.
    let admitted = |single: &Single, flow| single.scheduler.figures(flow, 0).admitted;
    while admitted(&single, slow) + admitted(&single, quick) < 2 {
        assert!(single.turn(0).is_some());
    }
    assert_eq!((admitted(&single, slow), admitted(&single, quick)), (1, 1));
    assert_eq!(single.turn(500), Some(other));
    assert_eq!((single.turn(20_000), single.turn(20_000)), (Some(quick), Some(slow)));
}

/// It gets a lead of 16 requests, and no more; these it keeps.
#[test]
fn what_a_minimum_gave_is_held_against_a_flow_for_16_requests() {
    let [preferred, other] = [1, 2].map(World::flow);
    let mut single = Single { scheduler: Scheduler::new(Depth::fixed(1)), at_device: VecDeque::new() };
    single.scheduler.set_share(preferred, Share { minimum_iops: Some(1_000_000), ..Share::default() }, 0);
    for flow in [other, other, preferred, preferred] {
        single.submit(flow, 0);
    }
    let turn = |single: &mut Single, now_us| {
        let flow = single.turn(now_us).unwrap();
        single.submit(flow, now_us);
        flow
    };
    let got = (0..800).filter(|round| turn(&mut single, 10 * round) == preferred).count();
    assert!((690..=710).contains(&got), "7 of 8: {got}");
    single.scheduler.set_share(preferred, Share::default(), 8000);
    let waits = (0..).take_while(|round| turn(&mut single, 8000 + 10 * round) == other).count();
    assert!((14..=18).contains(&waits), "{waits}");
}

#[test]
fn a_flow_that_gives_up_is_not_throttled_any_more() {
    let flow = World::flow(1);
    let mut scheduler = Scheduler::new(Depth::fixed(100));
    scheduler.set_share(flow, Share { iops: Some(1000), ..Share::default() }, 0);
    let verdicts: Vec<Verdict> = (0..25).map(|_| scheduler.submit(flow, READ, flow, 1_000_000)).collect();
    let waiting =
        verdicts.iter().filter_map(|verdict| if let Verdict::Wait(ticket) = verdict { Some(*ticket) } else { None });
    let waiting: Vec<Ticket> = waiting.collect();
    assert_eq!(waiting.len(), 4, "20 ms at once, and one");
    waiting.into_iter().for_each(|ticket| scheduler.release(ticket, 1_000_500));
    assert_eq!(scheduler.figures(flow, 1_000_500).throttled_us, 500);
    assert_eq!(scheduler.figures(flow, 2_000_000).throttled_us, 500);
}

/// The device begins with it without a turn of a thread in between; until twice the depth is there.
#[test]
fn the_only_request_of_a_flow_may_exceed_the_depth() {
    const NOW_US: u64 = 1_000_000;
    let mut scheduler = Scheduler::new(Depth::fixed(4));
    let submit = |scheduler: &mut Scheduler<Flow>, flow: usize| {
        scheduler.submit(World::flow(flow), READ, World::flow(flow), NOW_US)
    };
    for (flow, iops) in [(1, 1000), (2, 1)] {
        scheduler.set_share(World::flow(flow), Share { iops: Some(iops), ..Share::default() }, NOW_US);
    }
    // The limit of the second one is reached.
    let Verdict::Go(ticket) = submit(&mut scheduler, 2) else { panic!("nothing is there") };
    scheduler.release(ticket, NOW_US);
    let mut goes = |flow| matches!(submit(&mut scheduler, flow), Verdict::Go(_));
    assert_eq!([0; 6].map(&mut goes), [true, true, true, true, false, false]);
    assert_eq!([2, 1, 3, 4, 5, 6].map(&mut goes), [false, true, true, true, true, false]);
}

#[test]
fn a_request_ends_once() {
    let flow = World::flow(1);
    let mut scheduler = Scheduler::new(Depth::fixed(4));
    let submit = |scheduler: &mut Scheduler<Flow>| match scheduler.submit(flow, READ, flow, 1) {
        Verdict::Go(ticket) | Verdict::Wait(ticket) => ticket,
    };
    let first = submit(&mut scheduler);
    scheduler.release(first, 1);
    scheduler.release(first, 1);
    assert_eq!(scheduler.figures(flow, 1).at_device, 0);
    let second = submit(&mut scheduler);
    scheduler.release(first, 1);
    assert_eq!(scheduler.figures(flow, 1).at_device, 1, "it is of the one before");
    scheduler.release(second, 1);
    assert_eq!(scheduler.figures(flow, 1).at_device, 0);
}
