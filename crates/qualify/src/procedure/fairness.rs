//! "NVMe over Fabrics and direct attached hosts with SR-IOV" (2018): several hosts, each on a
//! function or a namespace of its own, alone and at the same time.

use ebof_bench::Mix;

use super::{Plan, Wish, phase, reference};
use crate::document::Phase;

const TALK: &str = "NVMe SSD with SR-IOV (2018)";

pub(super) fn plan(wish: &Wish) -> Plan {
    let mut columns = wish.columns();
    for column in &mut columns {
        column.column.base = None;
    }
    let mut phases = Vec::new();
    for &engine in &wish.engines {
        let of_engine = |index: &usize| columns[*index].column.engine == engine;
        let all: Vec<usize> = (0..columns.len()).filter(of_engine).collect();
        let suffix = if wish.engines.len() > 1 { format!("-{}", engine.name()) } else { String::new() };
        phases.extend(with_engine(wish, &all, &suffix));
    }
    let title = format!("Fairness: {} hosts alone and together", wish.devices.len());
    Plan { title, columns, phases, notes: Vec::new() }
}

/// The phases of the columns of one engine.
fn with_engine(wish: &Wish, all: &[usize], suffix: &str) -> Vec<Phase> {
    let mut phases = Vec::new();
    // 4K at depth 16 with one worker is the talk's.
    let loads = [
        ("read-4k", "4K random read, depth 16", Mix::RandRead, 4096, true),
        ("read-128k", "128K sequential read, depth 16", Mix::Read, 128 << 10, true),
        ("write-4k", "4K random write, depth 16", Mix::RandWrite, 4096, wish.with_writes),
    ];
    for (id, title, rw, bytes, wanted) in loads {
        if !wanted {
            continue;
        }
        let job = wish.job(id, rw, bytes, 16, 1, 30);
        let references = |value, what| {
            if id == "read-4k" { vec![reference(TALK, what, value, None)] } else { Vec::new() }
        };
        phases.push(Phase {
            columns: all.to_vec(),
            references: references(75_600.0, "one virtual machine on a VF, the others idle"),
            ..phase(
                &format!("{id}-alone{suffix}"),
                &format!("{title}: each host alone"),
                vec![job.clone()],
                wish.rounds,
            )
        });
        phases.push(Phase {
            columns: all.to_vec(),
            together: true,
            references: references(68_380.0, "each of five on a VF (67.5k to 69.0k)"),
            ..phase(
                &format!("{id}-together{suffix}"),
                &format!("{title}: all at the same time"),
                vec![job],
                wish.rounds,
            )
        });
    }
    phases
}
