//! Client and server over the simulated network.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use ebof_verbs::{Network, simulated};

use super::wire::{CheckAnswer, Hello};
use super::*;

fn network() -> (Network, SocketAddr) {
    let network = simulated::Network::new();
    let address = SocketAddr::from(([10, 0, 0, 1], PORT));
    (network.into(), address)
}

/// Runs `client` beside a server; returns what it returned, and what was served.
fn beside_server<R>(client: impl FnOnce(&Network, SocketAddr) -> R) -> (R, Vec<Served>) {
    let (network, address) = network();
    let mut server = Responder::listen(&network, address).unwrap();
    let address = server.address();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let mut served = Vec::new();
            while !over.load(Ordering::Relaxed) {
                served.extend(server.serve().unwrap());
            }
            served
        });
        let result = client(&network, address);
        over.store(true, Ordering::Relaxed);
        (result, serving.join().unwrap())
    })
}

#[test]
fn every_operation_is_measured() {
    let plan = Plan { bytes: 10_000, depth: 16, count: 200, ..Plan::default() };
    let (measured, served) = beside_server(|network, address| {
        let client = Client::new(network, address, None, plan);
        Operation::ALL.map(|operation| client.measure(operation).unwrap())
    });
    for (measured, operation) in measured.iter().zip(Operation::ALL) {
        assert_eq!((measured.operation, measured.bytes, measured.count), (operation, 10_000, 200));
        assert!(measured.depth <= 16 && measured.bandwidth() > measured.rate() && measured.rate() > 0.0);
        let Latencies { count, min, median, p99, max } = measured.latency;
        assert!(count == 200 && min <= median && median <= p99 && p99 <= max);
    }
    let operations: Vec<_> = served.iter().map(|served| served.operation.unwrap()).collect();
    assert_eq!(operations, Operation::ALL.map(|operation| [operation; 2]).as_flattened());
    assert!(served.iter().all(|served| served.error.is_none()), "{served:?}");
}

#[test]
fn a_measurement_ends_in_time() {
    let plan = Plan { bytes: 64, depth: 4, count: u64::MAX, time_max: Duration::from_millis(20), ..Plan::default() };
    let (measured, _) =
        beside_server(|network, address| Client::new(network, address, None, plan).measure(Operation::Write).unwrap());
    assert!(measured.count > 0 && measured.latency.count > 0 && measured.time < Duration::from_secs(20));
}

#[test]
fn where_nobody_listens_a_client_is_told() {
    let (network, address) = network();
    let error = Client::new(&network, address, None, Plan::default()).measure(Operation::Send).unwrap_err();
    assert!(matches!(error, Error::Rejected(Refusal::NobodyListens) | Error::Verbs(_)), "{error:?}");
}

#[test]
fn private_data_round_trip_and_bad_ones_are_refused() {
    for operation in Operation::ALL {
        let hello = Hello { operation, is_latency: operation == Operation::Read, bytes: 4096, depth: DEPTH_MAX };
        let large = Hello { bytes: BYTES_MAX, ..hello };
        let answer = if operation == Operation::Send { Err(Refusal::Limits) } else { Ok(large) };
        assert_eq!(Hello::decode(&large.encode()), answer);
        let mut bytes = hello.encode().to_vec();
        bytes.extend([0; 36]);
        assert_eq!(Hello::decode(&bytes), Ok(hello));
        for (at, byte, refusal) in
            [(0, b'x', Refusal::Unknown), (8, 3, Refusal::Unknown), (9, 2, Refusal::Unknown), (19, 1, Refusal::Limits)]
        {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            assert_eq!(Hello::decode(&bytes), Err(refusal), "byte {at}");
        }
        assert_eq!(Hello::decode(&bytes[..Hello::BYTES - 1]), Err(Refusal::Unknown));
    }
    let answer = CheckAnswer { address: 0x1122_3344_5566_7788, key: 0x99aa_bbcc };
    assert_eq!(CheckAnswer::decode(&answer.encode()), Some(answer));
    assert_eq!(CheckAnswer::decode(&[0; 196]), None);
    for refusal in [Refusal::Limits, Refusal::Resources, Refusal::Unknown] {
        assert_eq!(Refusal::decode(&refusal.encode()), refusal);
    }
    assert_eq!(Refusal::decode(&[]), Refusal::Unknown);
}
