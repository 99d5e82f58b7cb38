//! Random mixes of commands against a model, with random parameters and random splits of the
//! stream.

use ebof_nvme::{Cid, QueueId, Status};
use ebof_tcp::{Digest, controller, host};
use ebof_testkit::random::Random;
use ebof_testkit::tcp::{Cut, Host, Target, controller_config, exchange};
use proptest::prelude::*;

/// Commands of one batch; each CID has a region of the disk of its own, so that their order does
/// not matter.
const CIDS: u16 = 8;
const REGION: usize = 100_000;

#[derive(Clone, Debug)]
struct Setup {
    host: host::ConnectionConfig,
    controller: controller::ConnectionConfig,
    piece: usize,
    flow_disabled: bool,
    cut: Cut,
}

#[derive(Clone, Debug)]
enum Io {
    Read { at: usize, length: usize },
    Write { at: usize, length: usize, seed: u64 },
    InCapsule { at: usize, length: usize, seed: u64 },
    Flush,
}

fn digest() -> impl Strategy<Value = Digest> {
    prop_oneof![Just(Digest::Allowed), Just(Digest::Required)]
}

fn alignment() -> impl Strategy<Value = u32> {
    (1_u32..=32).prop_map(|dwords| dwords * 4)
}

fn cut() -> impl Strategy<Value = Cut> {
    prop_oneof![
        Just(Cut::Never),
        (1_usize..200).prop_map(Cut::Every),
        (any::<u64>(), 1_usize..20_000).prop_map(|(seed, bytes)| Cut::Random(Random::new(seed), bytes)),
    ]
}

fn setup() -> impl Strategy<Value = Setup> {
    let host =
        (alignment(), digest(), digest(), 1_u32..20).prop_map(|(alignment, header_digest, data_digest, r2t_max)| {
            host::ConnectionConfig { alignment, header_digest, data_digest, r2t_max }
        });
    let controller = (alignment(), 4096_u32..70_000, prop_oneof![64_u32..1000, 1000_u32..70_000], any::<bool>())
        .prop_map(|(alignment, h2c_data_max, r2t_bytes, c2h_success)| controller::ConnectionConfig {
            alignment,
            h2c_data_max,
            r2t_bytes,
            c2h_success,
            ..controller_config()
        });
    (host, controller, 1_usize..90_000, any::<bool>(), cut())
        .prop_map(|(host, controller, piece, flow_disabled, cut)| Setup { host, controller, piece, flow_disabled, cut })
}

fn io() -> impl Strategy<Value = Io> {
    let extent = || (0..REGION).prop_flat_map(|at| (Just(at), 1..=REGION - at));
    prop_oneof![
        extent().prop_map(|(at, length)| Io::Read { at, length }),
        (extent(), any::<u64>()).prop_map(|((at, length), seed)| Io::Write { at, length, seed }),
        (extent(), any::<u64>()).prop_map(|((at, length), seed)| Io::InCapsule { at, length: length.min(8192), seed }),
        Just(Io::Flush),
    ]
}

fn run(mut setup: Setup, batches: Vec<Vec<Io>>) {
    let disk = REGION * usize::from(CIDS);
    let mut host = Host::new(setup.host);
    let mut target = Target::new(setup.controller, disk);
    target.piece = setup.piece;
    exchange(&mut host, &mut target, &mut setup.cut).expect("initialization");
    target.connection.set_queue(QueueId(1), usize::from(CIDS));
    target.connection.set_sq_flow_disabled(setup.flow_disabled);
    let mut model = vec![0; disk];
    for batch in batches {
        let mut expected = Vec::new();
        for (cid, io) in (0..CIDS).zip(batch) {
            let base = usize::from(cid) * REGION;
            let offset = |at: usize| u32::try_from(base + at).expect("small");
            let (data, transferred) = match io {
                Io::Flush => {
                    host.flush(cid);
                    (Vec::new(), 0)
                }
                Io::Read { at, length } => {
                    host.read(cid, offset(at), u32::try_from(length).expect("small"));
                    (model[base + at..base + at + length].to_vec(), length)
                }
                Io::Write { at, length, seed } | Io::InCapsule { at, length, seed } => {
                    let data = Random::new(seed).bytes(length);
                    model[base + at..base + at + length].copy_from_slice(&data);
                    host.write(cid, offset(at), data.clone(), matches!(io, Io::InCapsule { .. }));
                    (data, length)
                }
            };
            expected.push((Cid(cid), Status::SUCCESS, data, u32::try_from(transferred).expect("small")));
        }
        exchange(&mut host, &mut target, &mut setup.cut).expect("nobody breaks the transport");
        let mut done: Vec<_> =
            host.done.drain(..).map(|done| (done.cid, done.status, done.data, done.transferred)).collect();
        done.sort_by_key(|done| done.0);
        assert!(done == expected, "each command completes once, with the data of the last write");
    }
    assert!(target.disk == model);
    assert!(host.pending.is_empty() && target.awaiting.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    // @test data.reads-last-write
    #[test]
    fn every_mix_of_commands_matches_the_model(
        setup in setup(),
        batches in prop::collection::vec(prop::collection::vec(io(), 1..usize::from(CIDS)), 1..5),
    ) {
        run(setup, batches);
    }
}
