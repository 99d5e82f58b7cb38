//! "Speeding up NVMe/TCP": operations per second against latency over depth and threads, with
//! requests that are sent at once and with requests that are held for a batch (i10); and throughput
//! by the size of a request over 16 queues.

use ebof_bench::Mix;
use ebof_bench::corner::Unit;

use super::{ColumnPlan, Plan, Wish, name, reference};
use crate::document::{EngineName, Phase};

const TALK: &str = "Speeding up NVMe/TCP (2020)";
/// Throughput by the size of a request, over as many queues, until the network is full. The talk
/// names no depth.
const QUEUES: u16 = crate::device::QUEUES_ASKED;
const SIZES_DEPTH: u16 = 8;
const SIZES: [u32; 9] = [4096, 8192, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
const DEPTHS: [u16; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Of the batches: requests, and how long the first one waits at most.
const BATCH_NR: u16 = 16;
const BATCH_TIMEOUT_US: u32 = 50;

pub(super) fn plan(wish: &Wish) -> Plan {
    let mut columns: Vec<ColumnPlan> = Vec::new();
    for plain in wish.columns() {
        let at = columns.len();
        let batched = plain.options.is_some() && plain.column.engine == EngineName::Ebof;
        columns.push(ColumnPlan { column: crate::document::Column { base: None, ..plain.column.clone() }, ..plain });
        if batched {
            columns[at].column.variant = Some("sent at once".to_owned());
            let one = with_batches(&columns[at], at);
            columns[at].column.label += ", sent at once";
            columns.push(one);
        }
    }
    name(&mut columns);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let most = u16::try_from(processors.min(4)).unwrap_or(1);
    let threads = if most > 1 { vec![1, most] } else { vec![1] };
    let mut phases = Vec::new();
    for &threads in &threads {
        for depth in DEPTHS {
            let title =
                format!("4K random read, {threads} thread{}, depth {depth}", if threads == 1 { "" } else { "s" });
            let job = wish.job("read", Mix::RandRead, 4096, depth, threads, 10);
            let phase = wish.measure(&columns, &format!("t{threads}-qd{depth}"), &title, job);
            let references = if (threads, depth) == (1, 128) {
                vec![
                    reference(TALK, "one thread, without i10: where latency begins to soar", 145_000.0, None),
                    reference(TALK, "one thread, with i10", 225_000.0, Some(225.0 / 145.0)),
                ]
            } else {
                Vec::new()
            };
            phases.push(Phase { references, ..phase });
        }
    }
    phases.extend(SIZES.map(|bytes| {
        let size = if bytes < 1 << 20 { format!("{}K", bytes >> 10) } else { format!("{}M", bytes >> 20) };
        let job = wish.job("read", Mix::RandRead, bytes, SIZES_DEPTH, QUEUES, 10);
        let title = format!("{size} random read, {QUEUES} queues, depth {SIZES_DEPTH} each");
        let phase = wish.measure(&columns, &format!("q{QUEUES}-{}", size.to_lowercase()), &title, job);
        Phase { unit: Unit::MegabytesPerSecond, ..phase }
    }));
    let notes = vec![format!(
        "Batched: a request waits up to {BATCH_TIMEOUT_US} us for {BATCH_NR} of them. Nothing is written before: on a \
         device that has never been written, reads may be faster than they would be."
    )];
    Plan { title: "Operations per second against latency, and throughput by size".to_owned(), columns, phases, notes }
}

fn with_batches(plain: &ColumnPlan, base: usize) -> ColumnPlan {
    let mut one = plain.clone();
    if let Some(options) = &mut one.options {
        options.batch_timeout_us = BATCH_TIMEOUT_US;
        options.batch_nr = BATCH_NR;
    }
    one.column.label += ", batched";
    one.column.variant = Some("batched".to_owned());
    one.column.base = Some(base);
    let batches = format!("{BATCH_NR} requests, {BATCH_TIMEOUT_US} us");
    one.column.settings.push(("batches".to_owned(), batches));
    one
}
