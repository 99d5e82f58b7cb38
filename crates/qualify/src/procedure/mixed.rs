//! "Speeding up NVMe/TCP": 16 synchronous readers of 4 KiB beside a writer of 1 MiB without a
//! limit, over shared queues and over separate queue maps.

use ebof_bench::{Job, Mix, QueueUse};

use super::{ColumnPlan, Plan, Wish, name, phase, reference};
use crate::document::{EngineName, Phase};

const TALK: &str = "Speeding up NVMe/TCP (2020)";

pub(super) fn plan(wish: &Wish) -> Plan {
    let mut columns = Vec::new();
    let mut notes = Vec::new();
    for plain in wish.columns() {
        // Queue maps are of ebof's own host.
        if plain.options.is_none() || plain.column.engine != EngineName::Ebof {
            notes.push(format!("{}: there are no queue maps to compare.", plain.column.label));
            columns
                .push(ColumnPlan { column: crate::document::Column { base: None, ..plain.column.clone() }, ..plain });
            continue;
        }
        let first = columns.len();
        columns.push(variant(&plain, "one queue, writes not limited", (0, true), None));
        columns.push(variant(&plain, "one queue", (0, false), Some(first)));
        columns.push(variant(&plain, "a queue for reads, one for writes", (1, false), Some(first)));
    }
    name(&mut columns);
    let half = wish.area_bytes().map(|bytes| (bytes / 2) >> 20 << 20);
    let readers = Job { size_bytes: half, ..wish.job("readers", Mix::RandRead, 4096, 1, 16, 30) };
    let writer =
        Job { offset_bytes: half.unwrap_or(0), size_bytes: half, ..wish.job("writer", Mix::Write, 1 << 20, 32, 1, 30) };
    let fill =
        Job { runtime: None, ramp: std::time::Duration::ZERO, ..wish.job("fill", Mix::Write, 128 << 10, 8, 1, 1) };
    let fill = wish.precondition(&columns, "fill", "Written once, so that there is something to read", fill);
    let all: Vec<usize> = (0..columns.len()).collect();
    let alone = Phase {
        columns: all.clone(),
        ..phase("alone", "16 readers of 4K, one at a time each, alone", vec![readers.clone()], wish.rounds)
    };
    let beside = Phase {
        columns: all,
        references: vec![
            reference(TALK, "shared queues: reads/s (mean 396 us, p99.99 14 ms)", 80_000.0, None),
            reference(
                TALK,
                "separate queue maps: reads/s (mean 181 us, p99.99 a tenth)",
                171_000.0,
                Some(171.0 / 80.0),
            ),
        ],
        ..phase("beside", "The same beside a writer of 1M at depth 32", vec![readers, writer], wish.rounds)
    };
    let title = "Small reads beside large writes: queue maps".to_owned();
    Plan { title, columns, phases: vec![fill, alone, beside], notes }
}

fn variant(plain: &ColumnPlan, what: &str, (write_queues, unlimited): (u16, bool), base: Option<usize>) -> ColumnPlan {
    let mut one = plain.clone();
    if let Some(options) = &mut one.options {
        (options.nr_io_queues, options.nr_write_queues, options.nr_poll_queues) = (1, write_queues, 0);
        if unlimited {
            options.bulk_bytes = None;
        }
    }
    one.queues = QueueUse { shared: true, size: None };
    one.column.label = format!("{}, {what}", plain.column.label);
    one.column.variant = Some(what.to_owned());
    one.column.base = base;
    let map = format!("1 I/O queue, {write_queues} write queues, shared by all threads");
    one.column.settings.push(("queue map".to_owned(), map));
    one
}
