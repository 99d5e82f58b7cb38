//! "NVMe over TCP" (2021): the eight patterns that disk benchmarks for desktops show, in MB/s, with
//! one job in 1 GiB.

use ebof_bench::corner::Unit;
use ebof_bench::{Job, Mix};

use super::{Plan, Wish, reference};
use crate::document::Phase;

const ARTICLE: &str = "NVMe over TCP (2021), xfs";
const SIZE: u64 = 1 << 30;
const MIB: u32 = 1 << 20;

/// Name, operations, bytes, depth; MB/s of the local drive and over NVMe/TCP.
const PATTERNS: [(&str, Mix, u32, u16, [f64; 2]); 8] = [
    ("Seq-Read", Mix::Read, MIB, 1, [2255.0, 1125.08]),
    ("Seq-Write", Mix::Write, MIB, 1, [2064.12, 1175.53]),
    ("Rand-Read-512K", Mix::RandRead, MIB / 2, 1, [1814.14, 804.739]),
    ("Rand-Write-512K", Mix::RandWrite, MIB / 2, 1, [2072.28, 1074.36]),
    ("Rand-Read-4K", Mix::RandRead, 4096, 1, [82.325, 39.528]),
    ("Rand-Write-4K", Mix::RandWrite, 4096, 1, [193.714, 110.469]),
    ("Rand-Read-4K-QD32", Mix::RandRead, 4096, 32, [1075.46, 375.699]),
    ("Rand-Write-4K-QD32", Mix::RandWrite, 4096, 32, [442.064, 474.683]),
];

pub(super) fn plan(wish: &Wish) -> Plan {
    let columns = wish.columns();
    let size_bytes = wish.area_bytes().map(|bytes| bytes.min(SIZE));
    let fill = Job {
        runtime: None,
        ramp: std::time::Duration::ZERO,
        size_bytes,
        ..wish.job("fill", Mix::Write, 128 << 10, 8, 1, 1)
    };
    let fill = wish.precondition(&columns, "fill", "Written once, so that there is something to read", fill);
    let patterns = PATTERNS.iter().map(|&(name, rw, bytes, depth, [local, fabric])| {
        let job = Job { size_bytes, ..wish.job(name, rw, bytes, depth, 1, 60) };
        let references = vec![
            reference(ARTICLE, "local NVMe SSD", local, None),
            reference(ARTICLE, "the same over NVMe/TCP, 25GbE", fabric, Some(fabric / local)),
        ];
        let phase = wish.measure(&columns, &name.to_lowercase(), name, job);
        Phase { unit: Unit::MegabytesPerSecond, references, ..phase }
    });
    let phases = std::iter::once(fill).chain(patterns).collect();
    let notes = vec!["The article measured a file on xfs; here it is the raw device.".to_owned()];
    Plan { title: "Eight patterns (Seq, 512K, 4K, 4K at depth 32)".to_owned(), columns, phases, notes }
}
