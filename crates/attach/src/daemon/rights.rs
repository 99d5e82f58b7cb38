//! What an attach daemon gives up: before it connects, and once its devices are there.

use ebof_manage::api::Confinement;
use ebof_manage::config::{Measure, Measures};
use ebof_rights::{ATTACH_CAPABILITIES, Calls, Paths, Rights};

/// Gives up what is not needed, while the process has one thread. What is not in force is logged:
/// the devices are of more use than their daemon's confinement.
pub(super) fn give_up(measures: Measures) -> Confinement {
    let told = take(measures.without(Measure::Paths), Calls::AttachStart);
    let in_force: Vec<&str> =
        Measure::ALL.into_iter().filter(|&measure| told.has(measure)).map(Measure::name).collect();
    tracing::info!("given up: {}", if in_force.is_empty() { "nothing".to_owned() } else { in_force.join(", ") });
    told
}

/// Gives up mounting, which only the start needs.
pub(super) fn give_up_mounting(measures: Measures) {
    if measures.has(Measure::SystemCalls) {
        let _logged = take(Measures::NONE.with(Measure::SystemCalls), Calls::Attach);
    }
}

fn take(measures: Measures, calls: Calls) -> Confinement {
    let rights = Rights { measures, capabilities: ATTACH_CAPABILITIES, calls, paths: Paths::default() };
    let told = rights.apply();
    for failed in told.failures() {
        let problem = failed.problem.as_deref().unwrap_or_default();
        tracing::warn!("`{}` of what the daemon is to give up is not in force: {problem}", failed.measure);
    }
    told
}
