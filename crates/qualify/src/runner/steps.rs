//! The order of runs: in each round, one column after the other, or all together.

use std::time::Duration;

use crate::document::Phase;

/// The rate by which the time of a pass over a device is guessed before it is known, in bytes per
/// second.
const GUESSED_RATE: u64 = 500_000_000;

/// One run, or several at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunStep {
    pub(super) columns: Vec<usize>,
    pub(super) round: u32,
}

/// The runs of a phase that are missing, in their order.
pub(super) fn order(phase: &Phase) -> Vec<RunStep> {
    let is_missing = |step: &RunStep| {
        step.columns.iter().any(|&column| {
            let mut runs = phase.runs.iter().filter(|run| run.column == column);
            // What another program cannot do it is not asked for again in the next round.
            !runs.any(|run| run.round == step.round && run.has_result() || super::is_unsupported(run))
        })
    };
    if phase.skipped.is_some() {
        return Vec::new();
    }
    all(phase).into_iter().filter(is_missing).collect()
}

/// All runs of a phase, in their order.
pub(super) fn all(phase: &Phase) -> Vec<RunStep> {
    let rounds = 1..=phase.rounds;
    if phase.together {
        return rounds.map(|round| RunStep { columns: phase.columns.clone(), round }).collect();
    }
    rounds.flat_map(|round| phase.columns.iter().map(move |&column| RunStep { columns: vec![column], round })).collect()
}

/// How long a run takes; `None` if that depends on the device.
pub(super) fn expected(phase: &Phase) -> Option<Duration> {
    let job = phase.jobs.first()?;
    job.runtime.map(|runtime| runtime + job.ramp)
}

/// How long a run takes, about.
pub(super) fn estimate(phase: &Phase, step: &RunStep) -> Duration {
    let Some(job) = phase.jobs.first() else { return Duration::ZERO };
    // As long as the same took before, of this column or another.
    let before = phase.runs.iter().rev().filter(|run| run.has_result());
    let same = before.clone().find(|run| step.columns.contains(&run.column)).or_else(|| before.clone().next());
    if let Some(report) = same.and_then(|run| run.reports.first()) {
        return job.ramp + Duration::try_from_secs_f64(report.elapsed_s).unwrap_or_default();
    }
    let bytes = phase.until_bytes.or(job.size_bytes).unwrap_or(0);
    let pass = Duration::from_secs(bytes / GUESSED_RATE);
    match expected(phase) {
        Some(expected) if phase.until_bytes.is_some() => expected.min(pass),
        Some(expected) => expected,
        None => pass,
    }
}
