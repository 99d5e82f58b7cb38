//! Writes a drive in memory once before it is measured: what was never written is read from a page
//! of zeros that is always in the cache, and the first write to a page waits for the system.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::hosts;
use super::load::{Load, Rw, Schedule};
use super::process::Process;
use super::resources::Resources;

/// Bytes of a write.
const BLOCK_BYTES: u32 = 128 << 10;
/// What is written in a second at least, on most machines, in MiB; with twice the time, and again,
/// where it is less.
const MIB_PER_S: f64 = 1024.0;
const TRIES: u32 = 6;
/// How much memory gets huge pages in a second, in MiB, where a hypervisor has to provide it.
const HUGE_MIB_PER_S: f64 = 256.0;
const TICK: Duration = Duration::from_millis(20);
/// Time limit of a try, beyond its duration.
const OVERTIME_MAX: Duration = Duration::from_secs(60);

/// Writes all of the drive of `mib` that a target serves on `port`, with ebof's host. If it
/// `settles`, waits until what happens to memory that was written has happened.
///
/// # Errors
/// It cannot be written, or `interrupted`.
pub(crate) fn fill(
    port: u16,
    mib: u64,
    settles: bool,
    (schedule, processors): (Schedule, &[usize]),
    resources: &Resources,
    interrupted: &dyn Fn() -> bool,
) -> Result<()> {
    let load = Load { drive_mib: mib, ..Load::new(Rw::Write, BLOCK_BYTES, 16) };
    let size = super::measure::float(mib);
    let mut seconds = 0.25 + size / MIB_PER_S;
    for _ in 0..TRIES {
        let mut host = Process::start(&hosts::fill(&load, port, seconds, resources), schedule, processors)?;
        let until = Instant::now() + Duration::from_secs_f64(seconds) + OVERTIME_MAX;
        let status = loop {
            if let Some(status) = host.ended()? {
                break status;
            }
            if interrupted() || Instant::now() > until {
                bail!("filling the drive: interrupted");
            }
            std::thread::sleep(TICK);
        };
        if !status.success() {
            bail!("filling the drive: {}", host.last_output());
        }
        let written = super::parse::ebof(&host.printed())?.iops * seconds * f64::from(BLOCK_BYTES) / f64::from(1 << 20);
        if written >= size {
            let settling = if settles { 0.5 + size / HUGE_MIB_PER_S } else { 0.0 };
            return super::measure::wait(Duration::from_secs_f64(settling), interrupted);
        }
        seconds *= 2.0;
    }
    bail!("filling the drive: {mib} MiB were not written in {seconds} s")
}
