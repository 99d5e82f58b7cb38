//! What the kernel counts of its own NVMe devices: `/proc/diskstats`.
//!
//! The text is checked like other input: a line that is not understood is left out.

use ebof_manage::history::{KindCounters, ObjectCounters};

/// The kernel's unit here (Documentation/admin-guide/iostats.rst), whatever the device's is.
const SECTOR_BYTES: u64 = 512;

/// The most devices of a text.
const DISKS_MAX: usize = 512;

/// The largest number that is believed: sums of so many stay far below 2^64.
const NUMBER_MAX: u64 = 1 << 44;

/// A device of the kernel's host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelDisk {
    /// Its name: `nvme1n1`.
    pub(super) name: String,
    /// Its controller, or its subsystem, if that has several: `nvme1`.
    pub(super) controller: String,
    /// What it has done.
    pub(super) counters: ObjectCounters,
    /// Requests that are under way.
    pub(super) in_flight: u64,
}

/// The NVMe namespaces among the devices; no partitions.
pub(super) fn parse(text: &str) -> Vec<KernelDisk> {
    text.lines().filter_map(disk).take(DISKS_MAX).collect()
}

fn disk(line: &str) -> Option<KernelDisk> {
    let mut words = line.split_ascii_whitespace().skip(2);
    let name = words.next()?;
    let controller = controller_of(name)?.to_owned();
    let numbers: Vec<u64> =
        words.map_while(|word| word.parse().ok()).map(|n: u64| n.min(NUMBER_MAX)).take(17).collect();
    // Discards are there since Linux 4.18, flushes since 5.5.
    let &[reads, _, read_sectors, read_ms, writes, _, write_sectors, write_ms, in_flight, _, _, ..] =
        numbers.as_slice()
    else {
        return None;
    };
    let other = |at: usize| numbers.get(at).copied().unwrap_or(0);
    let kind = |commands: u64, sectors: u64, ms: u64| KindCounters {
        commands,
        bytes: sectors * SECTOR_BYTES,
        latency_sum_us: ms * 1000,
        ..KindCounters::default()
    };
    let kinds = [
        kind(reads, read_sectors, read_ms),
        kind(writes, write_sectors, write_ms),
        kind(other(11) + other(15), 0, other(14) + other(16)),
    ];
    let counters = ObjectCounters { kinds, waiting: 0 };
    Some(KernelDisk { name: name.to_owned(), controller, counters, in_flight })
}

/// The controller of a namespace's name: `nvme1` of `nvme1n1`; `None` of anything else.
fn controller_of(name: &str) -> Option<&str> {
    let is_number = |text: &str| !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    let (controller, namespace) = name.strip_prefix("nvme")?.split_once('n')?;
    let is_namespace = is_number(controller) && is_number(namespace);
    is_namespace.then(|| &name[.."nvme".len() + controller.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From a machine with Linux 6.1.
    const RECORDED: &str = "\
   7       0 loop0 78727 322150 34412104 85134 65385 53418 35594032 316310 0 72548 415987 132 0 46299836 954 15205 13588
 259       0 nvme0n1 1528 10 97402 310 7012 5519 250888 4711 3 5120 5300 12 0 8388608 40 611 277
 259       1 nvme0n1p1 118 0 9016 21 2 0 2 0 0 44 21 0 0 0 0 0 0
 259       4 nvme1n12 9 0 72 1 0 0 0 0 0 4 1
 253       0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17
";

    #[test]
    fn namespaces_are_read_and_nothing_else() {
        let disks = parse(RECORDED);
        let names: Vec<_> = disks.iter().map(|disk| (disk.name.as_str(), disk.controller.as_str())).collect();
        assert_eq!(names, [("nvme0n1", "nvme0"), ("nvme1n12", "nvme1")]);
        let KernelDisk { counters, in_flight, .. } = &disks[0];
        let [read, write, other] = &counters.kinds;
        assert_eq!((read.commands, read.bytes, read.latency_sum_us), (1528, 97_402 * 512, 310_000));
        assert_eq!((write.commands, write.bytes, write.latency_sum_us), (7012, 250_888 * 512, 4_711_000));
        assert_eq!((other.commands, other.bytes, other.latency_sum_us), (12 + 611, 0, 317_000));
        assert_eq!((*in_flight, read.latency.percentile_us(0.5)), (3, None));
        assert_eq!(disks[1].counters.kinds[2], KindCounters::default(), "of a kernel before 4.18");
    }

    #[test]
    fn nonsense_is_left_out_and_overflows_nothing() {
        for line in [
            "",
            "259 0",
            "259 0 nvme0n1",
            "259 0 nvme0n1 1 2 3 4 5 6 7 8 9 10",
            "259 0 nvme0n1 1 2 3 x 5 6 7 8 9 10 11",
            "259 0 nvme0n1 1 2 3 -4 5 6 7 8 9 10 11",
            "259 0 nvmen1 1 2 3 4 5 6 7 8 9 10 11",
            "259 0 nvme0 1 2 3 4 5 6 7 8 9 10 11",
            "259 0 nvme0c1n1 1 2 3 4 5 6 7 8 9 10 11",
            "259 0 nvme\u{e9}n1 1 2 3 4 5 6 7 8 9 10 11",
        ] {
            assert_eq!(parse(line), [], "{line}");
        }
        let max = u64::MAX.to_string();
        let huge = format!("259 0 nvme0n1 {}", [max.as_str(); 20].join(" "));
        assert_eq!(parse(&huge)[0].counters.kinds[0].commands, NUMBER_MAX);
        let many: String = (0..1000).map(|n| format!("259 0 nvme{n}n1 1 2 3 4 5 6 7 8 9 10 11\n")).collect();
        assert_eq!(parse(&many).len(), DISKS_MAX);
    }
}
