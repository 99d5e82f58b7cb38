//! Example documents of every procedure, as a run could have left them: for tests of reports, and
//! for the browser that draws them.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "test code, and an example's")]

use std::time::Duration;

use ebof_bench::PERCENTILES;
use ebof_bench::corner::Unit;
use ebof_bench::{Job, Latency, Mix, Report, Side};
use ebof_qualify::document::{
    Column, Conditions, Document, EngineName, Identity, Phase, Point, Procedure, Purpose, Reference, Run, SCHEMA,
    State, Steady,
};
use ebof_qualify::machine::Machine;

/// 2026-11-26 12:00:00 UTC.
const START_MS: u64 = 1_795_694_400_000;

/// All of them, by name.
pub fn all() -> Vec<(String, Document)> {
    let documents =
        [odcc(), corners_interrupted(), cdm(), mixed(), curve(), fairness(), compare(), nothing(), hostile()];
    let names = ["odcc", "corners", "cdm", "mixed", "curve", "fairness", "compare", "nothing", "hostile"];
    names.map(str::to_owned).into_iter().zip(documents).collect()
}

/// Two runs of one procedure on different days, as a comparison takes them.
pub fn pair() -> Vec<(String, Document)> {
    let mut later = corners();
    later.started_unix_ms += 86_400_000;
    for run in later.phases.iter_mut().flat_map(|phase| &mut phase.runs) {
        for report in &mut run.reports {
            report.total.iops *= 1.07;
            report.total.bytes_per_s *= 1.07;
        }
    }
    later.compute_results();
    vec![("monday".to_owned(), corners()), ("tuesday".to_owned(), later)]
}

/// A document that is not finished.
struct Draft(Document);

impl Draft {
    fn new(procedure: Procedure, title: &str) -> Self {
        let machine = Machine {
            kernel: "6.1.0-28-amd64".into(),
            distribution: "Debian GNU/Linux 12 (bookworm)".into(),
            processor: "Intel(R) Xeon(R) Silver 4214R CPU @ 2.40GHz".into(),
            processors: 24,
            memory_bytes: 384 << 30,
            hypervisor: None,
            governor: Some("performance".into()),
            interfaces: vec!["ens1f0np0: mlx5_core, 25000 Mb/s, MTU 9000".into()],
            programs: vec!["fio-3.33".into()],
            settings: vec![
                ("net.core.busy_poll".into(), "0".into()),
                ("net.ipv4.tcp_rmem".into(), "4096 131072 6291456".into()),
            ],
        };
        let device = "nvme+tcp://192.168.13.147:4420/nqn.2014-08.org.example:drive0/1";
        Self(Document {
            schema: SCHEMA.into(),
            procedure,
            title: title.into(),
            state: State::Complete,
            trouble: None,
            quick: None,
            command: ["ebof", "qualify", procedure.name(), device, "-o", "report/"].map(str::to_owned).to_vec(),
            program: "ebof 0.2.0".into(),
            started_unix_ms: START_MS,
            ended_unix_ms: START_MS + 5_400_000,
            resumed: 0,
            machine,
            rounds: 3,
            columns: Vec::new(),
            phases: Vec::new(),
            notes: vec!["The page cache was bypassed (O_DIRECT).".into()],
            results: Vec::new(),
        })
    }

    fn column(&mut self, label: &str, kind: &str, name: &str, base: Option<usize>) -> &mut Column {
        let id = char::from(b'A' + u8::try_from(self.0.columns.len()).unwrap());
        self.0.columns.push(Column {
            id: id.to_string(),
            label: label.into(),
            device: Identity {
                name: name.into(),
                kind: kind.into(),
                capacity_bytes: 1_600_321_314_816,
                block_bytes: 4096,
                details: vec![("model".into(), "INTEL SSDPE2KE016T8".into()), ("firmware".into(), "VDV10131".into())],
            },
            engine: EngineName::Ebof,
            variant: None,
            base,
            settings: Vec::new(),
        });
        self.0.columns.last_mut().unwrap()
    }

    /// A phase, with three runs of each column around its value and mean latency.
    fn phase(&mut self, job: Job, unit: Unit, values: &[(f64, f64)]) -> &mut Phase {
        let columns: Vec<usize> = (0..values.len()).collect();
        let mut runs = Vec::new();
        for round in 1..=3 {
            for (column, (value, mean_us)) in values.iter().enumerate() {
                let factor = 1.0 + wave(self.0.phases.len() * 31 + column * 7 + round) * 0.02;
                runs.push(run(&job, unit, column, u32::try_from(round).unwrap(), value * factor, mean_us / factor));
            }
        }
        let depth = u32::from(job.depth) * u32::from(job.threads);
        self.0.phases.push(Phase {
            id: job.name.to_lowercase().replace(' ', "-"),
            title: job.name.clone(),
            purpose: Purpose::Measure,
            file_system: None,
            tool: None,
            unit,
            jobs: vec![job],
            depth_total: depth,
            rounds: 3,
            until_bytes: None,
            columns,
            together: false,
            references: Vec::new(),
            skipped: None,
            runs,
        });
        self.0.phases.last_mut().unwrap()
    }

    fn done(mut self) -> Document {
        self.0.compute_results();
        self.0
    }
}

/// Something between -1 and 1 that is always the same.
fn wave(index: usize) -> f64 {
    let index = f64::from(u32::try_from(index).unwrap());
    (index * 12.9898).sin()
}

fn job(name: &str, rw: Mix, block_bytes: u32, depth: u16, threads: u16) -> Job {
    let runtime = Some(Duration::from_secs(60));
    Job { name: name.into(), block_bytes, depth, threads, runtime, ramp: Duration::from_secs(5), ..Job::new(rw) }
}

fn run(job: &Job, unit: Unit, column: usize, round: u32, value: f64, mean_us: f64) -> Run {
    let iops = match unit {
        Unit::Iops => value,
        Unit::MegabytesPerSecond => value * 1e6 / f64::from(job.block_bytes),
    };
    let points = (1..=60).map(|second| {
        let factor = 1.0 + wave(second * 3 + column * 11 + usize::try_from(round).unwrap()) * 0.03;
        let at_s = f64::from(u32::try_from(second).unwrap());
        let iops = iops * factor;
        Point { at_s, iops, bytes_per_s: iops * f64::from(job.block_bytes), mean_us: Some(mean_us) }
    });
    Run {
        column,
        round,
        started_unix_ms: START_MS + u64::from(round) * 70_000,
        reports: vec![report(job, iops, mean_us)],
        series: points.collect(),
        conditions: Conditions {
            interrupts_processor: Some(1),
            interrupts_percent: Some(7.5),
            interrupts_busy_percent: Some(41.0),
            steal_percent: Some(0.1),
            others_percent: Some(1.5),
            busiest_other: Some("systemd-journal".into()),
            host_us_per_io: Some(2.1),
            target_us_per_io: None,
            frequency_mhz: Some(2399.0),
            processor_celsius: Some(51.0),
            device_celsius: Some(38.0),
        },
        disturbed: None,
        failed: None,
        command: None,
        steady: Some(Steady { reached_s: Some(5.0), excursion_percent: 4.2, slope_percent: 0.8 }),
    }
}

/// Latencies that grow with each nine.
fn report(job: &Job, iops: f64, mean_us: f64) -> Report {
    let percentiles = PERCENTILES.map(|at| (at, mean_us * (0.7 + 0.35 * -(1.0 - at / 100.0).log10())));
    let side = Side {
        operations: 1_000_000,
        bytes: 1_000_000 * u64::from(job.block_bytes),
        iops,
        bytes_per_s: iops * f64::from(job.block_bytes),
        latency: Latency {
            min_us: mean_us / 2.0,
            mean_us,
            stddev_us: mean_us / 5.0,
            max_us: mean_us * 9.0,
            percentiles: percentiles.to_vec(),
        },
    };
    Report {
        schema: "ebof-bench/1".into(),
        source: "example".into(),
        job: job.clone(),
        elapsed_s: 60.0,
        read: job.rw.reads().then(|| side.clone()),
        write: job.rw.writes().then(|| side.clone()),
        total: side,
        errors: 0,
        first_error: None,
        verified_bytes: 0,
        cpu_us_per_operation: 2.1,
        cpu_percent: 90.0,
        process: None,
        depth: job.depth,
    }
}

const URI: &str = "nvme+tcp://192.168.13.147:4420/nqn.2014-08.org.example:drive0/1";

/// With preconditioning, two engines, a disturbed run and the document's figures.
pub fn odcc() -> Document {
    let mut draft = Draft::new(Procedure::Odcc, "Ethernet SSD test procedure (ODCC-2021-05008, chapter 6)");
    draft.column("local", "block", "/dev/nvme0n1", None);
    draft.column("NVMe/TCP, ebof", "nvme+tcp", URI, Some(0)).settings = vec![("queues".into(), "4".into())];
    draft.column("NVMe/TCP, fio", "nvme+tcp", URI, Some(0)).engine = EngineName::Fio;
    let (mb, iops) = (Unit::MegabytesPerSecond, Unit::Iops);
    for (name, job, value) in [
        ("Sequential preconditioning", job("init_seq", Mix::Write, 128 << 10, 8, 1), (2050.0, 500.0)),
        ("Random preconditioning", job("init_rand", Mix::RandWrite, 4096, 256, 8), (180_000.0, 11_000.0)),
    ] {
        let phase = draft.phase(job, if name.starts_with('S') { mb } else { iops }, &[value]);
        (phase.title, phase.purpose) = (name.into(), Purpose::Precondition);
        phase.runs.truncate(1);
        for (index, point) in phase.runs[0].series.iter_mut().enumerate() {
            let excess = 1.0 + 2.0 * (-f64::from(u32::try_from(index).unwrap()) / 8.0).exp();
            point.iops *= excess;
            point.bytes_per_s *= excess;
        }
        phase.runs[0].steady = Some(Steady { reached_s: Some(36.0), excursion_percent: 9.1, slope_percent: 3.3 });
    }
    let figures = [
        (
            "128K sequential write",
            Mix::Write,
            128 << 10,
            mb,
            (2071.0, 4040.0),
            (2066.0, 4060.0),
            (2059.0, 4075.0),
            2333.0,
        ),
        (
            "128K sequential read",
            Mix::Read,
            128 << 10,
            mb,
            (3205.0, 2610.0),
            (2744.0, 3050.0),
            (2751.0, 3044.0),
            2717.0,
        ),
        (
            "4K random write",
            Mix::RandWrite,
            4096,
            iops,
            (199_100.0, 320.0),
            (187_000.0, 341.0),
            (184_200.0, 346.0),
            139e3,
        ),
        ("4K random read", Mix::RandRead, 4096, iops, (643_200.0, 99.0), (627_400.0, 101.0), (611_300.0, 104.0), 669e3),
    ];
    for (name, rw, block, unit, local, ours, fio, theirs) in figures {
        let phase = draft.phase(job(name, rw, block, 64, 1), unit, &[local, ours, fio]);
        phase.references = vec![Reference {
            document: "ODCC-2021-05008, chapter 7".into(),
            what: "Ethernet SSD over RoCE".into(),
            value: Some(theirs),
            ratio: None,
        }];
        for run in phase.runs.iter_mut().filter(|run| run.column == 2) {
            run.command = Some(
                ["fio", "--name=job", "--filename=nvme+tcp\\://host/nqn", "--rw=read"].map(str::to_owned).to_vec(),
            );
        }
    }
    let run = &mut draft.0.phases[3].runs[4];
    run.disturbed = Some("the hypervisor took 7.1 % of the processors' time".into());
    run.conditions.steal_percent = Some(7.1);
    draft.done()
}

/// Raw and on a file system.
pub fn corners() -> Document {
    let mut draft = Draft::new(Procedure::Corners, "Four corners at depth 128 with four jobs");
    draft.column("local", "block", "/dev/nvme0n1", None);
    draft.column("NVMe/TCP", "nvme+tcp", URI, Some(0));
    let (mb, iops) = (Unit::MegabytesPerSecond, Unit::Iops);
    for (system, factor) in [(None, 1.0), (Some("ext4"), 0.93)] {
        for (name, rw, block, unit, local, ratio) in [
            ("128K sequential write", Mix::Write, 128 << 10, mb, 2080.0, 0.998),
            ("128K sequential read", Mix::Read, 128 << 10, mb, 3200.0, 0.856),
            ("4K random write", Mix::RandWrite, 4096, iops, 199_000.0, 0.938),
            ("4K random read", Mix::RandRead, 4096, iops, 643_000.0, 0.975),
        ] {
            let local = local * factor;
            let values = [(local, 5e8 / local), (local * ratio * 0.99, 5e8 / local / ratio)];
            let phase = draft.phase(job(name, rw, block, 128, 4), unit, &values);
            phase.file_system = system.map(str::to_owned);
            phase.id = format!("{}{}", phase.id, system.unwrap_or_default());
            phase.references = vec![Reference {
                document: "NVMe over RoCE (2021)".into(),
                what: "P4610 over RoCE, 25 Gb/s".into(),
                value: Some(local * ratio),
                ratio: Some(ratio),
            }];
        }
    }
    draft.done()
}

/// Ended by the user in a quick run; a result rests on disturbed runs, a run failed.
pub fn corners_interrupted() -> Document {
    let mut document = corners();
    (document.state, document.quick, document.resumed) = (State::Interrupted, Some(60), 1);
    document.trouble = Some("SIGINT".into());
    for phase in &mut document.phases[5..] {
        phase.runs.clear();
    }
    document.phases[4].runs.truncate(1);
    for run in document.phases[1].runs.iter_mut().filter(|run| run.column == 1) {
        run.disturbed = Some("other programs were busy: rustc took 184 % of one processor".into());
    }
    document.phases[2].runs[5].failed = Some("the connection was lost after 12 s".into());
    document.phases[2].runs[5].reports.clear();
    document.phases[7].skipped = Some("mkfs.ext4 is not installed".into());
    document.compute_results();
    document
}

/// One column only.
pub fn cdm() -> Document {
    let mut draft = Draft::new(Procedure::Cdm, "Patterns of a disk benchmark for desktops");
    draft.column("NVMe/TCP", "nvme+tcp", URI, None);
    let figures = [1125.0, 1175.5, 804.7, 1074.4, 39.5, 110.5, 375.7, 474.7];
    let names = ["Seq", "Rand 512K", "Rand 4K", "Rand 4K QD32"];
    for (index, theirs) in figures.into_iter().enumerate() {
        let (name, is_read) = (names[index / 2], index % 2 == 0);
        let (block, depth) = [(1 << 20, 1), (512 << 10, 1), (4096, 1), (4096, 32)][index / 2];
        let rw = if is_read { Mix::RandRead } else { Mix::RandWrite };
        let name = format!("{name} {}", if is_read { "read" } else { "write" });
        let mean_us = f64::from(block) * f64::from(depth) / theirs / 1.4;
        let phase = draft.phase(job(&name, rw, block, depth, 1), Unit::MegabytesPerSecond, &[(theirs * 1.4, mean_us)]);
        phase.references = vec![Reference {
            document: "NVMe over TCP on a server at home".into(),
            what: "ext4 on 10 GbE".into(),
            value: Some(theirs),
            ratio: None,
        }];
    }
    draft.done()
}

/// Readers beside a writer.
pub fn mixed() -> Document {
    let mut draft = Draft::new(Procedure::Mixed, "Small synchronous reads beside large writes");
    draft.column("shared queues", "nvme+tcp", URI, None).variant = Some("reads and writes share the queues".into());
    draft.column("separate queues", "nvme+tcp", URI, Some(0)).variant = Some("writes have queues of their own".into());
    let values = [(80_100.0, 396.0), (171_200.0, 181.0)];
    let phase = draft.phase(job("16 readers beside a writer", Mix::RandRead, 4096, 1, 16), Unit::Iops, &values);
    let writer = job("writer", Mix::Write, 1 << 20, 32, 1);
    phase.jobs.push(writer.clone());
    for run in &mut phase.runs {
        run.reports.push(report(&writer, 1800.0, 18_000.0));
    }
    let reference = |what: &str, value| Reference {
        document: "SNIA, NVMe/TCP in the real world".into(),
        what: what.into(),
        value: Some(value),
        ratio: None,
    };
    phase.references = vec![reference("shared queue map", 80e3), reference("separate queue maps", 171e3)];
    draft.done()
}

/// Depths and threads, with and without batching.
pub fn curve() -> Document {
    let mut draft = Draft::new(Procedure::Curve, "IOPS against latency over depth and threads");
    draft.column("no batching", "nvme+tcp", URI, None);
    draft.column("batching", "nvme+tcp", URI, Some(0)).settings = vec![("batch".into(), "16".into())];
    for threads in [1_u16, 4] {
        for depth in [1_u16, 4, 16, 32, 64, 128] {
            let outstanding = f64::from(depth) * f64::from(threads);
            let point = |least: f64, most: f64| {
                let iops = most * outstanding / (outstanding + most * least / 1e6);
                (iops, outstanding / iops * 1e6)
            };
            let scale = f64::from(threads).sqrt();
            let values = [point(70.0, 150e3 * scale), point(78.0, 225e3 * scale)];
            let name = format!("4K random read, {threads} x {depth}");
            draft.phase(job(&name, Mix::RandRead, 4096, depth, threads), Unit::Iops, &values);
        }
    }
    draft.done()
}

/// Five functions of one drive at once.
pub fn fairness() -> Document {
    let mut draft = Draft::new(Procedure::Fairness, "Five hosts on five virtual functions at once");
    for function in 1..=5 {
        let name = format!("nvme+tcp://192.168.13.147:4420/nqn.2014-08.org.example:d0-vf{function}/1");
        draft.column(&format!("vf{function}"), "nvme+tcp", &name, None);
    }
    let values = [(68_500.0, 202.0), (68_400.0, 202.0), (67_500.0, 206.0), (69_000.0, 200.0), (68_500.0, 202.0)];
    let phase = draft.phase(job("4K random read, all hosts", Mix::RandRead, 4096, 16, 1), Unit::Iops, &values);
    phase.together = true;
    let phase = draft.phase(
        job("4K random write, all hosts", Mix::RandWrite, 4096, 16, 1),
        Unit::Iops,
        &[(12_000.0, 1300.0), (31_000.0, 510.0), (30_500.0, 520.0), (29_900.0, 530.0), (30_100.0, 528.0)],
    );
    phase.together = true;
    draft.done()
}

/// Five protocols, with names that are too long for a line.
pub fn compare() -> Document {
    let mut draft = Draft::new(Procedure::Compare, "The same load over several protocols");
    draft.column("local file", "file", "/srv/disk.img", None);
    draft.column("NVMe/TCP", "nvme+tcp", URI, Some(0));
    draft.column("NVMe/RDMA", "nvme+rdma", "nvme+rdma://192.168.13.147:4420/nqn.2014-08.org.example:drive0/1", Some(0));
    let iscsi = "iscsi://192.168.13.147:3260/iqn.2003-01.org.linux-iscsi.storage-box.x8664:sn.1234567890ab/0";
    draft.column("iSCSI (libiscsi, one session to the box in the other rack)", "iscsi", iscsi, Some(0)).engine =
        EngineName::IscsiPerf;
    draft.column("NBD", "nbd", "nbd://192.168.13.147:10809/disk", Some(0)).engine = EngineName::Fio;
    for (name, rw, block, unit, local) in [
        ("4K random read", Mix::RandRead, 4096, Unit::Iops, 310_000.0),
        ("128K sequential read", Mix::Read, 128 << 10, Unit::MegabytesPerSecond, 3100.0),
    ] {
        let parts = [1.0, 0.72, 0.94, 0.31, 0.22];
        let values = parts.map(|part| (local * part, 3.2e7 / local / part));
        draft.phase(job(name, rw, block, 32, 1), unit, &values);
    }
    draft.done()
}

/// Killed before the first run.
pub fn nothing() -> Document {
    let mut draft = Draft::new(Procedure::Compare, "Nothing was measured yet");
    draft.0.state = State::Running;
    draft.done()
}

/// What only somebody writes who means harm, or a broken device.
pub fn hostile() -> Document {
    let evil = "</title></style><script>alert(1)</script><img src=x onerror=alert(2)>\u{202e}\"';--|`*_[x](javascript:alert(3))\u{0}\n# x";
    let mut document = compare();
    (document.title, document.program) = (evil.into(), evil.into());
    (document.state, document.trouble) = (State::Failed, Some(evil.into()));
    (document.started_unix_ms, document.ended_unix_ms) = (u64::MAX, 0);
    document.command = vec![evil.into(), String::new()];
    document.notes = vec![evil.into(), "x".repeat(100_000), "```".into()];
    document.machine.settings = vec![(evil.into(), evil.into())];
    for column in &mut document.columns {
        (column.id, column.label, column.variant) =
            (evil.into(), format!("{evil}{}", "W".repeat(300)), Some(evil.into()));
        column.device.name = evil.into();
        column.device.details = vec![(evil.into(), evil.into())];
        column.base = Some(99);
    }
    document.columns[2].base = Some(2);
    let numbers = [f64::NAN, f64::INFINITY, -1e308, 0.0, f64::MAX, f64::MIN_POSITIVE];
    for (index, phase) in document.phases.iter_mut().enumerate() {
        (phase.title, phase.file_system, phase.id) = (evil.into(), Some(evil.into()), "same".into());
        phase.references = vec![Reference {
            document: evil.into(),
            what: evil.into(),
            value: Some(numbers[index]),
            ratio: Some(f64::NAN),
        }];
        phase.columns.push(usize::MAX);
        for (number, run) in phase.runs.iter_mut().enumerate() {
            let value = numbers[number % numbers.len()];
            (run.failed, run.disturbed) = ((number == 3).then(|| evil.into()), Some(evil.into()));
            run.series = vec![Point { at_s: value, iops: value, bytes_per_s: -value, mean_us: None }; number * 100];
            run.conditions.frequency_mhz = Some(value);
            run.steady = Some(Steady { reached_s: Some(value), excursion_percent: value, slope_percent: -value });
            for report in &mut run.reports {
                (report.total.iops, report.total.bytes_per_s, report.total.latency.mean_us) = (value, value, value);
                report.total.latency.percentiles = vec![(value, value), (99.0, value), (100.0, 1.0), (99.99, -1.0)];
                (report.errors, report.first_error) = (u64::MAX, Some(evil.into()));
            }
        }
        phase.runs[0].column = usize::MAX;
    }
    document.phases[0].jobs.clear();
    document.compute_results();
    for of in document.results.iter_mut().flat_map(|result| &mut result.columns) {
        (of.ratio, of.latency_ratio, of.share) = (Some(of.value.median), Some(f64::INFINITY), Some(-1.0));
    }
    document
}
