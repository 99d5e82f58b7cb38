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
/// So long after the last huge page it is taken for the last one...
const HUGE_PAUSE: Duration = Duration::from_secs(1);
/// ...and this long is waited at most: where a hypervisor has to provide the memory, 70 MiB of them
/// come in a second.
const HUGE_TIME_MAX: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(20);
/// Time limit of a try, beyond its duration.
const OVERTIME_MAX: Duration = Duration::from_secs(60);

/// Writes all of the drive of `mib` that a target serves on `port`, with ebof's host. Of a target
/// in the process `settling`, waits until its drive is in huge pages.
///
/// # Errors
/// It cannot be written, or `interrupted`.
pub(crate) fn fill(
    port: u16,
    mib: u64,
    settling: Option<u32>,
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
            return settling.map_or(Ok(()), |process| await_huge_pages(process, interrupted));
        }
        seconds *= 2.0;
    }
    bail!("filling the drive: {mib} MiB were not written in {seconds} s")
}

/// Waits until a process gets no more huge pages.
fn await_huge_pages(process: u32, interrupted: &dyn Fn() -> bool) -> Result<()> {
    let until = Instant::now() + HUGE_TIME_MAX;
    let mut last = (0, Instant::now());
    while last.1.elapsed() < HUGE_PAUSE && Instant::now() < until {
        super::measure::wait(TICK * 5, interrupted)?;
        let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
        let now = huge_kib(&text).unwrap_or(0);
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    Ok(())
}

/// Of `smaps_rollup`: memory in huge pages, KiB.
fn huge_kib(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_read_from_the_kernels_table() {
        let text = "5580-7ffd ---p 00000000 00:00 0    [rollup]\nRss:    264196 kB\nAnonHugePages:    262144 kB\n";
        assert_eq!((huge_kib(text), huge_kib("")), (Some(262_144), None));
        let own = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        assert!(huge_kib(&own).is_some(), "{own}");
    }
}
