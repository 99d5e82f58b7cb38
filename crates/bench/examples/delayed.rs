//! `cargo xtask bench delayed`: what the fabric adds to a device whose own time is known. A null
//! device completes each request a constant time after it came, in bursts as disks do; a loop in
//! this process and a host over TCP use it in turns, at the same depth.
#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ebof_backend::{
    Buffer, Device, Geometry, Io, Null, OpenError, Operation, Remote, Request, Segments, Spec, Submitted,
};
use ebof_bench::{Job, Mix, Source, run};
use ebof_initiator::Options;
use ebof_manage::config::{Namespace, Port, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::{Nqn, Nsid};
use ebof_server::{Environment, Settings, Storage, Target};

type Failed = Box<dyn std::error::Error>;

const NQN: &str = "nqn.2014-08.org.example:delayed";
const CAPACITY_BYTES: u64 = 1 << 30;

const USAGE: &str = "cargo xtask bench delayed [--delay US] [--burst US] [--rounds N] [--seconds S]";

/// A load: name, operations, bytes, depth.
type Load = (&'static str, Mix, u32, u16);

const LOADS: [Load; 6] = [
    ("4K random reads, depth 1", Mix::RandRead, 4096, 1),
    ("4K random reads, depth 32", Mix::RandRead, 4096, 32),
    ("4K random reads, depth 64", Mix::RandRead, 4096, 64),
    ("4K random writes, depth 64", Mix::RandWrite, 4096, 64),
    ("128K sequential reads, depth 64", Mix::Read, 128 << 10, 64),
    ("128K sequential writes, depth 64", Mix::Write, 128 << 10, 64),
];

/// A null device that takes its time.
#[derive(Debug)]
struct Delayed {
    null: Null,
    delay: Duration,
    burst: Duration,
    start: Instant,
    queue: Arc<Queue>,
}

/// What is under way, in the order in which it came and will be completed.
#[derive(Debug, Default)]
struct Queue {
    under_way: Mutex<VecDeque<(Instant, Request, Remote)>>,
    changed: Condvar,
}

impl Delayed {
    /// Requests complete `delay` after they came, at the next multiple of `burst`.
    fn new(delay: Duration, burst: Duration) -> Self {
        let queue = Arc::<Queue>::default();
        let of_thread = Arc::clone(&queue);
        std::thread::spawn(move || complete_all(&of_thread));
        Self { null: Null::new(CAPACITY_BYTES, 512, false), delay, burst, start: Instant::now(), queue }
    }
}

impl Device for Delayed {
    fn geometry(&self) -> Geometry {
        self.null.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        let Some(remote) = io.remote() else { return Submitted::Busy(request) };
        let mut under_way = self.queue.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let (due_us, burst_us) = ((self.start.elapsed() + self.delay).as_micros(), self.burst.as_micros());
        let due_us = u64::try_from(due_us.next_multiple_of(burst_us)).unwrap_or(u64::MAX);
        let due = self.start + Duration::from_micros(due_us);
        under_way.push_back((due, request, remote));
        if under_way.len() == 1 {
            self.queue.changed.notify_one();
        }
        Submitted::Pending
    }

    fn describe(&self) -> String {
        "a device with a delay".to_owned()
    }
}

fn complete_all(queue: &Queue) {
    let null = Null::new(CAPACITY_BYTES, 512, false);
    let mut io = Io::external(1, Box::new(|| false));
    // Otherwise each sleep ends up to 50 us late.
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).expect("one nanosecond is allowed");
    let mut due = Vec::new();
    loop {
        let mut under_way = queue.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while under_way.front().is_some_and(|(due, ..)| *due <= now) {
            due.extend(under_way.pop_front());
        }
        if due.is_empty() {
            let wait = under_way.front().map_or(Duration::from_millis(100), |(due, ..)| *due - now);
            drop(queue.changed.wait_timeout(under_way, wait));
            continue;
        }
        drop(under_way);
        for (_, request, remote) in due.drain(..) {
            if let Submitted::Done(completion) = null.submit(&mut io, request) {
                remote.deliver(completion);
            }
        }
    }
}

/// Makes the device when the target opens its drive.
struct Made(Arc<dyn Device>);

impl Storage for Made {
    fn open(&self, _spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
        Ok(Arc::clone(&self.0))
    }

    fn is_missing(&self, _path: &Path) -> bool {
        true
    }

    fn remove(&self, _path: &Path) {}
}

struct Rig {
    target: Target,
    device: Arc<dyn Device>,
    seconds: Duration,
}

impl Rig {
    fn new(device: Arc<dyn Device>, seconds: Duration) -> Result<Self, Failed> {
        let nqn = Nqn::parse(NQN)?;
        let port = Port::new(1, Listen::new([127, 0, 0, 1].into(), 0));
        let mut subsystem = Subsystem::new(nqn.clone());
        subsystem.allow_any_host = true;
        subsystem.ports = vec![port.name.clone()];
        subsystem.namespaces.push(Namespace::new(1, "made.img".parse()?));
        let config = Config { ports: vec![port], subsystems: vec![subsystem], ..Config::default() };
        let mut settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
        settings.environment = Environment { storage: Arc::new(Made(Arc::clone(&device))), ..Environment::default() };
        Ok(Self { target: Target::start(config, settings)?, device, seconds })
    }

    /// Operations in a second over TCP.
    fn fabric(&self, (_, mix, block_bytes, depth): Load) -> Result<f64, Failed> {
        let (_, address) = self.target.addresses().into_iter().next().ok_or("no port over TCP")?;
        let options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN)?);
        let ramp = self.seconds / 4;
        let job = Job { block_bytes, depth, runtime: Some(self.seconds), ramp, ..Job::new(mix) };
        let report = run(&Source::Fabric(Box::new(options), Nsid(1)), &job, |_| ControlFlow::Continue(()))?;
        report.first_error.map_or(Ok(report.total.iops), |error| Err(error.into()))
    }

    /// Operations in a second of a loop that does nothing else.
    fn local(&self, (_, mix, block_bytes, depth): Load) -> Result<f64, Failed> {
        let len = block_bytes as usize;
        let mut io = Io::new(depth.into())?;
        let mut ready: Vec<Buffer> = (0..depth).map(|_| Buffer::zeroed(len)).collect();
        let (mut count, mut offset, start) = (0_u32, 0_u64, Instant::now());
        while start.elapsed() < self.seconds {
            for buffer in ready.drain(..) {
                let data = Segments::from(buffer);
                let operation = match mix {
                    Mix::Write | Mix::RandWrite => Operation::Write { offset, len, data, fua: false },
                    _ => Operation::Read { offset, len, data },
                };
                offset = (offset + u64::from(block_bytes)) % CAPACITY_BYTES;
                if !matches!(self.device.submit(&mut io, Request::new(0, operation)), Submitted::Pending) {
                    return Err("the device takes as many requests as there are".into());
                }
            }
            let mut next = io.wait(None)?;
            while let Some(completion) = next {
                completion.result?;
                ready.extend(completion.data.and_then(Segments::into_buffer));
                count += 1;
                next = io.poll();
            }
        }
        let rate = f64::from(count) / start.elapsed().as_secs_f64();
        while let Some(completion) = io.wait(None)? {
            completion.result?;
        }
        Ok(rate)
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() -> Result<(), Failed> {
    let (mut delay_us, mut burst_us, mut rounds, mut seconds) = (400_u64, None, 5, 1.0);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(USAGE)?;
        match word.as_str() {
            "--delay" => delay_us = value.parse::<u64>()?.clamp(1, 1_000_000),
            "--burst" => burst_us = Some(value.parse::<u64>()?.clamp(1, 1_000_000)),
            "--rounds" => rounds = value.parse::<usize>()?.clamp(1, 1000),
            "--seconds" => seconds = value.parse::<f64>()?.clamp(0.1, 3600.0),
            _ => return Err(USAGE.into()),
        }
    }
    // Nearly steady, and all that is in flight at once.
    for burst_us in burst_us.map_or(vec![50, delay_us], |burst_us| vec![burst_us]) {
        let device = Delayed::new(Duration::from_micros(delay_us), Duration::from_micros(burst_us));
        let rig = Rig::new(Arc::new(device), Duration::from_secs_f64(seconds))?;
        println!(
            "\na device that takes {delay_us} us, and completes what is due every {burst_us} us; \
             medians of {rounds} rounds of {seconds} s"
        );
        println!("{:<33} {:>10} {:>10} {:>7} {:>9}", "operations in a second", "local", "TCP", "ratio", "added us");
        for load in LOADS {
            let (mut local, mut fabric) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                local.push(rig.local(load)?);
                fabric.push(rig.fabric(load)?);
            }
            let (local, fabric) = (median(local), median(fabric));
            let added_us = f64::from(load.3) * 1e6 * (1.0 / fabric - 1.0 / local);
            println!("{:<33} {local:>10.0} {fabric:>10.0} {:>7.3} {added_us:>9.1}", load.0, fabric / local);
        }
    }
    Ok(())
}
