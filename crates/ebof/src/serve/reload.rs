//! SIGHUP and SIGUSR1: the configuration is read again, and what can change without a new start
//! does; what has grown is noticed.
//!
//! On a thread of its own: whatever a file system or a drive takes its time for, the thread that
//! waits for signals goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::Context as _;
use ebof_manage::api::ApplyError;
use ebof_manage::{Diagnostic, Plan, Severity, Target as _};
use ebof_server::Target;

use super::{Args, load};
use ebof_cli::Kind;
use ebof_cli::output::say;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Read the configuration again.
    Reload,
    /// Look at the sizes of what is served.
    Rescan,
}

/// What is asked for and not begun yet, by [`Ask`]: once is enough, it finds what there is then.
#[derive(Default)]
struct Pending([AtomicBool; 2]);

/// Asks the thread that reloads.
pub(super) struct Reloads {
    asks: Sender<Ask>,
    pending: Arc<Pending>,
}

impl Reloads {
    /// Starts the thread.
    pub(super) fn start(args: Args, target: Arc<Target>) -> anyhow::Result<Self> {
        let (asks, asked) = channel();
        let pending = Arc::<Pending>::default();
        let run = {
            let pending = Arc::clone(&pending);
            move || run(&args, &target, &asked, &pending)
        };
        let thread = std::thread::Builder::new().name("ebof-reload".to_owned());
        thread.spawn(run).context("starting the thread that reads the configuration again")?;
        Ok(Self { asks, pending })
    }

    /// Asks for something, and returns at once.
    pub(super) fn ask(&self, ask: Ask) {
        if !self.pending.0[ask as usize].swap(true, Ordering::SeqCst) {
            // The thread does not end before the process.
            let _sent = self.asks.send(ask);
        }
    }
}

fn run(args: &Args, target: &Target, asked: &Receiver<Ask>, pending: &Pending) {
    while let Ok(ask) = asked.recv() {
        pending.0[ask as usize].store(false, Ordering::SeqCst);
        match ask {
            Ask::Reload => reload(args, target),
            Ask::Rescan => rescan(target),
        }
    }
}

/// SIGHUP: the configuration is read again, and what can change without a new start does.
fn reload(args: &Args, target: &Target) {
    if args.config.is_none() {
        say("SIGHUP: there is no configuration file to read again; looking at the sizes of what is served");
        return rescan(target);
    }
    let kept = "the configuration stays as it was";
    let loaded = match load(args, Kind::Regular) {
        Ok(loaded) => loaded,
        Err(error) => return tracing::error!("{kept}: {error:#}"),
    };
    if let Some(objection) = loaded.objection(&target.config()) {
        return tracing::error!("{kept}: {objection}");
    }
    report(target.apply(loaded.config), kept, "the configuration has not changed");
    // Also where it was refused: they may say why.
    for remark in &loaded.remarks.items {
        let Diagnostic { severity, file, line, column, message, help, .. } = remark;
        let help = help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        match severity {
            Severity::Note => tracing::info!("{file}:{line}:{column}: {severity}: {message}{help}"),
            _ => tracing::warn!("{file}:{line}:{column}: {severity}: {message}{help}"),
        }
    }
}

/// SIGUSR1: a file or a block device may have grown.
fn rescan(target: &Target) {
    report(target.rescan(), "nothing has changed", "nothing has grown");
}

fn report(outcome: Result<Plan, ApplyError>, failed: &str, unchanged: &str) {
    match outcome {
        Ok(plan) if plan.changes.is_empty() => tracing::info!("{unchanged}"),
        Ok(plan) => plan.changes.iter().for_each(|change| tracing::info!("{change}")),
        Err(error @ ApplyError::Incomplete { .. }) => {
            tracing::error!("only a part of the configuration that there was is in force: {error}");
        }
        Err(error) => tracing::error!("{failed}: {error}"),
    }
}
