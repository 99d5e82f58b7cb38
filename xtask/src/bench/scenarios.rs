//! All scenarios, with the goals of the data path. docs/performance.md describes them.

use super::load::{
    Comparison, DRIVE_MIB, Drive, Goal, Host, Load, Metric, Rw, Scenario, Schedule, Shared, Sock, Subject, Target,
};

const KIB: u32 = 1 << 10;
/// Controllers of the idle scenario, with two connections each: an Admin Queue and an I/O queue.
const IDLE_CONTROLLERS: u16 = 32;

/// Sizes of memory drives in MiB, with their names: one that fits into the caches of many machines,
/// one that does not, and one that is also larger than what a processor translates in pages of 2
/// MiB.
const SIZES: [(u64, &str); 3] = [(DRIVE_MIB, "64m"), (256, "256m"), (2048, "2g")];
/// Processors of the scenarios that have pairs of them, at most: target and host of a connection.
const PAIRS: [[usize; 2]; 4] = [[0, 1], [2, 3], [4, 5], [6, 7]];

/// All of them, in the order in which they run, on a machine with so many processors.
pub(crate) fn all(processors: usize) -> Vec<Scenario> {
    let mut all = Vec::new();
    for (rw, word) in [(Rw::RandRead, "read"), (Rw::RandWrite, "write")] {
        for (depth, (drive_mib, size)) in [1, 32, 128].into_iter().flat_map(|depth| SIZES.map(|size| (depth, size))) {
            let load = Load { drive_mib, ..Load::new(rw, 4 * KIB, depth) };
            all.push(memory(&format!("{word}4k-qd{depth}-{size}"), size, load));
        }
    }
    all.extend([32, 128].map(null));
    for (rw, word) in [(Rw::Read, "read"), (Rw::Write, "write")] {
        all.push(large(&format!("seq{word}128k-qd64"), Load::new(rw, 128 * KIB, 64)));
    }
    all.push(digests());
    for (rw, word) in [(Rw::RandRead, "read"), (Rw::RandWrite, "write")] {
        all.extend([32, 128].map(|depth| crossed(&format!("cross-{word}4k-qd{depth}"), Load::new(rw, 4 * KIB, depth))));
    }
    all.extend([
        file("file-seqwrite", Load::new(Rw::Write, 128 * KIB, 64)),
        file("file-seqread", Load::new(Rw::Read, 128 * KIB, 64)),
        file("file-randwrite", Load::new(Rw::RandWrite, 4 * KIB, 64)),
        file("file-randread", Load::new(Rw::RandRead, 4 * KIB, 64)),
    ]);
    all.push(idle());
    all.push(two_connections());
    all.push(scaling());
    all.extend([(Rw::RandRead, "read"), (Rw::RandWrite, "write")].map(|(rw, word)| one_thread(rw, word)));
    all.extend(pairs(processors));
    all.extend([1, 32, 128].map(others));
    for (name, what, beside) in SHARED {
        let loads = [(Rw::RandRead, "", 1), (Rw::RandRead, "", 32), (Rw::RandWrite, "write-", 32)];
        all.extend(loads.map(|load| shared(name, what, beside, load)));
    }
    for (rw, kib, depth) in DEVICES {
        all.push(device(rw, kib, depth));
    }
    for (rw, depth) in [(Rw::RandRead, 1), (Rw::RandRead, 32), (Rw::RandWrite, 32)] {
        all.extend(shared_device(rw, depth));
    }
    all
}

fn scenario(name: &str, title: String, schedule: Schedule) -> Scenario {
    Scenario { name: name.to_owned(), title, schedule, subjects: Vec::new(), comparisons: Vec::new() }
}

impl Scenario {
    fn subject(mut self, name: &str, target: Target, host: Host, load: Load) -> Self {
        self.subjects.push(Subject { name: name.to_owned(), target, host, load });
        self
    }

    /// SPDK's target and host, with each socket implementation.
    fn spdk(mut self, drive: Drive, load: Load) -> Self {
        for sock in Sock::BOTH {
            let name = format!("spdk-{}", sock.name());
            self = self.subject(&name, Target::Spdk { sock, drive }, Host::Spdk(sock), load);
        }
        self
    }

    /// The raw program, with its payload in the cache, and in as much memory as the drive has.
    fn raw(self, load: Load) -> Self {
        self.subject("raw", Target::None, Host::Raw(&[0, 1]), load).subject(
            "raw-memory",
            Target::None,
            Host::RawMemory(&[0, 1]),
            load,
        )
    }

    fn ebof(self, drive: Drive, load: Load) -> Self {
        self.subject("ebof", Target::Ebof { drive, threads: Some(1) }, Host::Ebof, load)
    }

    fn compare(mut self, metric: Metric, of: &[&str], against: &[&str], goal: Goal) -> Self {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        self.comparisons.push(Comparison { metric, of: names(of), against: names(against), goal });
        self
    }
}

const SPDK: &[&str] = &["spdk-posix", "spdk-uring"];

/// 4 KiB against raw TCP, and against SPDK's memory device.
fn memory(name: &str, size: &str, load: Load) -> Scenario {
    let (spdk, cpu) = match load.depth {
        1 => (1.35, Goal::Shown),
        _ if load.drive_mib > DRIVE_MIB => (1.5, Goal::AtMost(0.7)),
        _ => (1.8, Goal::AtMost(0.7)),
    };
    let title = format!("4K {}, memory of {size}, QD{}, one connection", load.rw.name(), load.depth);
    scenario(name, title, Schedule::Pinned)
        .raw(load)
        .ebof(Drive::Memory, load)
        .spdk(Drive::Memory, load)
        .compare(Metric::Iops, &["ebof"], &["raw-memory"], Goal::AtLeast(0.90))
        .compare(Metric::Iops, &["ebof"], &["raw"], Goal::Shown)
        .compare(Metric::Iops, &["ebof"], SPDK, Goal::AtLeast(spdk))
        .compare(Metric::CpuUsPerIo, &["ebof"], SPDK, cpu)
}

fn null(depth: u16) -> Scenario {
    let load = Load::new(Rw::RandRead, 4 * KIB, depth);
    scenario(&format!("null4k-qd{depth}"), format!("4K randread, null, QD{depth}, one connection"), Schedule::Pinned)
        .ebof(Drive::Null, load)
        .spdk(Drive::Null, load)
        .compare(Metric::Iops, &["ebof"], SPDK, Goal::AtLeast(1.8))
        .compare(Metric::CpuUsPerIo, &["ebof"], SPDK, Goal::Shown)
}

fn large(name: &str, load: Load) -> Scenario {
    let title = format!("128K sequential {}, memory, QD{}, one connection", load.rw.name(), load.depth);
    scenario(name, title, Schedule::Pinned)
        .raw(load)
        .ebof(Drive::Memory, load)
        .spdk(Drive::Memory, load)
        .compare(Metric::Iops, &["ebof"], &["raw-memory"], Goal::Shown)
        .compare(Metric::Iops, &["ebof"], SPDK, Goal::AtLeast(1.8))
        .compare(Metric::CpuUsPerIo, &["ebof"], SPDK, Goal::Shown)
}

fn digests() -> Scenario {
    let load = Load { digests: true, ..Load::new(Rw::RandRead, 4 * KIB, 32) };
    scenario("digest4k-qd32", "4K randread with both digests, memory, QD32".to_owned(), Schedule::Pinned)
        .ebof(Drive::Memory, load)
        .spdk(Drive::Memory, load)
        .compare(Metric::Iops, &["ebof"], SPDK, Goal::AtLeast(1.6))
        .compare(Metric::CpuUsPerIo, &["ebof"], SPDK, Goal::Shown)
}

/// ebof's target with SPDK's host, and the reverse.
fn crossed(name: &str, load: Load) -> Scenario {
    let title = format!("4K {}, memory, QD{}: one end ebof's, the other SPDK's", load.rw.name(), load.depth);
    let mut crossed = scenario(name, title, Schedule::Pinned).spdk(Drive::Memory, load);
    let mut names = [Vec::new(), Vec::new()];
    for sock in Sock::BOTH {
        let host = format!("ebof-target+spdk-{}", sock.name());
        let target = format!("spdk-{}+ebof-host", sock.name());
        let ebof = Target::Ebof { drive: Drive::Memory, threads: Some(1) };
        crossed = crossed.subject(&host, ebof, Host::Spdk(sock), load);
        crossed = crossed.subject(&target, Target::Spdk { sock, drive: Drive::Memory }, Host::Ebof, load);
        names[0].push(host);
        names[1].push(target);
    }
    for (names, goal) in names.iter().zip([1.2, 1.0]) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        crossed = crossed.compare(Metric::Iops, &names, SPDK, Goal::AtLeast(goal));
    }
    crossed
}

/// A file over the fabric and directly. Disks complete in kernel threads, so that the processes
/// must not have priority over those.
fn file(name: &str, load: Load) -> Scenario {
    let title = format!("{} {}K, a file without page cache, QD{}", load.rw.name(), load.block_bytes / KIB, load.depth);
    let engines = ["libaio", "io_uring"];
    let mut scenario = scenario(name, title, Schedule::PinnedShare).ebof(Drive::File, load);
    for engine in engines {
        scenario = scenario.subject(&format!("fio-{engine}"), Target::None, Host::FioFile(engine), load);
    }
    scenario.compare(Metric::Iops, &["ebof"], &["fio-libaio", "fio-io_uring"], Goal::AtLeast(0.95)).compare(
        Metric::MeanUs,
        &["ebof"],
        &["fio-libaio", "fio-io_uring"],
        Goal::Shown,
    )
}

fn idle() -> Scenario {
    let load = Load::new(Rw::RandRead, 4 * KIB, 1);
    let ebof = Target::Ebof { drive: Drive::Memory, threads: None };
    let title = format!("nothing to do on {} connections", IDLE_CONTROLLERS * 2);
    scenario("idle", title, Schedule::Plain)
        .subject("ebof-64", ebof, Host::Hold(IDLE_CONTROLLERS), load)
        .subject("ebof-2", ebof, Host::Hold(1), load)
        .compare(Metric::TargetCpuPercent, &["ebof-64"], &[], Goal::AtMost(0.1))
        .compare(Metric::HostCpuPercent, &["ebof-64"], &[], Goal::Shown)
        .compare(Metric::HostCpuPercent, &["ebof-2"], &[], Goal::AtMost(0.1))
}

/// Nothing is pinned; the limit is raw TCP with each pair on one core.
fn two_connections() -> Scenario {
    let load = Load { connections: 2, ..Load::new(Rw::RandRead, 4 * KIB, 32) };
    let ebof = Target::Ebof { drive: Drive::Memory, threads: None };
    scenario("two-default", "4K randread, memory, QD32, two connections, default placement".to_owned(), Schedule::Free)
        .subject("raw-same-core", Target::None, Host::Raw(&[0, 0, 1, 1]), load)
        .subject("ebof", ebof, Host::Ebof, load)
        .compare(Metric::Iops, &["ebof"], &["raw-same-core"], Goal::AtLeast(0.65))
}

fn scaling() -> Scenario {
    let title = "4K randread, memory, QD32: 1 to 8 connections, 1 to 2 target threads".to_owned();
    let mut scenario = scenario("scaling", title, Schedule::Free);
    for threads in [1, 2] {
        for connections in [1, 2, 4, 8] {
            let name = format!("ebof-c{connections}t{threads}");
            let load = Load { connections, ..Load::new(Rw::RandRead, 4 * KIB, 32) };
            let target = Target::Ebof { drive: Drive::Memory, threads: Some(threads) };
            scenario = scenario.subject(&name, target, Host::Ebof, load);
            if (connections, threads) != (1, 1) {
                scenario = scenario.compare(Metric::Iops, &[&name], &["ebof-c1t1"], Goal::AtLeast(1.0));
            }
        }
    }
    scenario
}

/// Connections that share a thread at both ends: as deep as a single one each, and together.
fn one_thread(rw: Rw, word: &str) -> Scenario {
    let title = format!("4K {}, memory: 1, 2 and 4 connections of one thread at both ends", rw.name());
    let mut scenario = scenario(&format!("one-thread-{word}"), title, Schedule::Pinned);
    let target = Target::Ebof { drive: Drive::Memory, threads: Some(1) };
    for (connections, depth) in [(1, 32), (2, 32), (4, 32), (2, 16), (4, 8)] {
        let name = format!("ebof-{connections}x{depth}");
        let load = Load { connections, ..Load::new(rw, 4 * KIB, depth) };
        scenario = scenario.subject(&name, target, Host::EbofOneThread, load);
        if connections > 1 {
            // What a send carries is limited by the depth of its connection.
            let goal = if depth == 32 { Goal::AtLeast(1.0) } else { Goal::Shown };
            scenario = scenario.compare(Metric::Iops, &[&name], &["ebof-1x32"], goal);
        }
    }
    scenario
}

/// Connections on as many pairs of processors as there are. `None` where there is one pair.
fn pairs(processors: usize) -> Option<Scenario> {
    let title = "4K randread, memory, QD32: connections, each with a processor at both ends".to_owned();
    let mut scenario = scenario("pairs", title, Schedule::Pinned);
    let counts: Vec<u16> = [1, 2, 4].into_iter().filter(|&count| usize::from(count) * 2 <= processors).collect();
    for &count in &counts {
        let name = format!("ebof-{count}");
        let load = Load { connections: count, ..Load::new(Rw::RandRead, 4 * KIB, 32) };
        let target = Target::Ebof { drive: Drive::Memory, threads: Some(count) };
        scenario = scenario.subject(&name, target, Host::EbofOn(&PAIRS[..usize::from(count)]), load);
        if count > 1 {
            let linear = Goal::AtLeast(0.9 * f64::from(count));
            scenario = scenario.compare(Metric::Iops, &[&name], &["ebof-1"], linear);
        }
    }
    (counts.len() > 1).then_some(scenario)
}

/// Programs for other protocols, from Debian's packages.
fn others(depth: u16) -> Scenario {
    let load = Load::new(Rw::RandRead, 4 * KIB, depth);
    let title = format!("4K randread, memory, QD{depth}: NBD and iSCSI");
    scenario(&format!("others4k-qd{depth}"), title, Schedule::Pinned)
        .ebof(Drive::Memory, load)
        .subject("nbdkit", Target::Nbdkit, Host::FioNbd, load)
        .subject("qemu-nbd", Target::QemuNbd, Host::FioNbd, load)
        .subject("tgt", Target::Tgt, Host::Iscsi, load)
        .compare(Metric::Iops, &["ebof"], &["nbdkit", "qemu-nbd", "tgt"], Goal::Shown)
}

/// Both ends beside programs that compute: none, one and two on each of their processors, also at
/// nice 19, all on one processor, and wherever the system puts them.
const SHARED: [(&str, &str, Shared); 9] = [
    ("none", "no program", Shared { ends: Some([0, 1]), programs: 0, nice: 0 }),
    ("apart", "a program on each processor", Shared { ends: Some([0, 1]), programs: 2, nice: 0 }),
    ("apart2", "two programs on each processor", Shared { ends: Some([0, 1]), programs: 4, nice: 0 }),
    ("nice", "a program at nice 19 on each processor", Shared { ends: Some([0, 1]), programs: 2, nice: 19 }),
    ("nice2", "two programs at nice 19 on each processor", Shared { ends: Some([0, 1]), programs: 4, nice: 19 }),
    ("one", "both ends and a program on one processor", Shared { ends: Some([0, 0]), programs: 1, nice: 0 }),
    ("free1", "one program, nothing pinned", Shared { ends: None, programs: 1, nice: 0 }),
    ("free", "two programs, nothing pinned", Shared { ends: None, programs: 2, nice: 0 }),
    ("free4", "four programs, nothing pinned", Shared { ends: None, programs: 4, nice: 0 }),
];

fn shared(name: &str, what: &str, beside: Shared, (rw, word, depth): (Rw, &str, u16)) -> Scenario {
    let load = Load::new(rw, 4 * KIB, depth);
    let title = format!("4K {}, memory, QD{depth}: {what}", rw.name());
    let scenario = scenario(&format!("shared-{name}-{word}qd{depth}"), title, Schedule::Shared(beside));
    let goal = match beside.ends {
        Some(_) => Goal::AtLeast(1.0),
        // SPDK pins itself.
        None => Goal::Shown,
    };
    scenario.ebof(Drive::Memory, load).spdk(Drive::Memory, load).compare(Metric::Iops, &["ebof"], SPDK, goal)
}

/// The block device beside two programs, and none.
fn shared_device(rw: Rw, depth: u16) -> Vec<Scenario> {
    [0, 2]
        .map(|programs| {
            let mut scenario = device(rw, 4, depth);
            scenario.name = format!("shared-{programs}-{}", scenario.name);
            scenario.title += &format!(", {programs} programs");
            scenario.schedule = Schedule::Shared(Shared { ends: None, programs, nice: 0 });
            scenario
        })
        .into()
}

/// Loads of the block device, with the size of a block in KiB.
const DEVICES: [(Rw, u32, u16); 7] = [
    (Rw::Write, 128, 8),
    (Rw::Write, 128, 32),
    (Rw::Write, 128, 128),
    (Rw::Read, 128, 32),
    (Rw::RandRead, 4, 1),
    (Rw::RandRead, 4, 32),
    (Rw::RandWrite, 4, 32),
];

/// The namespace as a block device, beside its URI.
fn device(rw: Rw, kib: u32, depth: u16) -> Scenario {
    let load = Load { drive_mib: 256, ..Load::new(rw, kib * KIB, depth) };
    let ebof = Target::Ebof { drive: Drive::Memory, threads: Some(1) };
    let title = format!("{kib}K {}, memory, QD{depth}: the block device beside the URI", rw.name());
    scenario(&format!("device-{}{kib}k-qd{depth}", rw.name()), title, Schedule::Free)
        .subject("device", ebof, Host::FioDevice, load)
        .subject("uri", ebof, Host::Ebof, load)
        .compare(Metric::Iops, &["device"], &["uri"], Goal::Shown)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_comparisons_name_existing_scenarios() {
        let all = all(8);
        let names: BTreeSet<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        for scenario in &all {
            let subjects: BTreeSet<&String> = scenario.subjects.iter().map(|subject| &subject.name).collect();
            assert_eq!(subjects.len(), scenario.subjects.len(), "{}", scenario.name);
            for comparison in &scenario.comparisons {
                let named = comparison.of.iter().chain(&comparison.against);
                assert!(named.clone().all(|name| subjects.contains(name)), "{}: {comparison:?}", scenario.name);
                assert!(!comparison.of.is_empty());
            }
        }
    }
}
