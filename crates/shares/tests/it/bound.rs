//! The bound of start-time fair queueing with a depth, for any flows: what two flows with requests
//! waiting have got differs by no more than it.

use ebof_shares::{COST_MIN, Depth, Kind, Request, Share};
use proptest::prelude::*;

use crate::support::{Host, Service, World};

fn hosts() -> impl Strategy<Value = Vec<Host>> {
    let bytes = prop_oneof![Just(512), Just(4096), Just(16_384), Just(131_072), Just(1 << 20)];
    let host =
        (1..1000_u16, bytes, any::<bool>(), 1..80_usize, 1..4_usize, 0..300_u64, 0..40_000_u64, 1_000..200_000_u64);
    let host = host.prop_map(|(weight, bytes, is_write, depth, queues, think_us, from_us, for_us)| Host {
        share: Share { weight, ..Share::default() },
        request: Request { kind: if is_write { Kind::Write } else { Kind::Read }, bytes },
        queues,
        depth,
        think_us,
        active_us: (from_us, from_us + for_us),
    });
    prop::collection::vec(host, 2..7)
}

/// Differences of one pair since both began to wait.
#[derive(Clone, Copy)]
struct Pair {
    admitted: (f64, f64),
    completed: (f64, f64),
}

/// Costs by weight: of what was admitted, and of what is done.
fn got(world: &World, flow: usize) -> (f64, f64) {
    let weight = f64::from(world.hosts[flow].share.weight);
    let admitted = world.scheduler.figures(World::flow(flow), world.now_us);
    #[expect(clippy::cast_precision_loss, reason = "far less than 2^52")]
    let done = (world.done[flow] * u64::from(cost(&world.hosts[flow]))) as f64;
    #[expect(clippy::cast_precision_loss, reason = "far less than 2^52")]
    let admitted = admitted.cost as f64;
    (admitted / weight, done / weight)
}

/// The depth is fixed and low: nothing is learned about writes before both kinds were seen, and
/// then they take as long.
fn cost(host: &Host) -> u32 {
    let pages = u32::try_from(host.request.bytes.div_ceil(4096).max(1)).unwrap();
    (1 + pages) * COST_MIN / 2
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn two_flows_that_wait_get_the_same_up_to_the_bound(
        hosts in hosts(),
        depth in 1..40_u32,
        parallel in 1..16_usize,
        is_jittery: bool,
    ) {
        let service = if is_jittery { Service::Jittery } else { Service::Constant };
        // Learned factors would change the cost of what is done already: all are reads, or all
        // writes.
        let kind = hosts[0].request.kind;
        let hosts: Vec<Host> =
            hosts.into_iter().map(|host| Host { request: Request { kind, ..host.request }, ..host }).collect();
        let count = hosts.len();
        let mut world = World::new(Depth::fixed(depth), service, parallel, hosts.clone());
        let mut pairs = vec![None::<Pair>; count * count];
        let mut failure = None;
        world.run_with(250_000, |world| {
            for one in 0..count {
                for other in 0..one {
                    let pair = &mut pairs[one * count + other];
                    let waits =
                        |flow| world.scheduler.figures(World::flow(flow), world.now_us).waiting > 0;
                    if !(waits(one) && waits(other)) {
                        *pair = None;
                        continue;
                    }
                    let (admitted_one, done_one) = got(world, one);
                    let (admitted_other, done_other) = got(world, other);
                    let admitted = admitted_one - admitted_other;
                    let done = done_one - done_other;
                    let pair = pair.get_or_insert(Pair { admitted: (admitted, admitted), completed: (done, done) });
                    let widen = |range: &mut (f64, f64), value: f64| {
                        *range = (range.0.min(value), range.1.max(value));
                        range.1 - range.0
                    };
                    let by_weight = |flow: usize| f64::from(cost(&hosts[flow])) / f64::from(hosts[flow].share.weight);
                    let largest = f64::from(cost(&hosts[one]).max(cost(&hosts[other])));
                    let weights =
                        1.0 / f64::from(hosts[one].share.weight) + 1.0 / f64::from(hosts[other].share.weight);
                    let bound = largest * weights * (f64::from(depth) + 1.0);
                    let differs = widen(&mut pair.completed, done);
                    if differs > bound {
                        failure = Some(format!("done: {differs} of {bound} at {}", world.now_us));
                    }
                    // In the order of admission the depth does not matter.
                    let bound = 2.0 * (by_weight(one) + by_weight(other)) + 0.01;
                    let differs = widen(&mut pair.admitted, admitted);
                    if differs > bound {
                        failure = Some(format!("admitted: {differs} of {bound} at {}", world.now_us));
                    }
                }
            }
            // Work conservation: nobody waits while there is room at the device.
            let waiting = (0..count).any(|flow| world.scheduler.figures(World::flow(flow), 0).waiting > 0);
            let at_device: u64 = (0..count)
                .map(|flow| {
                    let at_device = world.scheduler.figures(World::flow(flow), 0).at_device;
                    u64::from(at_device) * u64::from(cost(&hosts[flow]))
                })
                .sum();
            let room = u64::from(depth) * u64::from(COST_MIN);
            if waiting && at_device < room {
                failure = Some(format!("{at_device} of {room} at the device, and somebody waits"));
            }
            // The last one may exceed it, and so may the only one of a flow, up to twice of it.
            if at_device > 2 * room + 257 * 256 {
                failure = Some(format!("{at_device} of {room} at the device"));
            }
        });
        prop_assert_eq!(failure, None);
    }
}
