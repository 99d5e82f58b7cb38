//! How fast the backends are on this machine:
//! `cargo run --release -p ebof-backend --example speed [DIRECTORY]`.
//!
//! Prints nanoseconds per 4 KiB for memory and null, and requests per second for a file in
//! `DIRECTORY` (default: the directory for temporary files) at depths 1 and 32, buffered and
//! direct, on both engines.
#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::time::{Duration, Instant};

use ebof_backend::{Buffer, Device, Engine, Io, Operation, Request, Segments, Spec, Submitted, open};

type Failure = Box<dyn std::error::Error>;

const BLOCK: usize = 4096;
const SIZE: u64 = 256 << 20;
const TIME: Duration = Duration::from_secs(1);

fn main() -> Result<(), Failure> {
    let directory = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, Into::into);
    // Small enough for the processor's cache, as the bytes of a connection are.
    for spec in [Spec::memory(4 << 20), Spec::memory(SIZE), Spec::null(SIZE)] {
        let device = open(&spec)?;
        fill(&*device)?;
        for write in [true, false] {
            let rate = measure(&*device, &mut Io::new(1)?, 1, write)?;
            println!("{:<40} {:<6} {:>7.0} ns", device.describe(), verb(write), 1e9 / rate);
        }
    }
    let path = directory.join(format!("ebof-speed-{}.img", std::process::id()));
    let measured = measure_file(&path);
    std::fs::remove_file(&path)?;
    measured
}

fn measure_file(path: &std::path::Path) -> Result<(), Failure> {
    for option in ["", ",direct"] {
        let device = open(&format!("{},size={SIZE}{option}", path.display()).parse::<Spec>()?)?;
        fill(&*device)?;
        for engine in [Engine::Uring, Engine::Threads] {
            for depth in [1, 32] {
                for write in [false, true] {
                    let mut io = Io::with_engine(32, engine)?;
                    let rate = measure(&*device, &mut io, depth, write)?;
                    let cache = if option.is_empty() { "buffered" } else { "direct" };
                    println!("file {cache:<8} {engine:?} QD{depth:<3} {:<6} {:>8.1}k/s", verb(write), rate / 1e3);
                }
            }
        }
    }
    Ok(())
}

fn verb(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}

/// Real blocks everywhere, so that no read is of a hole.
fn fill(device: &dyn Device) -> Result<(), Failure> {
    let mut io = Io::new(1)?;
    for offset in (0..device.geometry().capacity_bytes).step_by(1 << 20) {
        let mut buffer = Buffer::zeroed(1 << 20);
        buffer.as_mut_slice().fill(0x5A);
        let operation = Operation::Write { offset, len: 1 << 20, data: buffer.into(), fua: false };
        match device.submit(&mut io, Request::new(0, operation)) {
            Submitted::Done(completion) => completion.result?,
            Submitted::Pending => io.wait(None)?.ok_or("no completion")?.result?,
            Submitted::Busy(_) => return Err("nothing else is in flight".into()),
        }
    }
    Ok(())
}

/// Requests per second at random offsets.
fn measure(device: &dyn Device, io: &mut Io, depth: usize, write: bool) -> Result<f64, Failure> {
    let mut ready: Vec<Buffer> = (0..depth).map(|_| Buffer::zeroed(BLOCK)).collect();
    let blocks = device.geometry().capacity_bytes / 4096;
    let (mut requests, mut random) = (0_u32, 0x9E37_79B9_7F4A_7C15_u64);
    let start = Instant::now();
    let mut elapsed = Duration::ZERO;
    while elapsed < TIME {
        while let Some(buffer) = ready.pop() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let offset = (random >> 20) % blocks * 4096;
            let operation = match write {
                true => Operation::Write { offset, len: BLOCK, data: buffer.into(), fua: false },
                false => Operation::Read { offset, len: BLOCK, data: buffer.into() },
            };
            if let Submitted::Done(completion) = device.submit(io, Request::new(0, operation)) {
                completion.result?;
                ready.extend(completion.data.and_then(Segments::into_buffer));
                requests += 1;
                if requests.is_multiple_of(256) {
                    break;
                }
            }
        }
        let mut next = io.wait(None)?;
        while let Some(completion) = next {
            completion.result?;
            ready.extend(completion.data.and_then(Segments::into_buffer));
            requests += 1;
            next = io.poll();
        }
        elapsed = start.elapsed();
    }
    Ok(f64::from(requests) / elapsed.as_secs_f64())
}
