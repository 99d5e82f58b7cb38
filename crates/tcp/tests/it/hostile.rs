//! Bytes from malicious or broken peers: no panic, no hang, no growth; after a violation nothing
//! more is processed.

use std::sync::OnceLock;

use ebof_testkit::fuzz;
use ebof_testkit::random::Random;
use proptest::prelude::*;

/// Whole conversations to damage.
static CONTROLLER: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
static HOST: OnceLock<Vec<Vec<u8>>> = OnceLock::new();

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    // @test hostile.no-crash
    #[test]
    fn random_streams(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz::tcp_controller(&bytes);
        fuzz::tcp_host(&bytes);
    }

    // @test hostile.no-crash
    #[test]
    fn damaged_conversations(which in any::<prop::sample::Index>(), seed: u64, damages in 1_usize..6) {
        let mut random = Random::new(seed);
        let mut stream = which.get(CONTROLLER.get_or_init(fuzz::controller_seeds)).clone();
        damage(&mut stream, &mut random, damages);
        fuzz::tcp_controller(&stream);
        let mut stream = which.get(HOST.get_or_init(fuzz::host_seeds)).clone();
        damage(&mut stream, &mut random, damages);
        fuzz::tcp_host(&stream);
    }
}

/// Overwrites, inserts, removes and repeats.
fn damage(stream: &mut Vec<u8>, random: &mut Random, times: usize) {
    for _ in 0..times {
        let at = random.below(stream.len());
        match random.below(4) {
            0 => stream[at] = random.bytes(1)[0],
            1 => stream.insert(at, random.bytes(1)[0]),
            2 => drop(stream.drain(at..(at + random.below(40)).min(stream.len()))),
            _ => {
                let end = (at + random.below(200)).min(stream.len());
                let copy = stream[at..end].to_vec();
                let to = random.below(stream.len());
                stream.splice(to..to, copy);
            }
        }
        if stream.is_empty() {
            stream.push(0);
        }
    }
}
