//! The watchdog: the supervisor gets a sign of life as long as every thread that serves gives one.
//!
//! A thread of its own asks all of them twice in the time that the supervisor allows, so that a
//! sleeping target is woken that rarely. If one hangs nothing is told, and the supervisor ends and
//! restarts the target (with a core dump, which shows where it hung).

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ebof_cli::Supervisor;
use ebof_manage::Target as _;
use ebof_server::Target;

/// Starts the watchdog, where the supervisor wants one.
pub(crate) fn watch(supervisor: &Arc<Supervisor>, target: &Arc<Target>) -> anyhow::Result<()> {
    let Some(allowed) = supervisor.watchdog() else { return Ok(()) };
    let (supervisor, target) = (Arc::clone(supervisor), Arc::clone(target));
    let thread = std::thread::Builder::new().name("ebof-watchdog".to_owned());
    thread.spawn(move || run(&supervisor, &target, allowed)).context("starting the watchdog's thread")?;
    Ok(())
}

fn run(supervisor: &Supervisor, target: &Target, allowed: Duration) {
    loop {
        // The rest of the time is for a machine that is busy.
        match target.check_threads(allowed / 4) {
            Ok(()) => {
                supervisor.alive();
                std::thread::sleep(allowed / 2);
            }
            // It may be late, and is waited for.
            Err(silent) => tracing::error!("{silent}: the watchdog is not told that all is well"),
        }
    }
}

/// What is served, in a line.
pub(crate) fn summary(target: &Target) -> String {
    let status = target.status();
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let (subsystems, ports) =
        (count(status.enabled_subsystems().count(), "subsystem"), count(status.ports.len(), "port"));
    let missing = match status.missing.len() {
        0 => String::new(),
        some => format!("; {some} MISSING, see `ebof target status`"),
    };
    format!("serving {subsystems} at {ports}{missing}")
}
