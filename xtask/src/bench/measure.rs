//! One run of one subject: starts its target and its host, watches what processor time both use,
//! and ends both.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::load::{Host, Metric, Schedule, Subject};
use super::place::Place;
use super::process::{Process, processor_ns};
use super::{hosts, targets};

/// Before a run is measured. SPDK's host takes whole seconds only, and gets one.
const RAMP: f64 = 0.5;
/// Between two looks at what the processes use.
const TICK: Duration = Duration::from_millis(50);
/// What of the end of a host's life is not looked at: closing and reporting. The load itself goes
/// on until then.
const TAIL: f64 = 0.5;
/// A run may take this long beyond its time.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long idle processes are watched, and how long connecting may echo before that.
const IDLE: Duration = Duration::from_secs(10);
const SETTLE: Duration = Duration::from_secs(2);

/// Figures of one run.
pub(crate) type Sample = BTreeMap<Metric, f64>;

/// Processor time used until then: by the target (0 where there is none) and by the host, in
/// nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    at: f64,
    target: f64,
    host: f64,
}

/// Runs a subject for `seconds`.
///
/// # Errors
/// One of its processes failed, or `interrupted`.
pub(crate) fn run(
    subject: &Subject,
    schedule: Schedule,
    seconds: f64,
    place: &Place,
    interrupted: &dyn Fn() -> bool,
) -> Result<Sample> {
    let target = targets::start(subject.target, schedule, place, interrupted)?;
    let command = hosts::command(subject, target.port, seconds, RAMP, place)?;
    // The raw program has both ends in it and places them by itself: what `taskset` allows does not
    // bind it.
    let mut host = Process::start(&command, schedule, 1)?;
    let started = Instant::now();
    let target_id = target.process.as_ref().map(Process::id);
    let look = || Look {
        at: started.elapsed().as_secs_f64(),
        target: target_id.and_then(processor_ns).map_or(0.0, float),
        host: 0.0,
    };
    if let Host::Hold(_) = subject.host {
        return idle(&mut host, &look, interrupted);
    }
    let mut looks = Vec::new();
    let deadline = started + Duration::from_secs_f64(seconds) + PATIENCE;
    let status = loop {
        if let Some(used) = processor_ns(host.id()).filter(|&used| used > 0) {
            looks.push(Look { host: float(used), ..look() });
        }
        if let Some(status) = host.ended()? {
            break status;
        }
        if interrupted() {
            bail!("interrupted");
        }
        if Instant::now() > deadline {
            bail!("it does not end: {}", host.complaint());
        }
        std::thread::sleep(TICK);
    };
    if !status.success() {
        bail!("{}", host.complaint());
    }
    let said = hosts::parse(subject.host, &host.printed())?;
    let mut sample = Sample::from([(Metric::Iops, said.iops)]);
    sample.extend(said.mean_us.map(|mean| (Metric::MeanUs, mean)));
    let end = started.elapsed().as_secs_f64() - TAIL;
    if let Some(used) = used(&looks, end - seconds * 0.5, end) {
        if said.iops > 0.0 {
            sample.insert(Metric::CpuUsPerIo, (used.target + used.host) / 1000.0 / said.iops);
        }
        if target_id.is_some() {
            sample.insert(Metric::TargetCpuPercent, used.target / 1e7);
            sample.insert(Metric::HostCpuPercent, used.host / 1e7);
        }
    }
    Ok(sample)
}

/// Watches both while nothing happens.
fn idle(host: &mut Process, look: &dyn Fn() -> Look, interrupted: &dyn Fn() -> bool) -> Result<Sample> {
    let deadline = Instant::now() + PATIENCE;
    while !host.printed().contains('\n') {
        if host.ended()?.is_some() || Instant::now() > deadline || interrupted() {
            bail!("{}", host.complaint());
        }
        std::thread::sleep(TICK);
    }
    wait(SETTLE, interrupted)?;
    let id = host.id();
    let both = || Look { host: processor_ns(id).map_or(0.0, float), ..look() };
    let before = both();
    wait(IDLE, interrupted)?;
    let after = both();
    if host.ended()?.is_some() {
        bail!("{}", host.complaint());
    }
    let percent = |used: f64| used / (after.at - before.at) / 1e7;
    Ok(Sample::from([
        (Metric::TargetCpuPercent, percent(after.target - before.target)),
        (Metric::HostCpuPercent, percent(after.host - before.host)),
    ]))
}

fn wait(time: Duration, interrupted: &dyn Fn() -> bool) -> Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if interrupted() {
            bail!("interrupted");
        }
        std::thread::sleep(TICK);
    }
    Ok(())
}

/// What was used per second between two moments, in nanoseconds: the looks next to them decide.
fn used(looks: &[Look], from: f64, to: f64) -> Option<Look> {
    let first = looks.iter().find(|look| look.at >= from)?;
    let last = looks.iter().rev().find(|look| look.at <= to)?;
    let time = last.at - first.at;
    (time > 0.0).then(|| Look {
        at: time,
        target: (last.target - first.target) / time,
        host: (last.host - first.host) / time,
    })
}

#[expect(clippy::cast_precision_loss, reason = "a report has fewer digits than an f64")]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_that_of_the_window() {
        let looks: Vec<Look> =
            (0..40u32).map(|n| f64::from(n) * 0.1).map(|at| Look { at, target: at * at, host: 5.0 * at }).collect();
        let window = used(&looks, 0.95, 2.05).unwrap();
        assert!((window.host - 5.0).abs() < 1e-9 && (window.target - 3.0).abs() < 1e-9, "{window:?}");
        assert_eq!(used(&looks, 3.0, 1.0), None);
        assert_eq!(used(&[], 0.0, 1.0), None);
    }
}
