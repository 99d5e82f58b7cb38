//! The same load over NVMe/TCP, NVMe/RDMA, iSCSI, NBD and locally, which "NVMe over TCP" (2021)
//! wished for.

use std::time::Duration;

use ebof_bench::{Job, Mix};

use super::{Plan, Wish, reference};
use crate::document::Phase;

const TALK: &str = "NVMe SSD with SR-IOV (2018)";

pub(super) fn plan(wish: &Wish) -> Plan {
    let columns = wish.columns();
    let fill = Job { runtime: None, ramp: Duration::ZERO, ..wish.job("fill", Mix::Write, 128 << 10, 8, 1, 1) };
    let fill = wish.precondition(&columns, "fill", "Written once, so that there is something to read", fill);
    let load = |id: &str, title: &str, rw, bytes, depth| {
        wish.measure(&columns, id, title, wish.job(id, rw, bytes, depth, 1, 30))
    };
    let throughput = vec![
        reference(TALK, "directly attached", 2853.5, None),
        reference(TALK, "NVMe over Fabrics (mean latency 380 us instead of 345: 1.10)", 2588.9, Some(0.907)),
    ];
    let phases = vec![
        fill,
        load("read-4k-qd1", "4K random read, depth 1", Mix::RandRead, 4096, 1),
        load("read-4k-qd32", "4K random read, depth 32", Mix::RandRead, 4096, 32),
        load("write-4k-qd1", "4K random write, depth 1", Mix::RandWrite, 4096, 1),
        load("write-4k-qd32", "4K random write, depth 32", Mix::RandWrite, 4096, 32),
        Phase {
            references: throughput,
            ..load("read-128k-qd32", "128K sequential read, depth 32", Mix::Read, 128 << 10, 32)
        },
        load("write-128k-qd32", "128K sequential write, depth 32", Mix::Write, 128 << 10, 32),
    ];
    let title = "The same load over several protocols".to_owned();
    Plan { title, columns, phases, notes: Vec::new() }
}
