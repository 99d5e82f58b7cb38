//! `cargo xtask bench secure`: what authentication and TLS cost: commands in a second beside those
//! without, new connections in a second of each kind, and what a host notices while many others
//! come back. Target and hosts are in one process, over loopback.
#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ebof_authentication::{ConfiguredPsk, Hash, KeyMaterial, Secret};
use ebof_bench::{Job, Mix, Source, run};
use ebof_initiator::{Controller, KeySource, Options, PskSource, Tls};
use ebof_manage::api::Target as _;
use ebof_manage::config::{Host, KeyPlace, Namespace, Port, PortTls, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::{HostId, Nqn, Nsid};
use ebof_server::{Settings, Target};

type Failed = Box<dyn std::error::Error>;

const NQN: &str = "nqn.2014-08.org.example:secure";
const USAGE: &str = "cargo xtask bench secure [--rounds N] [--seconds S] [--hosts N] [--only ratios|connects|storm]";
/// Connections that are made at a time.
const AT_A_TIME: usize = 64;

/// How a host proves who it is, and what its data go through.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Plain,
    Authenticated,
    Tls,
    Both,
    Concatenated,
}

const WAYS: [(Way, &str); 5] = [
    (Way::Plain, "neither"),
    (Way::Authenticated, "authentication"),
    (Way::Tls, "TLS"),
    (Way::Both, "authentication and TLS"),
    (Way::Concatenated, "secure channel concatenation"),
];

/// A load: name, operations, bytes, depth.
type Load = (&'static str, Mix, u32, u16);

const LOADS: [Load; 6] = [
    ("4K random reads, depth 1", Mix::RandRead, 4096, 1),
    ("4K random reads, depth 32", Mix::RandRead, 4096, 32),
    ("4K random reads, depth 128", Mix::RandRead, 4096, 128),
    ("4K random writes, depth 32", Mix::RandWrite, 4096, 32),
    ("128K sequential reads, depth 8", Mix::Read, 128 << 10, 8),
    ("128K sequential writes, depth 8", Mix::Write, 128 << 10, 8),
];

struct Rig {
    target: Target,
    address: SocketAddr,
    secret: Secret,
    psk: ConfiguredPsk,
}

fn host(number: usize) -> Result<Nqn, Failed> {
    Ok(Nqn::parse(&format!("nqn.2014-08.org.example:host{number}"))?)
}

impl Rig {
    /// With so many hosts of each kind: the first has nothing to prove, the next has a secret, the
    /// next a key for TLS, and then both.
    fn new(folder: &Path, hosts: usize) -> Result<Self, Failed> {
        let secret = Secret::new(KeyMaterial::new(vec![1; 32]), Some(Hash::Sha256))?;
        let psk = ConfiguredPsk::new(KeyMaterial::new(vec![2; 32]), Some(Hash::Sha256))?;
        let put = |name: &str, text: &str| -> Result<KeyPlace, Failed> {
            let path = folder.join(name);
            fs::write(&path, text)?;
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            Ok(KeyPlace::File(path.to_str().ok_or("a path that is no text")?.to_owned()))
        };
        let (dhchap, tls) = (put("secret", &secret.to_text())?, put("psk", &psk.to_text())?);
        let all = (0..hosts * 4).map(|number| {
            let mut host = Host::new(host(number)?);
            host.dhchap_key = matches!(number % 4, 1 | 3).then(|| dhchap.clone());
            host.tls_psk = (number % 4 >= 2).then(|| tls.clone());
            Ok(host)
        });
        let port = Port { tls: PortTls::Allowed, ..Port::new(1, Listen::new([127, 0, 0, 1].into(), 0)) };
        let mut subsystem = Subsystem::new(Nqn::parse(NQN)?);
        subsystem.allow_any_host = true;
        subsystem.ports = vec![port.name.clone()];
        subsystem.namespaces.push(Namespace::new(1, "mem:256Mi".parse()?));
        let hosts = all.collect::<Result<_, Failed>>()?;
        let mut config = Config { ports: vec![port], subsystems: vec![subsystem], hosts, ..Config::default() };
        config.target.max_connections = 8192;
        // They are one address here.
        config.target.address_share = 100;
        let settings = Settings { threads: Some(1), pin: false, ..Settings::of(&config) };
        let target = Target::start(config, settings)?;
        let address = target.addresses().into_iter().next().ok_or("no port")?.1;
        Ok(Self { target, address, secret, psk })
    }

    fn options(&self, way: Way, number: usize) -> Result<Options, Failed> {
        let mut options = Options::new(self.address.ip().to_string(), self.address.port(), Nqn::parse(NQN)?);
        let kind = match way {
            Way::Plain => 0,
            Way::Authenticated | Way::Concatenated => 1,
            Way::Tls => 2,
            Way::Both => 3,
        };
        let number = number * 4 + kind;
        options.host_nqn = host(number)?;
        let mut id = [7; 16];
        id[..8].copy_from_slice(&u64::try_from(number)?.to_le_bytes());
        options.host_id = HostId(id);
        options.nr_io_queues = 1;
        if matches!(way, Way::Authenticated | Way::Both | Way::Concatenated) {
            options.dhchap_key = Some(KeySource::Secret(self.secret.clone()));
        }
        if matches!(way, Way::Tls | Way::Both) {
            options.tls = Some(Tls::new(PskSource::Psk(self.psk.clone())));
        }
        options.concat = way == Way::Concatenated;
        options.reconnect_delay_ms = 100;
        Ok(options)
    }

    fn measure(&self, way: Way, load: Load, seconds: Duration) -> Result<(f64, f64), Failed> {
        self.measure_until(way, load, seconds, || false)
    }

    /// Commands in a second, and the 99th percentile of their latencies in microseconds.
    fn measure_until(
        &self,
        way: Way,
        (_, mix, block_bytes, depth): Load,
        seconds: Duration,
        is_over: impl Fn() -> bool,
    ) -> Result<(f64, f64), Failed> {
        let source = Source::Fabric(Box::new(self.options(way, 0)?), Nsid(1));
        let ramp = (seconds / 4).min(Duration::from_millis(250));
        let job = Job { block_bytes, depth, runtime: Some(seconds), ramp, ..Job::new(mix) };
        let go_on = || if is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let report = run(&source, &job, |_| go_on())?;
        match report.first_error {
            Some(error) => Err(error.into()),
            None => Ok((report.total.iops, report.total.latency.percentile_us(99.0).unwrap_or_default())),
        }
    }

    /// Connects so many hosts with an I/O queue each; how long that takes.
    fn connect(&self, way: Way, hosts: usize) -> Result<(Vec<Controller>, Duration), Failed> {
        let options: Vec<Options> = (0..hosts).map(|number| self.options(way, number + 1)).collect::<Result<_, _>>()?;
        let controllers = Mutex::new(Vec::new());
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..AT_A_TIME {
                scope.spawn(|| {
                    while let Some(options) = options.get(next.fetch_add(1, Ordering::Relaxed)) {
                        match Controller::connect(options).map_err(|error| error.to_string()).and_then(|controller| {
                            let queue = controller.queue_pair::<Vec<u8>>().map_err(|error| error.to_string());
                            queue.map(|_connected| controller)
                        }) {
                            Ok(controller) => lock(&controllers).push(controller),
                            Err(error) => *lock(&failed) = Some(error),
                        }
                    }
                });
            }
        });
        let time = begin.elapsed();
        match failed.into_inner().unwrap_or_default() {
            Some(error) => Err(error.into()),
            None => Ok((controllers.into_inner().unwrap_or_default(), time)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Commands in a second with TLS beside those without, in turns.
fn ratios(rig: &Rig, rounds: usize, seconds: Duration) -> Result<(), Failed> {
    println!("commands in a second, medians of {rounds} rounds of {seconds:?}");
    println!("{:<33} {:>12} {:>12} {:>8} {:>12} {:>12}", "", "plain", "TLS", "ratio", "plain MB/s", "TLS MB/s");
    for load in LOADS {
        let mut measured = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (way, rates) in [Way::Plain, Way::Tls].into_iter().zip(&mut measured) {
                rates.push(rig.measure(way, load, seconds)?.0);
            }
        }
        let [plain, tls] = measured.map(median);
        let mb = |rate: f64| rate * f64::from(load.2) / 1e6;
        println!("{:<33} {plain:>12.0} {tls:>12.0} {:>8.2} {:>12.0} {:>12.0}", load.0, tls / plain, mb(plain), mb(tls));
    }
    Ok(())
}

/// New hosts in a second, each with an Admin Queue and an I/O queue.
fn connects(rig: &Rig, hosts: usize) -> Result<(), Failed> {
    println!("\n{hosts} hosts, {AT_A_TIME} at a time, each with an Admin Queue and an I/O queue");
    println!("{:<33} {:>10} {:>12}", "", "seconds", "a second");
    for (way, name) in WAYS {
        let (controllers, time) = rig.connect(way, hosts)?;
        println!("{name:<33} {:>10.2} {:>12.0}", time.as_secs_f64(), hosts as f64 / time.as_secs_f64());
        drop(controllers);
        let end = Instant::now() + Duration::from_secs(30);
        while !rig.target.status().controllers.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

/// All hosts lose their connections at once and come back, while one goes on.
fn storm(rig: &Rig, hosts: usize, seconds: Duration) -> Result<(), Failed> {
    const LIVE: Load = ("4K random reads, depth 1", Mix::RandRead, 4096, 1);
    println!("\n{hosts} hosts come back at once, one reads meanwhile ({})", LIVE.0);
    println!("{:<33} {:>10} {:>12} {:>12} {:>8}", "", "seconds", "p99 us", "meanwhile", "ratio");
    for (way, name) in WAYS {
        let (controllers, _) = rig.connect(way, hosts)?;
        let (_, rest) = rig.measure(way, LIVE, seconds)?;
        let is_over = AtomicBool::new(false);
        let (time, meanwhile) = std::thread::scope(|scope| -> Result<_, Failed> {
            let live = scope.spawn(|| {
                let is_over = || is_over.load(Ordering::Relaxed);
                let measured = rig.measure_until(way, LIVE, Duration::from_secs(300), is_over);
                measured.map(|(_, p99)| p99).map_err(|error| error.to_string())
            });
            // It is past its ramp.
            std::thread::sleep(Duration::from_millis(500));
            let begin = Instant::now();
            controllers.iter().for_each(Controller::reset);
            let end = begin + Duration::from_secs(120);
            let are_back = controllers.iter().all(|controller| controller.wait_live(Some(end)));
            let time = begin.elapsed();
            is_over.store(true, Ordering::Relaxed);
            let p99 = live.join().map_err(|_| "the live host panicked")??;
            if are_back { Ok((time, p99)) } else { Err("not all hosts are back after 120 s".into()) }
        })?;
        println!("{name:<33} {:>10.2} {rest:>12.1} {meanwhile:>12.1} {:>8.2}", time.as_secs_f64(), meanwhile / rest);
        drop(controllers);
    }
    Ok(())
}

fn main() -> Result<(), Failed> {
    let (mut rounds, mut seconds, mut hosts, mut only) = (5, 1.0, 1000, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(USAGE)?;
        match word.as_str() {
            "--rounds" => rounds = value.parse::<usize>()?.clamp(1, 1000),
            "--seconds" => seconds = value.parse::<f64>()?.clamp(0.1, 3600.0),
            "--hosts" => hosts = value.parse::<usize>()?.clamp(1, 4000),
            "--only" => only = Some(value),
            _ => return Err(USAGE.into()),
        }
    }
    // Each host has two connections, and a thread of its own.
    let (soft, hard) = (rustix::process::getrlimit(rustix::process::Resource::Nofile), 1 << 16);
    let wanted = rustix::process::Rlimit { current: soft.maximum.or(Some(hard)), maximum: soft.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, wanted)?;
    let folder = tempfile::tempdir()?;
    let rig = Rig::new(folder.path(), hosts + 1)?;
    let seconds = Duration::from_secs_f64(seconds);
    // What was never written would not be read from the drive.
    let job = Job { block_bytes: 128 << 10, depth: 16, runtime: None, ..Job::new(Mix::Write) };
    run(&Source::Fabric(Box::new(rig.options(Way::Plain, 0)?), Nsid(1)), &job, |_| ControlFlow::Continue(()))?;
    let is_wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let measured = || {
        if is_wanted("ratios") {
            ratios(&rig, rounds, seconds)?;
        }
        if is_wanted("connects") {
            connects(&rig, hosts)?;
        }
        if is_wanted("storm") {
            storm(&rig, hosts, seconds)?;
        }
        Ok(())
    };
    // What the target refused tells why.
    measured().map_err(|error: Failed| {
        let refused = rig.target.refused();
        let reasons: Vec<_> = refused.iter().map(|it| format!("\n  {:?}: {}", it.reason, it.detail)).collect();
        format!("{error}; refused by the target: {}{}", refused.len(), reasons.concat()).into()
    })
}
