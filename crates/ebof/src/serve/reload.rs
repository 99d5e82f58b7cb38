//! SIGHUP and SIGUSR1: reloads the configuration, and looks for devices that have grown.
//!
//! Runs on a thread of its own, so that a slow file system or drive does not block the thread that
//! waits for signals.

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

/// The request of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReloadRequest {
    /// Reload the configuration.
    Reload,
    /// Look for devices that have grown.
    Rescan,
}

/// Which requests are pending. A second one of the same kind has no further effect.
#[derive(Default)]
struct Pending([AtomicBool; 2]);

/// Sends requests to the thread that reloads.
pub(super) struct Reloads {
    requests: Sender<ReloadRequest>,
    pending: Arc<Pending>,
}

impl Reloads {
    /// Starts the thread.
    pub(super) fn start(args: Args, target: Arc<Target>) -> anyhow::Result<Self> {
        let (sender, requests) = channel();
        let pending = Arc::<Pending>::default();
        let run = {
            let pending = Arc::clone(&pending);
            move || run(&args, &target, &requests, &pending)
        };
        let thread = std::thread::Builder::new().name("ebof-reload".to_owned());
        thread.spawn(run).context("starting the thread that reads the configuration again")?;
        Ok(Self { requests: sender, pending })
    }

    /// Sends a request without waiting.
    pub(super) fn request(&self, request: ReloadRequest) {
        if !self.pending.0[request as usize].swap(true, Ordering::SeqCst) {
            // The thread runs until the process ends.
            let _sent = self.requests.send(request);
        }
    }
}

fn run(args: &Args, target: &Target, requests: &Receiver<ReloadRequest>, pending: &Pending) {
    while let Ok(request) = requests.recv() {
        pending.0[request as usize].store(false, Ordering::SeqCst);
        match request {
            ReloadRequest::Reload => reload(args, target),
            ReloadRequest::Rescan => rescan(target),
        }
    }
}

/// SIGHUP: reloads the configuration and applies what can change without a restart.
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
    // Also if it was refused: they may say why.
    for remark in &loaded.remarks.items {
        let Diagnostic { severity, file, line, column, message, help, .. } = remark;
        let help = help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        match severity {
            Severity::Note => tracing::info!("{file}:{line}:{column}: {severity}: {message}{help}"),
            _ => tracing::warn!("{file}:{line}:{column}: {severity}: {message}{help}"),
        }
    }
}

/// SIGUSR1: looks for files and block devices that have grown.
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
