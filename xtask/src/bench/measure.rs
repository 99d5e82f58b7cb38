//! One run of one subject: starts its target and its host, samples the CPU time of both, and stops
//! both.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use ebof_statistics::Stolen;

use super::device::Device;
use super::fill::fill;
use super::load::{Drive, Host, Metric, Schedule, Shared, Subject, Target};
use super::process::{Process, processor_ns, start_computing};
use super::resources::Resources;
use super::{hosts, targets};

/// Seconds before measuring begins. SPDK's host takes whole seconds only, and gets one.
const RAMP: f64 = 0.5;
/// Interval of the samples of CPU time.
const TICK: Duration = Duration::from_millis(50);
/// Seconds at the end of a host's process that are ignored: it closes and reports. The load runs
/// until then.
const TAIL: f64 = 0.5;
/// Time limit of a run, beyond its duration.
const OVERTIME_MAX: Duration = Duration::from_secs(60);
/// Duration of observing idle processes.
const IDLE: Duration = Duration::from_secs(10);
/// Time for connecting to finish, before idle processes are observed.
const SETTLE: Duration = Duration::from_secs(2);

/// Results of one run.
pub(crate) type Sample = BTreeMap<Metric, f64>;

/// A sample of the CPU time used by the target (0 without one) and by the host, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Usage {
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
    resources: &Resources,
    interrupted: &dyn Fn() -> bool,
) -> Result<Sample> {
    let (targets_on, hosts_on) = processors(subject.host, schedule);
    let target = targets::start(subject.target, &subject.load, (schedule, &targets_on), resources, interrupted)?;
    if let Target::Ebof { drive: Drive::Memory, .. } | Target::Spdk { drive: Drive::Memory, .. } = subject.target
        && !matches!(subject.host, Host::Hold(_))
    {
        let is_ours = matches!(subject.target, Target::Ebof { .. });
        let settling = target.process.as_ref().map(Process::id).filter(|_| is_ours);
        fill(target.port, subject.load.drive_mib, settling, (schedule, &hosts_on), resources, interrupted)?;
    }
    let device = match subject.host {
        Host::FioDevice => Some(Device::connect(target.port, resources)?),
        _ => None,
    };
    let place = hosts::Place {
        port: target.port,
        device: device.as_ref().map(Device::path),
        processor: hosts_on.first().copied().unwrap_or(1),
    };
    let command = hosts::command(subject, &place, seconds, RAMP, resources)?;
    let _computing = start_computing(schedule)?;
    // The raw program contains both ends and places them itself, whatever `taskset` sets.
    let mut host = Process::start(&command, schedule, &hosts_on)?;
    let started = Instant::now();
    let target_id = target.process.as_ref().map(Process::id);
    let usage = || Usage {
        at: started.elapsed().as_secs_f64(),
        target: target_id.and_then(processor_ns).map_or(0.0, float),
        host: 0.0,
    };
    if let Host::Hold(_) = subject.host {
        return idle(&mut host, &usage, interrupted);
    }
    let mut samples = Vec::new();
    let stolen = Stolen::now();
    let deadline = started + Duration::from_secs_f64(seconds) + OVERTIME_MAX;
    let status = loop {
        if let Some(used) = processor_ns(host.id()).filter(|&used| used > 0) {
            samples.push(Usage { host: float(used), ..usage() });
        }
        if let Some(status) = host.ended()? {
            break status;
        }
        if interrupted() {
            bail!("interrupted");
        }
        if Instant::now() > deadline {
            bail!("it does not end: {}", host.last_output());
        }
        std::thread::sleep(TICK);
    };
    if !status.success() {
        bail!("{}", host.last_output());
    }
    let result = hosts::parse(subject.host, &host.printed())?;
    let mut sample = Sample::from([(Metric::Iops, result.iops)]);
    sample.extend(stolen.and_then(|before| before.percent()).map(|percent| (Metric::StealPercent, percent)));
    sample.extend(result.mean_us.map(|mean| (Metric::MeanUs, mean)));
    let end = started.elapsed().as_secs_f64() - TAIL;
    if let Some(used) = used(&samples, end - seconds * 0.5, end) {
        if result.iops > 0.0 {
            sample.insert(Metric::CpuUsPerIo, (used.target + used.host) / 1000.0 / result.iops);
        }
        if target_id.is_some() {
            sample.insert(Metric::TargetCpuPercent, used.target / 1e7);
            sample.insert(Metric::HostCpuPercent, used.host / 1e7);
        }
    }
    Ok(sample)
}

/// The processors of target and host, where they are pinned.
fn processors(host: Host, schedule: Schedule) -> (Vec<usize>, Vec<usize>) {
    if let Schedule::Shared(Shared { ends: Some([target, host]), .. }) = schedule {
        return (vec![target], vec![host]);
    }
    match host {
        Host::EbofOn(pairs) => pairs.iter().map(|pair| (pair[0], pair[1])).unzip(),
        _ => (vec![0], vec![1]),
    }
}

/// Observes both while they are idle.
fn idle(host: &mut Process, usage: &dyn Fn() -> Usage, interrupted: &dyn Fn() -> bool) -> Result<Sample> {
    let deadline = Instant::now() + OVERTIME_MAX;
    while !host.printed().contains('\n') {
        if host.ended()?.is_some() || Instant::now() > deadline || interrupted() {
            bail!("{}", host.last_output());
        }
        std::thread::sleep(TICK);
    }
    wait(SETTLE, interrupted)?;
    let id = host.id();
    let both = || Usage { host: processor_ns(id).map_or(0.0, float), ..usage() };
    let before = both();
    wait(IDLE, interrupted)?;
    let after = both();
    if host.ended()?.is_some() {
        bail!("{}", host.last_output());
    }
    let percent = |used: f64| used / (after.at - before.at) / 1e7;
    Ok(Sample::from([
        (Metric::TargetCpuPercent, percent(after.target - before.target)),
        (Metric::HostCpuPercent, percent(after.host - before.host)),
    ]))
}

pub(super) fn wait(time: Duration, interrupted: &dyn Fn() -> bool) -> Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if interrupted() {
            bail!("interrupted");
        }
        std::thread::sleep(TICK);
    }
    Ok(())
}

/// CPU time per second between two moments, in nanoseconds, from the samples next to them.
fn used(samples: &[Usage], from: f64, to: f64) -> Option<Usage> {
    let first = samples.iter().find(|usage| usage.at >= from)?;
    let last = samples.iter().rev().find(|usage| usage.at <= to)?;
    let time = last.at - first.at;
    (time > 0.0).then(|| Usage {
        at: time,
        target: (last.target - first.target) / time,
        host: (last.host - first.host) / time,
    })
}

#[expect(clippy::cast_precision_loss, reason = "a report has fewer digits than an f64")]
pub(super) fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_measured_within_the_window() {
        let samples: Vec<Usage> =
            (0..40u32).map(|n| f64::from(n) * 0.1).map(|at| Usage { at, target: at * at, host: 5.0 * at }).collect();
        let window = used(&samples, 0.95, 2.05).unwrap();
        assert!((window.host - 5.0).abs() < 1e-9 && (window.target - 3.0).abs() < 1e-9, "{window:?}");
        assert_eq!(used(&samples, 3.0, 1.0), None);
        assert_eq!(used(&[], 0.0, 1.0), None);
    }
}
