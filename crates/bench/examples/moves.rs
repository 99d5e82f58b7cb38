//! What the other functions of a drive notice while one is moved between ports, measured:
//! `cargo xtask bench moves`.
//!
//! Target and hosts are in this process. Function 1 is read without a pause, and moved between two
//! fabric ports, or between a fabric port and a direct one; meanwhile functions 2 and 3 read. Their
//! 99th percentile at rest (function 1 is read, and stays) is measured before and after.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a program for developers")]

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ebof_bench::{Job, Mix, Report, Source, run};
use ebof_initiator::{AdminData, Controller, Options};
use ebof_manage::enclosure::{Enclosure as _, TaskState, Transaction};
use ebof_manage::load;
use ebof_nvme::identify::Csi;
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::{Nqn, Nsid};
use ebof_server::{RunningEnclosure, Settings, Target};
use zerocopy::IntoBytes as _;

const USAGE: &str = "moves [--seconds S] [--rounds N] [--depth N] [--threads N]";
const NQN: &str = "nqn.2014-08.org.example:box:d0";

struct Rig {
    target: Arc<Target>,
    enclosure: RunningEnclosure,
    depth: u16,
}

/// The slowest of what the resting functions had.
struct Rest {
    p99_us: f64,
    iops: f64,
}

fn main() {
    let (mut seconds, mut rounds, mut depth, mut threads) = (2.0, 3, 8, 2);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().expect(USAGE);
        match word.as_str() {
            "--seconds" => seconds = value.parse().expect(USAGE),
            "--rounds" => rounds = value.parse().expect(USAGE),
            "--depth" => depth = value.parse().expect(USAGE),
            "--threads" => threads = value.parse().expect(USAGE),
            _ => panic!("{USAGE}"),
        }
    }
    let average = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{rounds} rounds of {seconds} s, depth {depth}, {threads} threads, load {}", average.trim());
    println!(
        "| {:16} | {:>5} | {:>12} | {:>12} | {:>5} | {:>9} |",
        "moves", "count", "p99 at rest", "p99 moving", "ratio", "longest"
    );
    println!("|{0:-<18}|{0:-<6}:|{0:-<13}:|{0:-<13}:|{0:-<6}:|{0:-<10}:|", "");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("direct.sock");
    let rig = Rig::new(socket.to_str().unwrap(), depth, threads);
    let runtime = Duration::from_secs_f64(seconds);
    for (name, to) in [("fabric to fabric", "b"), ("fabric to direct", "direct")] {
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let (before, ..) = rig.measure(runtime, None);
            let (moving, count, longest) = rig.measure(runtime, Some(to));
            let (after, ..) = rig.measure(runtime, None);
            // What the machine does besides differs from second to second.
            let rest = f64::midpoint(before.p99_us, after.p99_us);
            let ratio = moving.p99_us / rest;
            println!(
                "| {name:16} | {count:>5} | {:>9.0} us | {:>9.0} us | {ratio:>5.2} | {:>6.1} ms |",
                rest,
                moving.p99_us,
                longest.as_secs_f64() * 1e3
            );
            assert!(moving.iops > 0.0);
            ratios.push(ratio);
        }
        ratios.sort_by(f64::total_cmp);
        let median = ratios[ratios.len() / 2];
        println!("{name}: {median:.2} times, the goal is below 2: {}", if median < 2.0 { "met" } else { "MISSED" });
    }
    rig.target.stop(Duration::ZERO);
}

impl Rig {
    fn new(socket: &str, depth: u16, threads: usize) -> Self {
        let mut text = String::new();
        for name in ["a", "b"] {
            writeln!(text, "[[ports]]\nname = \"{name}\"\nlisten = \"tcp://127.0.0.1:0\"").unwrap();
        }
        writeln!(text, "[[ports]]\nname = \"direct\"\nlisten = \"vfio-user:{socket}\"").unwrap();
        writeln!(text, "[[drives]]\nname = \"d0\"\nbacking = \"mem:512Mi\"\nfunctions = 3").unwrap();
        let ports = "ports = [\"a\"]\ndrive = \"d0\"\nallow_any_host = true";
        writeln!(text, "[[subsystems]]\nnqn = \"{NQN}\"\n{ports}").unwrap();
        let config = load("box.toml", &text).unwrap().config;
        let settings = Settings { threads: Some(threads), pin: false, ..Settings::default() };
        let target = Arc::new(Target::start(config, settings).unwrap());
        let rig = Self { enclosure: RunningEnclosure::new(Arc::clone(&target)), target, depth };
        let manager = Controller::connect(&rig.options("a", NQN)).unwrap();
        for number in 1..=3_u32 {
            let create = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM };
            let wanted = NewNamespace::new((64 << 20) / 512);
            let made = manager.admin(create.encode(Nsid::NONE), AdminData::FromHost(wanted.as_bytes()), None).unwrap();
            assert!(made.status().is_success(), "{}", made.status());
            rig.change(&format!(r#"{{"change": "map", "namespace": "d0/ns{number}", "function": "d0/vf{number}"}}"#));
            rig.change(&format!(r#"{{"change": "assign", "function": "d0/vf{number}", "port": "a"}}"#));
            let fill = Job { block_bytes: 128 << 10, depth: 16, runtime: None, ..Job::new(Mix::Write) };
            rig.run(number, &fill);
        }
        rig
    }

    fn options(&self, port: &str, nqn: &str) -> Options {
        let addresses = self.target.addresses();
        let (_, address) = addresses.iter().find(|(name, _)| name == port).unwrap();
        Options::new(address.ip().to_string(), address.port(), Nqn::parse(nqn).unwrap())
    }

    fn change(&self, change: &str) -> Duration {
        let began = Instant::now();
        let transaction: Transaction = serde_json::from_str(&format!("{{\"changes\": [{change}]}}")).unwrap();
        let mut task = self.enclosure.begin(transaction).unwrap();
        while !task.is_over() {
            task = self.enclosure.task(task.id, Some(task.revision), Duration::from_secs(10)).unwrap();
        }
        assert_eq!(task.state, TaskState::Done, "{:?}", task.error);
        began.elapsed()
    }

    fn run(&self, number: u32, job: &Job) -> Report {
        let options = self.options("a", &format!("{NQN}:vf{number}"));
        let report = run(&Source::Fabric(Box::new(options), Nsid(number)), job, |_| ControlFlow::Continue(())).unwrap();
        assert_eq!((report.errors, &report.first_error), (0, &None), "the others do not notice");
        report
    }

    /// What functions 2 and 3 have, how often function 1 was moved meanwhile (to that port and
    /// back), and how long the longest move took.
    fn measure(&self, runtime: Duration, to: Option<&str>) -> (Rest, u32, Duration) {
        let job = Job { depth: self.depth, runtime: Some(runtime), ..Job::new(Mix::RandRead) };
        let over = AtomicBool::new(false);
        let (mut count, mut longest) = (0, Duration::ZERO);
        let reports = std::thread::scope(|scope| {
            let reader = scope.spawn(|| self.read_on(&over));
            let resting: Vec<_> = [2, 3]
                .map(|number| {
                    scope.spawn({
                        let job = &job;
                        move || self.run(number, job)
                    })
                })
                .into();
            let end = Instant::now() + runtime;
            while let Some(to) = to.filter(|_| Instant::now() < end) {
                for port in [to, "a"] {
                    let change = format!(r#"{{"change": "move", "function": "d0/vf1", "to": "{port}"}}"#);
                    longest = longest.max(self.change(&change));
                    count += 1;
                }
                // Long enough for its host to come back and read.
                std::thread::sleep(Duration::from_millis(50));
            }
            let reports: Vec<Report> = resting.into_iter().map(|thread| thread.join().unwrap()).collect();
            over.store(true, Relaxed);
            reader.join().unwrap();
            reports
        });
        let p99 = |report: &Report| {
            let all = &report.total.latency.percentiles;
            all.iter().find(|(percent, _)| *percent >= 99.0).map_or(0.0, |(_, us)| *us)
        };
        let p99_us = reports.iter().map(p99).fold(0.0, f64::max);
        let iops = reports.iter().map(|report| report.total.iops).fold(f64::MAX, f64::min);
        (Rest { p99_us, iops }, count, longest)
    }

    /// Reads function 1 wherever it can be reached.
    fn read_on(&self, over: &AtomicBool) {
        while !over.load(Relaxed) {
            let mut options = self.options("a", &format!("{NQN}:vf1"));
            options.nr_io_queues = 1;
            let Ok(host) = Controller::connect(&options) else {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            };
            if let Ok(namespace) = host.namespace(Nsid(1)) {
                let mut data = [0; 4096];
                while !over.load(Relaxed) && namespace.read(0, &mut data).is_ok() {}
            }
            // Its controller is gone, or about to.
            drop(host);
        }
    }
}
