//! "NVMe over TCP" (2021): hdparm and dd on the block device, and the eight patterns that disk
//! benchmarks for desktops show, in MB/s, with one job in 1 GiB, on the raw device and in a file on
//! xfs.

use ebof_bench::corner::Unit;
use ebof_bench::{Job, Mix};

use super::{Plan, Wish, reference};
use crate::document::{Phase, Tool};

const ARTICLE: &str = "NVMe over TCP (2021), xfs";
const BLOCK_ARTICLE: &str = "NVMe over TCP (2021), block device";
const SIZE: u64 = 1 << 30;
/// Program, name, title; MB/s of the local drive and over NVMe/TCP.
const TOOLS: [(Tool, &str, &str, [f64; 2]); 3] = [
    (Tool::HdparmCached, "hdparm-cached", "hdparm -T --direct (the same part again)", [2244.36, 1416.66]),
    (Tool::HdparmDisk, "hdparm-disk", "hdparm -t --direct (from the beginning)", [2804.87, 1628.16]),
    (Tool::Dd, "dd-write", "dd of zeros, 1M", [1327.4, 1217.92]),
];
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
    let references = |article: &str, [local, fabric]: [f64; 2]| {
        vec![
            reference(article, "local NVMe SSD", local, None),
            reference(article, "the same over NVMe/TCP, 25GbE", fabric, Some(fabric / local)),
        ]
    };
    let tools = TOOLS.iter().map(|&(tool, id, title, figures)| {
        let job = tool.job(size_bytes.map(|bytes| bytes >> 20 << 20));
        let phase = wish.measure(&columns, id, title, job);
        let references = references(BLOCK_ARTICLE, figures);
        Phase { tool: Some(tool), unit: Unit::MegabytesPerSecond, references, ..phase }
    });
    let patterns = |file_system: Option<&'static str>| {
        let suffix = file_system.map(|name| format!("-{name}")).unwrap_or_default();
        let on = file_system.map(|name| format!(", on {name}")).unwrap_or_default();
        let skipped = wish.no_file_system(&columns).filter(|_| file_system.is_some());
        let phase = |&(name, rw, bytes, depth, figures): &(&str, Mix, u32, u16, [f64; 2])| {
            let job = Job { size_bytes, ..wish.job(name, rw, bytes, depth, 1, 60) };
            let id = format!("{}{suffix}", name.to_lowercase());
            let phase = wish.measure(&columns, &id, &format!("{name}{on}"), job);
            let references = references(ARTICLE, figures);
            let file_system = file_system.map(str::to_owned);
            Phase { unit: Unit::MegabytesPerSecond, references, file_system, skipped: skipped.clone(), ..phase }
        };
        PATTERNS.iter().map(phase).collect::<Vec<_>>()
    };
    let raw = std::iter::once(fill).chain(tools).chain(patterns(None));
    let phases = raw.chain(patterns(Some("xfs"))).collect();
    let notes = vec![
        "The article measured the patterns in a file on xfs only; its figures are beside the raw ones, too.".to_owned(),
        "hdparm's and dd's figures are of 1,000,000 bytes per MB here; hdparm prints 1,048,576 as one. dd goes through the \
         page cache, as in the article, but ends when the data are on the device (conv=fsync)."
            .to_owned(),
    ];
    let title = "hdparm, dd and eight patterns (Seq, 512K, 4K, 4K at depth 32), raw and on xfs".to_owned();
    Plan { title, columns, phases, notes }
}
