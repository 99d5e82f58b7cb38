//! What a thin namespace costs:
//! `cargo run --release -p ebof-medium --example thin_speed [DIRECTORY]`.
//!
//! 4 KiB at random offsets, 32 in flight, on a file in `DIRECTORY` (default: the directory for
//! temporary files) and on an allocated namespace of a drive in a file beside it, in turns,
//! buffered and direct; then one whose blocks have checksums, and one whose blocks are encrypted,
//! against one without, one and 32 in flight; then first writes. With `flushes` as a second
//! argument, only what a flush costs behind each write; with `checksums`, only what checksums cost,
//! also to whoever flushes now and then; with `marks`, each sort of load once on a namespace with
//! checksums, one line each for a comparison of two builds in turns, with `,direct` as a third
//! argument past the page cache.
#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use ebof_backend::{Buffer, Device, Io, Operation, Request, Segments, Spec, Submitted, open};
use ebof_medium::{BlockFormat, Medium, Options, VolumeId, medium_bytes};

type Failure = Box<dyn std::error::Error>;

const BLOCK: usize = 4096;
const SIZE: u64 = 256 << 20;
const DEPTH: usize = 32;
const TIME: Duration = Duration::from_millis(500);
const ROUNDS: usize = 9;
/// Writes between two flushes.
const FLUSH_EVERY: u32 = 1000;
/// Of each sort; fewer than there are extents in the namespace for first writes.
const FLUSHES: u64 = 1000;

fn main() -> Result<(), Failure> {
    let directory = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, Into::into);
    let place = directory.join(format!("ebof-medium-speed-{}", std::process::id()));
    std::fs::create_dir(&place)?;
    let measured = match std::env::args().nth(2).as_deref() {
        Some("flushes") => measure_flushes(&place),
        Some("checksums") => ["", ",direct"].iter().try_for_each(|option| compare_checksums(&place, option)),
        Some("marks") => measure_marks(&place, &std::env::args().nth(3).unwrap_or_default()),
        _ => measure_all(&place),
    };
    std::fs::remove_dir_all(&place)?;
    measured
}

fn measure_all(place: &Path) -> Result<(), Failure> {
    for option in ["", ",direct"] {
        let raw = open(&format!("{}/raw.img,size={SIZE}{option}", place.display()).parse::<Spec>()?)?;
        let drive = drive(place, "drive.img", SIZE, option)?;
        let thin = namespace(&drive, 1, SIZE, BlockFormat::plain(12))?;
        fill(&*raw)?;
        let begin = Instant::now();
        fill(&*thin)?;
        println!("first writes of 1 MiB{option}: {:.0} MB/s", 268.4 / begin.elapsed().as_secs_f64());
        for write in [true, false] {
            compare(["file", "namespace"], &*raw, &*thin, Load::random(DEPTH, write), option)?;
        }
        drive.stop();
        drop((raw, thin, drive));
        for name in ["raw.img", "drive.img"] {
            std::fs::remove_file(place.join(name))?;
        }
    }
    for option in ["", ",direct"] {
        compare_codings(place, option)?;
    }
    let drive = drive(place, "first.img", SIZE * 8, "")?;
    let thin = namespace(&drive, 1, SIZE * 8, BlockFormat::plain(12))?;
    let begin = Instant::now();
    first_writes(&*thin, SIZE * 8)?;
    let extents = drive.capacity().used_bytes / drive.capacity().extent_bytes;
    println!(
        "{extents} extents, first written at random, 32 in flight: {:.1} us each",
        1e6 * begin.elapsed().as_secs_f64() / extents as f64
    );
    Ok(())
}

/// 4 KiB written and flushed, one by one: in a file, in blocks of a namespace that have a place, in
/// blocks that get one (which the journal says), and in blocks with a checksum (which the journal
/// says each time).
fn measure_flushes(place: &Path) -> Result<(), Failure> {
    let raw = open(&format!("{}/raw.img,size={SIZE}", place.display()).parse::<Spec>()?)?;
    let drive = drive(place, "drive.img", SIZE * 8, "")?;
    let thin = namespace(&drive, 1, SIZE, BlockFormat::plain(12))?;
    let empty = namespace(&drive, 2, SIZE * 4, BlockFormat::plain(12))?;
    let checked = namespace(&drive, 3, SIZE, BlockFormat { checked: true, ..BlockFormat::plain(12) })?;
    for device in [&*raw, &*thin, &*checked] {
        fill(device)?;
    }
    let (mut io, mut times, mut extent) = (Io::new(1)?, [const { Vec::new() }; 4], 0_u64);
    for round in 0..FLUSHES {
        for (which, device) in [&*raw, &*thin, &*empty, &*checked].into_iter().enumerate() {
            let blocks = device.geometry().capacity_bytes / BLOCK as u64;
            let offset = if which == 2 { extent << 18 } else { round * 7919 % blocks * BLOCK as u64 };
            let begin = Instant::now();
            let buffer = Buffer::zeroed(BLOCK);
            run(device, &mut io, Operation::Write { offset, len: BLOCK, data: buffer.into(), fua: false })?;
            run(device, &mut io, Operation::Flush)?;
            times[which].push(begin.elapsed().as_secs_f64());
        }
        extent += 1;
    }
    let [raw, thin, empty, checked] = times.each_mut().map(|times| median(times));
    println!("4K write and flush: file {:.0} us; of that, namespace {:.2}", raw * 1e6, thin / raw);
    println!("  first writes {:.2}, with checksums {:.2}", empty / raw, checked / raw);
    drive.stop();
    Ok(())
}

fn run(device: &dyn Device, io: &mut Io, operation: Operation) -> Result<(), Failure> {
    match device.submit(io, Request::new(0, operation)) {
        Submitted::Done(completion) => Ok(completion.result?),
        Submitted::Pending => Ok(io.wait(None)?.ok_or("no completion")?.result?),
        Submitted::Busy(_) => Err("nothing else is in flight".into()),
    }
}

/// What checksums cost, and what encryption does.
fn compare_codings(place: &Path, option: &str) -> Result<(), Failure> {
    let drive = drive(place, "coded.img", SIZE * 4, option)?;
    let plain = namespace(&drive, 1, SIZE, BlockFormat::plain(12))?;
    fill(&*plain)?;
    let checked = BlockFormat { checked: true, ..BlockFormat::plain(12) };
    let encrypted = BlockFormat { encrypted: true, ..BlockFormat::plain(12) };
    for (volume, name, block_format) in [(2, "checked", checked), (3, "encrypted", encrypted)] {
        let coded = namespace(&drive, volume, SIZE, block_format)?;
        let begin = Instant::now();
        fill(&*coded)?;
        println!("first writes of 1 MiB, {name}{option}: {:.0} MB/s", 268.4 / begin.elapsed().as_secs_f64());
        for (depth, write) in [(1, true), (32, true), (1, false), (32, false)] {
            compare(["plain", name], &*plain, &*coded, Load::random(depth, write), option)?;
        }
    }
    drop(plain);
    drive.stop();
    Ok(std::fs::remove_file(place.join("coded.img"))?)
}

/// What checksums cost.
fn compare_checksums(place: &Path, option: &str) -> Result<(), Failure> {
    let drive = drive(place, "checked.img", SIZE * 4, option)?;
    let plain = namespace(&drive, 1, SIZE, BlockFormat::plain(12))?;
    let checked = namespace(&drive, 2, SIZE, BlockFormat { checked: true, ..BlockFormat::plain(12) })?;
    fill(&*plain)?;
    fill(&*checked)?;
    let random = [(1, true), (32, true), (1, false), (32, false)].map(|(depth, write)| Load::random(depth, write));
    let flushed = [(1, false), (32, false), (1, true), (32, true)].map(|(depth, is_sequential)| Load {
        is_sequential,
        flush_every: FLUSH_EVERY,
        ..Load::random(depth, true)
    });
    for load in random.into_iter().chain(flushed) {
        compare(["plain", "checked"], &*plain, &*checked, load, option)?;
    }
    drop((plain, checked));
    drive.stop();
    Ok(std::fs::remove_file(place.join("checked.img"))?)
}

/// What a namespace with checksums does, load by load: name, requests per second.
fn measure_marks(place: &Path, option: &str) -> Result<(), Failure> {
    let drive = drive(place, "marks.img", SIZE * 4, option)?;
    let checked = namespace(&drive, 1, SIZE, BlockFormat { checked: true, ..BlockFormat::plain(12) })?;
    fill(&*checked)?;
    let mut io = Io::new(32)?;
    let sort = |kib: usize, depth| Load { len: kib << 10, ..Load::random(depth, true) };
    for (size, load) in [("4k", sort(4, 1)), ("4k", sort(4, 32)), ("128k", sort(128, 8))] {
        let flush = |flush_every| Load { flush_every, ..load };
        let loads = [
            ("write", load),
            ("write-flush32", flush(32)),
            ("write-flush1000", flush(1000)),
            ("write-fua", Load { fua: true, ..load }),
            ("serial-flush1000", Load { is_sequential: true, ..flush(1000) }),
            ("read", Load { write: false, ..load }),
        ];
        for (name, load) in loads {
            // Each begins with nothing in flux.
            run(&*checked, &mut io, Operation::Flush)?;
            let rate = measure(&*checked, &mut io, load, TIME / 2)?;
            println!("{name}-{size}-qd{}{option} {rate:.0}", load.depth);
        }
    }
    // Everything is written again and again.
    let all = Load { is_sequential: true, ..sort(4, 32) };
    for (name, load, time) in [("all", all, TIME * 3), ("4k-qd1", sort(4, 1), TIME), ("4k-qd32", sort(4, 32), TIME)] {
        let rate = measure(&*checked, &mut io, load, time)?;
        println!("write-again-{name}{option} {rate:.0}");
    }
    drop(checked);
    drive.stop();
    Ok(std::fs::remove_file(place.join("marks.img"))?)
}

/// In turns, so that what else the machine does meets both.
fn compare(names: [&str; 2], raw: &dyn Device, thin: &dyn Device, load: Load, option: &str) -> Result<(), Failure> {
    let (mut io, mut rates) = (Io::new(32)?, (Vec::new(), Vec::new()));
    for _ in 0..ROUNDS {
        rates.0.push(measure(raw, &mut io, load, TIME)?);
        rates.1.push(measure(thin, &mut io, load, TIME)?);
    }
    let (raw, thin) = (median(&mut rates.0), median(&mut rates.1));
    let Load { depth, write, is_sequential, flush_every, .. } = load;
    let verb = if write { "write" } else { "read" };
    let order = if is_sequential { " one behind the other" } else { "" };
    let flushes = if flush_every > 0 { format!(", a flush every {flush_every}") } else { String::new() };
    let ([first, second], ratio) = (names, thin / raw);
    println!(
        "4K {verb:<5} QD{depth}{order}{flushes}{option}: {first} {:.1}k/s, {second} {:.1}k/s: {ratio:.3}",
        raw / 1e3,
        thin / 1e3
    );
    Ok(())
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn drive(place: &Path, name: &str, size: u64, option: &str) -> Result<Medium, Failure> {
    let bytes = medium_bytes(size)?;
    let spec = format!("{}/{name},size={bytes}{option}", place.display()).parse::<Spec>()?;
    let options = Options { create: Some(size), zeroed: true, ..Options::default() };
    Ok(ebof_medium::open(open(&spec)?, options)?.medium)
}

fn namespace(drive: &Medium, volume: u64, size: u64, block_format: BlockFormat) -> Result<Arc<dyn Device>, Failure> {
    let (sender, receiver) = mpsc::channel();
    drive.run(Box::new(move |store| {
        let _gone = sender.send(store.create(VolumeId(volume), size / 4096, size / 4096, block_format));
    }));
    Ok(receiver.recv()??)
}

/// Real blocks everywhere, so that no read is of a hole.
fn fill(device: &dyn Device) -> Result<(), Failure> {
    let mut io = Io::new(1)?;
    for offset in (0..device.geometry().capacity_bytes).step_by(1 << 20) {
        let mut buffer = Buffer::zeroed(1 << 20);
        buffer.as_mut_slice().fill(0x5A);
        let operation = Operation::Write { offset, len: 1 << 20, data: buffer.into(), fua: false };
        run(device, &mut io, operation)?;
    }
    Ok(())
}

/// Every extent once, in an order that jumps.
fn first_writes(device: &dyn Device, size: u64) -> Result<(), Failure> {
    let (mut io, extents) = (Io::new(32)?, size >> 18);
    let mut ready: Vec<Buffer> = (0..DEPTH).map(|_| Buffer::zeroed(BLOCK)).collect();
    for at in 0..extents {
        let buffer = match ready.pop() {
            Some(buffer) => buffer,
            None => io.wait(None)?.ok_or("no completion")?.data.and_then(Segments::into_buffer).ok_or("no buffer")?,
        };
        let offset = (at * 7919 % extents) << 18;
        let operation = Operation::Write { offset, len: BLOCK, data: buffer.into(), fua: false };
        if let Submitted::Done(completion) = device.submit(&mut io, Request::new(0, operation)) {
            ready.extend(completion.data.and_then(Segments::into_buffer));
        }
    }
    while let Some(completion) = io.wait(None)? {
        completion.result?;
    }
    Ok(())
}

/// What is measured.
#[derive(Clone, Copy)]
struct Load {
    depth: usize,
    write: bool,
    fua: bool,
    /// Bytes of a request.
    len: usize,
    is_sequential: bool,
    /// Never, if it is 0.
    flush_every: u32,
}

impl Load {
    fn random(depth: usize, write: bool) -> Self {
        Self { depth, write, fua: false, len: BLOCK, is_sequential: false, flush_every: 0 }
    }
}

/// Requests per second.
fn measure(device: &dyn Device, io: &mut Io, load: Load, time: Duration) -> Result<f64, Failure> {
    let mut ready: Vec<Buffer> = (0..load.depth).map(|_| Buffer::zeroed(load.len)).collect();
    let len = u64::try_from(load.len)?;
    let places = device.geometry().capacity_bytes / len;
    let (mut requests, mut begun, mut serial, mut random) = (0_u32, 0_u32, 0_u64, 0x9E37_79B9_7F4A_7C15_u64);
    let start = Instant::now();
    while start.elapsed() < time {
        if load.flush_every > 0 && begun >= load.flush_every && ready.len() == load.depth {
            begun = 0;
            run(device, io, Operation::Flush)?;
        }
        // Before a flush they come to their end.
        let may_begin = load.flush_every == 0 || begun < load.flush_every;
        while may_begin && let Some(buffer) = ready.pop() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let place = if load.is_sequential { serial } else { random >> 20 };
            serial += 1;
            let offset = place % places * len;
            begun += 1;
            let operation = match load.write {
                true => Operation::Write { offset, len: load.len, data: buffer.into(), fua: load.fua },
                false => Operation::Read { offset, len: load.len, data: buffer.into() },
            };
            if let Submitted::Done(completion) = device.submit(io, Request::new(0, operation)) {
                completion.result?;
                return Err("the backing device is a file".into());
            }
        }
        let mut next = io.wait(None)?;
        while let Some(completion) = next {
            completion.result?;
            ready.extend(completion.data.and_then(Segments::into_buffer));
            requests += 1;
            next = io.poll();
        }
    }
    let elapsed = start.elapsed();
    // The next one begins with nothing in flight.
    while let Some(completion) = io.wait(None)? {
        completion.result?;
    }
    Ok(f64::from(requests) / elapsed.as_secs_f64())
}
