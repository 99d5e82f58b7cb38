//! `cargo xtask bench direct`: a drive at a direct port beside the same one over TCP, and over the
//! in-memory link, all in one process and without a guest.
#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ebof_bench::direct::{self, DirectLoad, Doorbells};
use ebof_bench::{Job, Mix, Source, run};
use ebof_initiator::Options;
use ebof_manage::config::{Namespace, Port, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::{Nqn, Nsid};
use ebof_server::{Settings, Target};

type Failed = Box<dyn std::error::Error>;

const NQN: &str = "nqn.2014-08.org.example:direct";

const USAGE: &str = "cargo xtask bench direct [--drive PATH|mem:SIZE] [--rounds N] [--seconds S]";

/// Where the load comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Direct(Doorbells),
    Tcp,
    InMemory,
}

/// A load: name, operations, bytes, depth.
type Load = (&'static str, Mix, u32, u16);

const CORNERS: [Load; 4] = [
    ("128K sequential writes, depth 8", Mix::Write, 128 << 10, 8),
    ("128K sequential reads, depth 8", Mix::Read, 128 << 10, 8),
    ("4K random writes, depth 32", Mix::RandWrite, 4096, 32),
    ("4K random reads, depth 32", Mix::RandRead, 4096, 32),
];

const RATES: [Load; 2] =
    [("4K random reads, depth 1", Mix::RandRead, 4096, 1), ("4K random reads, depth 32", Mix::RandRead, 4096, 32)];

struct Rig {
    target: Target,
    socket: PathBuf,
    port: String,
    address: SocketAddr,
    seconds: Duration,
}

impl Rig {
    fn new(folder: &Path, drive: &str, seconds: Duration) -> Result<Self, Failed> {
        let socket = folder.join("direct.sock");
        let nqn = Nqn::parse(NQN)?;
        let tcp = Port::new(1, Listen::new([127, 0, 0, 1].into(), 0));
        let direct = Port { busy_poll_us: Some(1000), ..Port::new(2, Listen::vfio_user(&socket)) };
        let mut subsystem = Subsystem::new(nqn.clone());
        subsystem.allow_any_host = true;
        subsystem.ports = vec![tcp.name.clone(), direct.name.clone()];
        subsystem.namespaces.push(Namespace::new(1, drive.parse()?));
        let config = Config { ports: vec![tcp, direct], subsystems: vec![subsystem], ..Config::default() };
        let settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
        let target = Target::start(config, settings)?;
        let (port, address) = target.addresses().into_iter().next().ok_or("no port over TCP")?;
        Ok(Self { target, socket, port, address, seconds })
    }

    /// Operations in a second. With a constant depth the mean latency follows from them.
    fn measure(&self, way: Way, (_, mix, block_bytes, depth): Load) -> Result<f64, Failed> {
        let ramp = self.seconds / 4;
        let nqn = Nqn::parse(NQN)?;
        let options = match way {
            Way::Direct(doorbells) => {
                let write = matches!(mix, Mix::Write | Mix::RandWrite);
                let random = matches!(mix, Mix::RandRead | Mix::RandWrite);
                let runtime = self.seconds;
                let load = DirectLoad { doorbells, write, block_bytes, depth, random, runtime, ramp };
                return Ok(direct::run(&self.socket, &load)?.iops);
            }
            Way::Tcp => Options::new(self.address.ip().to_string(), self.address.port(), nqn),
            Way::InMemory => Options::loopback(self.target.loopback(&self.port).ok_or("no such port")?, nqn),
        };
        let source = Source::Fabric(Box::new(options), Nsid(1));
        let job = Job { block_bytes, depth, runtime: Some(self.seconds), ramp, ..Job::new(mix) };
        let report = run(&source, &job, |_| ControlFlow::Continue(()))?;
        match report.first_error {
            Some(error) => Err(error.into()),
            None => Ok(report.total.iops),
        }
    }

    /// Medians of so many rounds, in each of which every way has its turn.
    fn compare(&self, ways: &[Way], load: Load, rounds: usize) -> Result<Vec<f64>, Failed> {
        let mut all = vec![Vec::new(); ways.len()];
        for _ in 0..rounds {
            for (way, measured) in ways.iter().zip(&mut all) {
                measured.push(self.measure(*way, load)?);
            }
        }
        Ok(all.into_iter().map(median).collect())
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() -> Result<(), Failed> {
    let (mut drive, mut rounds, mut seconds) = ("mem:256Mi".to_owned(), 5, 1.0);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(USAGE)?;
        match word.as_str() {
            "--drive" => drive = value,
            "--rounds" => rounds = value.parse::<usize>()?.clamp(1, 1000),
            "--seconds" => seconds = value.parse::<f64>()?.clamp(0.1, 3600.0),
            _ => return Err(USAGE.into()),
        }
    }
    let folder = tempfile::tempdir()?;
    let rig = Rig::new(folder.path(), &drive, Duration::from_secs_f64(seconds))?;
    // What was never written would not be read from the drive.
    let job = Job { block_bytes: 128 << 10, depth: 16, runtime: None, ..Job::new(Mix::Write) };
    let tcp = Options::new(rig.address.ip().to_string(), rig.address.port(), Nqn::parse(NQN)?);
    run(&Source::Fabric(Box::new(tcp), Nsid(1)), &job, |_| ControlFlow::Continue(()))?;
    let best = Way::Direct(Doorbells::Mapped);

    println!("{drive}, one thread serves it; medians of {rounds} rounds of {seconds} s");
    println!("\ncommands in a second");
    println!(
        "{:<33} {:>12} {:>12} {:>12} {:>12} {:>12} {:>8}",
        "", "in memory", "mapped", "shadow", "registers", "TCP", "of TCP"
    );
    let ways = [Way::InMemory, best, Way::Direct(Doorbells::Shadow), Way::Direct(Doorbells::Registers), Way::Tcp];
    for load in RATES {
        let measured = rig.compare(&ways, load, rounds)?;
        let cells: String = measured.iter().map(|rate| format!(" {rate:>12.0}")).collect();
        println!("{:<33}{cells} {:>8.2}", load.0, measured[1] / measured[4]);
    }

    println!("\ndirect against fabric (the document: 2588.9 of 2853.5 MB/s = 0.907, 380 against 345 us = 1.10)");
    println!(
        "{:<33} {:>12} {:>9} {:>12} {:>9} {:>11} {:>8}",
        "", "direct MB/s", "mean us", "TCP MB/s", "mean us", "throughput", "latency"
    );
    for load in CORNERS {
        let measured = rig.compare(&[best, Way::Tcp], load, rounds)?;
        let (direct, tcp) = (measured[0], measured[1]);
        let mb = |rate: f64| rate * f64::from(load.2) / 1e6;
        let us = |rate: f64| f64::from(load.3) / rate * 1e6;
        println!(
            "{:<33} {:>12.1} {:>9.1} {:>12.1} {:>9.1} {:>11.3} {:>8.2}",
            load.0,
            mb(direct),
            us(direct),
            mb(tcp),
            us(tcp),
            tcp / direct,
            direct / tcp
        );
    }
    Ok(())
}
