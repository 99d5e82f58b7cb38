//! "NVMe over RoCE" (2021): four corners at depth 128 with four jobs, on the raw device and in a
//! file on ext4, of the local drive and of the same drive over the fabric.

use std::time::Duration;

use ebof_bench::{Job, Mix};

use super::{Plan, Wish, reference};
use crate::document::Phase;

const ARTICLE: &str = "NVMe over RoCE (2021), ext4";

pub(super) fn plan(wish: &Wish) -> Plan {
    let columns = wish.columns();
    let mut phases = Vec::new();
    for file_system in [None, Some("ext4")] {
        let suffix = file_system.map(|name| format!("-{name}")).unwrap_or_default();
        let on = file_system.map(|name| format!(", on {name}")).unwrap_or_default();
        let skipped = wish.no_file_system(&columns).filter(|_| file_system.is_some());
        let place =
            |phase: Phase| Phase { file_system: file_system.map(str::to_owned), skipped: skipped.clone(), ..phase };
        // "write NVMe SSD in full order twice"
        let fill = Job { runtime: None, ramp: Duration::ZERO, ..wish.job("fill", Mix::Write, 128 << 10, 8, 1, 1) };
        let fill = wish.precondition(&columns, &format!("fill{suffix}"), &format!("Written twice in order{on}"), fill);
        phases.push(place(Phase { rounds: 2, ..fill }));
        let corner = |id: &str, title: &str, name: &str, rw, bytes, seconds, [local, fabric]: [f64; 2]| {
            let job = wish.job(name, rw, bytes, 128, 4, seconds);
            let phase = wish.measure(&columns, &format!("{id}{suffix}"), &format!("{title}{on}"), job);
            // The article gives the figures of the file system only.
            let references = vec![
                reference(ARTICLE, "local NVMe SSD", local, None),
                reference(ARTICLE, "the same over RoCE, 25GbE", fabric, Some(fabric / local)),
            ];
            place(Phase { references, ..phase })
        };
        phases.extend([
            corner("seq-write", "128K sequential write", "write", Mix::Write, 128 << 10, 1200, [2035.0, 2031.0]),
            corner("seq-read", "128K sequential read", "read", Mix::Read, 128 << 10, 120, [3374.0, 2889.0]),
            corner("rand-write", "4K random write", "rand_write", Mix::RandWrite, 4096, 1200, [51_600.0, 48_400.0]),
            corner("rand-read", "4K random read", "rand_read", Mix::RandRead, 4096, 300, [571_000.0, 557_000.0]),
        ]);
    }
    let title = "Four corners, raw and on ext4 (depth 128, four jobs)".to_owned();
    let notes = vec!["The article measured on ext4 only; its figures are beside the raw ones, too.".to_owned()];
    Plan { title, columns, phases, notes }
}
