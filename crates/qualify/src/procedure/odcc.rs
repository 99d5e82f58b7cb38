//! ODCC-2021-05008, chapter 6.4: preconditioning for sequential and for random tests, and the four
//! tests, each with one job at depth 64 (tables 1 and 2).

use std::time::Duration;

use ebof_bench::{Job, Mix};

use super::{Plan, Wish, reference};
use crate::document::Phase;

const PAPER: &str = "ODCC-2021-05008";
const DRIVE: &str = "Ethernet SSD over RoCE, 25GbE";
/// Seconds of a test. The paper does not say.
const TEST_S: u64 = 300;
/// Seconds of preconditioning for random tests (6.4.1 b).
const RANDOM_S: u64 = 14_400;

pub(super) fn plan(wish: &Wish) -> Plan {
    let columns = wish.columns();
    // 6.4.1 a: 128K, one thread, depth 8, loops=2.
    let pass = Job { runtime: None, ramp: Duration::ZERO, ..wish.job("init_seq", Mix::Write, 128 << 10, 8, 1, 1) };
    let sequential = Phase {
        rounds: 2,
        ..wish.precondition(&columns, "precondition-seq", "Preconditioning: 128K sequential write, two passes", pass)
    };
    // 6.4.1 b: 4K, eight threads, depth 256. A small device is written twice before the ramp of a
    // minute is over, and then nothing would be measured.
    let random = Job { ramp: Duration::ZERO, ..wish.job("init_rand", Mix::RandWrite, 4096, 256, 8, RANDOM_S) };
    let random = Phase {
        until_bytes: wish.area_bytes().map(|bytes| bytes.saturating_mul(2)),
        ..wish.precondition(
            &columns,
            "precondition-rand",
            "Preconditioning: 4K random write, 8 threads at depth 256, two passes or the time",
            random,
        )
    };
    let test = |id: &str, title: &str, name: &str, rw, bytes, table: &str, value| Phase {
        references: vec![reference(&format!("{PAPER}, {table}"), DRIVE, value, None)],
        ..wish.measure(&columns, id, title, wish.job(name, rw, bytes, 64, 1, TEST_S))
    };
    let phases = vec![
        sequential,
        test("seq-write-128k", "128K sequential write", "seq_write_128k", Mix::Write, 128 << 10, "table 1", 2333.0),
        test("seq-read-128k", "128K sequential read", "seq_read_128k", Mix::Read, 128 << 10, "table 1", 2717.0),
        random,
        test("rand-write-4k", "4K random write", "rand_write_4k", Mix::RandWrite, 4096, "table 2", 139_000.0),
        test("rand-read-4k", "4K random read", "rand_read_4k", Mix::RandRead, 4096, "table 2", 669_000.0),
    ];
    let notes = vec![
        format!("The paper gives no time for a test: each takes {TEST_S} s here, after a ramp of 10 s."),
        "The paper's preconditioning has a ramp of a minute, which its statistics leave out; here they begin at once."
            .to_owned(),
        "Steady state is decided as by the SNIA's performance test specification, over windows of five parts of a run."
            .to_owned(),
    ];
    Plan { title: "Ethernet SSD test procedure (ODCC-2021-05008, chapter 6)".to_owned(), columns, phases, notes }
}
