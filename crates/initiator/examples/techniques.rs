//! Measures what the host's techniques buy, against a running target: readers beside a writer of
//! large blocks, over shared and separate queues; requests that are held and sent in caravans; a
//! queue of another processor; several connections of one thread.
//!
//! `cargo run --release -p ebof-initiator --example techniques -- mixed URI [key=value ...]`,
//! likewise `caravan`, `affinity` and `connections`. The keys and their defaults are where
//! `Settings::get` is called; with `json=1`, `mixed` and `connections` print JSON.
//! docs/performance-host.md says what was measured.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::panic, reason = "a tool for people, run by hand")]

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ebof_initiator::queues::SharedNamespace;
use ebof_initiator::{Controller, Data, Options, QueueClass, QueuePair, Queues};
use ebof_nvme::Nsid;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::uri::Uri;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_setaffinity};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), AnyError> {
    let mut words = std::env::args().skip(1);
    let (Some(what), Some(uri)) = (words.next(), words.next()) else {
        return Err("want: mixed|caravan|affinity|connections URI [key=value ...]".into());
    };
    let settings = Settings::new(&uri, words)?;
    match what.as_str() {
        "mixed" => mixed(&settings),
        "caravan" => caravan(&settings),
        "affinity" => affinity(&settings),
        "connections" => connections(&settings),
        _ => Err(format!("{what} is not a measurement").into()),
    }
}

/// `key=value` with numbers.
struct Settings {
    uri: Uri,
    numbers: HashMap<String, u64>,
}

impl Settings {
    fn new(uri: &str, words: impl Iterator<Item = String>) -> Result<Self, AnyError> {
        let pair = |word: String| {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("{word} is not key=value"))?;
            Ok::<_, AnyError>((key.to_owned(), value.parse()?))
        };
        Ok(Self { uri: Uri::parse(uri)?, numbers: words.map(pair).collect::<Result<_, _>>()? })
    }

    fn get(&self, key: &str, default: u64) -> u64 {
        self.numbers.get(key).copied().unwrap_or(default)
    }

    fn small(&self, key: &str, default: u16) -> u16 {
        u16::try_from(self.get(key, u64::from(default))).unwrap_or(default)
    }

    fn seconds(&self) -> Duration {
        Duration::from_millis(self.get("ms", 2000))
    }

    fn connect(&self, change: impl FnOnce(&mut Options)) -> Result<Controller, AnyError> {
        let mut options = Options::from_uri(&self.uri);
        options.queue_size = self.small("entries", 128);
        options.spin_us = u32::from(self.small("spin", 50));
        options.batch_timeout_us = u32::from(self.small("batch_timeout", 0));
        // 0 is no limit.
        let bulk_bytes = self.get("bulk", options.bulk_bytes.map_or(0, u64::from));
        options.bulk_bytes = u32::try_from(bulk_bytes).ok().filter(|&bytes| bytes > 0);
        options.batch_nr = self.small("batch_nr", options.batch_nr);
        change(&mut options);
        Ok(Controller::connect(&options)?)
    }
}

/// What latencies look like.
#[derive(Default)]
struct Latencies(Vec<u32>);

impl Latencies {
    fn note(&mut self, since: Instant) {
        self.0.push(u32::try_from(since.elapsed().as_nanos()).unwrap_or(u32::MAX));
    }

    /// IOPS, and mean, median, p99 and p99.99 in microseconds.
    fn figures(mut self, time: Duration) -> Figures {
        self.0.sort_unstable();
        let count = self.0.len().max(1);
        let at = |per_10_000: usize| {
            let index = (count * per_10_000 / 10_000).min(count - 1);
            f64::from(self.0.get(index).copied().unwrap_or(0)) / 1000.0
        };
        let sum: u64 = self.0.iter().map(|&ns| u64::from(ns)).sum();
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let (sum, operations, all) = (sum as f64, count as f64, self.0.len() as f64);
        Figures {
            iops: all / time.as_secs_f64(),
            mean: sum / operations / 1000.0,
            p50: at(5000),
            p99: at(9900),
            p9999: at(9999),
        }
    }
}

/// A summary of latencies, in microseconds.
struct Figures {
    iops: f64,
    mean: f64,
    p50: f64,
    p99: f64,
    p9999: f64,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { iops, mean, p50, p99, p9999 } = self;
        write!(f, "{iops:9.0} IOPS  mean {mean:8.1}  p50 {p50:8.1}  p99 {p99:8.1}  p99.99 {p9999:8.1} us")
    }
}

impl Figures {
    /// With the writes beside.
    fn json(&self, write_mb_per_s: f64) -> String {
        let Self { iops, mean, p50, p99, p9999 } = self;
        format!(
            "{{\"iops\":{iops:.0},\"mean_us\":{mean:.1},\"p50_us\":{p50:.1},\"p99_us\":{p99:.1},\
             \"p9999_us\":{p9999:.1},\"write_mb_per_s\":{write_mb_per_s:.0}}}"
        )
    }
}

/// A cheap source of numbers.
fn next(random: &mut u64, below: u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random % below
}

/// Writes `large` bytes at a time to the namespace behind byte `from`, `depth` at once, until
/// `stop`. Returns how many writes completed.
fn write_at_depth(
    namespace: &SharedNamespace,
    stop: &AtomicBool,
    depth: u64,
    large: u64,
    from: u64,
) -> Result<u64, AnyError> {
    let block = u64::from(namespace.namespace().block_bytes());
    let mut outstanding = VecDeque::new();
    let mut random = 4711u64;
    let mut buffers: Vec<Vec<u8>> = (0..depth).map(|_| vec![0x5a; usize::try_from(large).unwrap_or(0)]).collect();
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        while let Some(buffer) = buffers.pop() {
            let lba = (from + next(&mut random, from / large) * large) / block;
            outstanding.push_back(namespace.write_async(lba, buffer, false));
        }
        if let Some(oldest) = outstanding.pop_front() {
            buffers.push(pollster::block_on(oldest)?);
            written += 1;
        }
    }
    Ok(written)
}

/// Readers of 4 KiB, one at a time each, and a writer of large blocks at depth.
fn mixed(settings: &Settings) -> Result<(), AnyError> {
    let controller = settings.connect(|options| {
        options.nr_io_queues = settings.small("io", 2);
        options.nr_write_queues = settings.small("write", 0);
        options.nr_poll_queues = settings.small("poll", 0);
    })?;
    let queues: Queues = Queues::new(&controller)?;
    let namespace = queues.namespace(Nsid(1))?;
    let block = u64::from(namespace.namespace().block_bytes());
    let small = settings.get("bytes", 4096);
    let large = settings.get("large", 1 << 20);
    let depth = settings.get("depth", 32);
    let readers = settings.get("readers", 16);
    let half = namespace.namespace().blocks() / 2 * block;
    let stop = AtomicBool::new(false);
    let mut all = Latencies::default();
    let mut written = 0u64;
    // Buffers are touched for the first time, and queues fill, before it counts.
    let measure_from = Instant::now() + Duration::from_millis(settings.get("ramp", 100));
    let started = Instant::now();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..readers)
            .map(|reader| {
                let namespace = if settings.get("poll", 0) > 0 { namespace.polled() } else { namespace.clone() };
                let stop = &stop;
                scope.spawn(move || {
                    let mut latencies = Latencies::default();
                    let mut random = 0x9e37_79b9_7f4a_7c15 ^ (reader + 1);
                    let mut buffer = vec![0; usize::try_from(small)?];
                    while !stop.load(Ordering::Relaxed) {
                        let lba = next(&mut random, half / small) * (small / block);
                        let since = Instant::now();
                        buffer = namespace.read(lba, buffer)?;
                        if since >= measure_from {
                            latencies.note(since);
                        }
                    }
                    Ok::<_, AnyError>(latencies)
                })
            })
            .collect();
        let writer = (depth > 0).then(|| scope.spawn(|| write_at_depth(&namespace, &stop, depth, large, half)));
        std::thread::sleep(settings.seconds());
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            all.0.extend(reader.join().map_err(|_| "a reader panicked")??.0);
        }
        if let Some(writer) = writer {
            written = writer.join().map_err(|_| "the writer panicked")??;
        }
        Ok::<(), AnyError>(())
    })?;
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let rate = (written * large) as f64 / started.elapsed().as_secs_f64() / 1e6;
    let figures = all.figures(measure_from.elapsed());
    if settings.get("json", 0) > 0 {
        println!("{}", figures.json(rate));
    } else {
        println!("{:32} {figures}  writes {rate:6.0} MB/s", queues.maps().to_string());
    }
    Ok(())
}

/// Reads of 4 KiB from one thread, each flushed as it is submitted: at a rate (`rate`, per second),
/// or at a depth.
fn caravan(settings: &Settings) -> Result<(), AnyError> {
    let controller = settings.connect(|options| options.nr_io_queues = 1)?;
    let mut queue: QueuePair = controller.queue_pair()?;
    let rate = settings.get("rate", 0);
    let depth = settings.get("depth", 100);
    let every = Duration::from_nanos(1_000_000_000u64.checked_div(rate).unwrap_or(0));
    let mut random = 99u64;
    let mut latencies = Latencies::default();
    let mut due = vec![Instant::now(); usize::try_from(depth)?];
    let mut free: Vec<(u64, Vec<u8>)> = (0..depth).map(|slot| (slot, vec![0; 4096])).collect();
    let started = Instant::now();
    let mut next_due = started;
    loop {
        let mut now = Instant::now();
        let go_on = now.duration_since(started) < settings.seconds();
        if !go_on && queue.in_flight() == 0 {
            break;
        }
        while go_on
            && next_due <= now
            && let Some((slot, buffer)) = free.pop()
        {
            // What is late counts from when it was due.
            due[usize::try_from(slot)?] = if rate > 0 { next_due } else { now };
            next_due += every;
            let range = BlockRange::new(next(&mut random, 10_000) * 8, 8);
            queue.submit(range.encode(nvm::READ, Nsid(1)), Data::ToHost(buffer), slot)?;
            queue.flush()?;
            now = Instant::now();
        }
        let mut done = if rate > 0 { queue.poll()? } else { queue.wait(None)? };
        while let Some(one) = done {
            one.result?;
            latencies.note(due[usize::try_from(one.user)?]);
            free.push((one.user, one.data.into_buffer().unwrap_or_default()));
            done = queue.next_ready();
        }
    }
    println!("rate {rate:8} depth {depth:4}  {}", latencies.figures(started.elapsed()));
    Ok(())
}

/// A queue made and used on one processor, against one made elsewhere, at depth 1 and at depth.
fn affinity(settings: &Settings) -> Result<(), AnyError> {
    let here = settings.get("here", 1);
    let there = settings.get("there", 0);
    for (name, made_on) in [("same core", here), ("foreign core", there)] {
        for depth in [1, settings.get("depth", 32)] {
            let controller = settings.connect(|options| options.nr_io_queues = 1)?;
            pin(made_on)?;
            let mut queue: QueuePair = controller.queue_pair_of(QueueClass::Default)?;
            pin(here)?;
            let mut random = 99u64;
            let mut latencies = Latencies::default();
            let mut since = vec![Instant::now(); usize::try_from(depth)?];
            let started = Instant::now();
            let mut free: Vec<(u64, Vec<u8>)> = (0..depth).map(|slot| (slot, vec![0; 4096])).collect();
            while started.elapsed() < settings.seconds() || queue.in_flight() > 0 {
                let go_on = started.elapsed() < settings.seconds();
                while go_on && let Some((slot, buffer)) = free.pop() {
                    since[usize::try_from(slot)?] = Instant::now();
                    let range = BlockRange::new(next(&mut random, 10_000) * 8, 8);
                    queue.submit(range.encode(nvm::READ, Nsid(1)), Data::ToHost(buffer), slot)?;
                }
                let mut done = queue.wait(None)?;
                while let Some(one) = done {
                    one.result?;
                    latencies.note(since[usize::try_from(one.user)?]);
                    free.push((one.user, one.data.into_buffer().unwrap_or_default()));
                    done = queue.next_ready();
                }
            }
            println!("{name:14} QD{depth:<4} {}", latencies.figures(started.elapsed()));
        }
    }
    Ok(())
}

/// A connection, the commands that are not outstanding on it, and its addresses.
struct Lane {
    queue: QueuePair,
    free: Vec<Vec<u8>>,
    random: u64,
}

impl Lane {
    /// Takes what is complete, and submits as much again. Returns how many commands completed.
    fn turn(&mut self, write: bool, blocks: u64, per_command: u32) -> Result<u64, AnyError> {
        while let Some(buffer) = self.free.pop() {
            let start = next(&mut self.random, blocks / u64::from(per_command)) * u64::from(per_command);
            let range = BlockRange::new(start, per_command);
            let (opcode, data) = match write {
                true => (nvm::WRITE, Data::FromHost(buffer)),
                false => (nvm::READ, Data::ToHost(buffer)),
            };
            self.queue.submit(range.encode(opcode, Nsid(1)), data, 0)?;
        }
        let mut completed = 0;
        let mut done = self.queue.poll()?;
        while let Some(one) = done {
            one.result?;
            self.free.push(one.data.into_buffer().unwrap_or_default());
            completed += 1;
            done = self.queue.next_ready();
        }
        Ok(completed)
    }
}

/// Until one of them has something. A deadline of a command is found within the time-out.
fn sleep(lanes: &[Lane]) -> Result<(), AnyError> {
    let mut ready: Vec<PollFd<'_>> = lanes.iter().map(|lane| PollFd::new(&lane.queue, PollFlags::IN)).collect();
    poll(&mut ready, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }))?;
    Ok(())
}

/// Random reads or writes over `n` connections, each with `depth` outstanding, by one thread that
/// polls one after the other.
fn connections(settings: &Settings) -> Result<(), AnyError> {
    let count = settings.small("n", 1);
    let controller = settings.connect(|options| options.nr_io_queues = count)?;
    let namespace = controller.namespace(Nsid(1))?;
    let bytes = settings.get("bytes", 4096);
    let per_command = u32::try_from(bytes / u64::from(namespace.block_bytes()))?;
    let buffers = || (0..settings.get("depth", 32)).map(|_| vec![0x5a; usize::try_from(bytes).unwrap_or(0)]).collect();
    let mut lanes = (0..count)
        .map(|lane| Ok(Lane { queue: controller.queue_pair()?, free: buffers(), random: 99 + u64::from(lane) }))
        .collect::<Result<Vec<Lane>, AnyError>>()?;
    let measure_from = Instant::now() + Duration::from_millis(settings.get("ramp", 100));
    let until = measure_from + settings.seconds();
    let spin = Duration::from_micros(settings.get("spin", 50));
    let mut completed = 0;
    let mut now = Instant::now();
    let mut found_at = now;
    while now < until {
        let mut found = 0;
        for lane in &mut lanes {
            found += lane.turn(settings.get("write", 0) > 0, namespace.blocks(), per_command)?;
        }
        now = Instant::now();
        if now >= measure_from {
            completed += found;
        }
        if found > 0 {
            found_at = now;
        } else if now - found_at < spin {
            std::thread::yield_now();
        } else {
            sleep(&lanes)?;
            found_at = Instant::now();
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let iops = completed as f64 / (now - measure_from).as_secs_f64();
    match settings.get("json", 0) {
        0 => println!("{count} connections {iops:9.0} IOPS"),
        _ => println!("{{\"iops\":{iops:.0}}}"),
    }
    Ok(())
}

fn pin(processor: u64) -> Result<(), AnyError> {
    let mut set = CpuSet::new();
    set.set(usize::try_from(processor)?);
    Ok(sched_setaffinity(None, &set)?)
}
