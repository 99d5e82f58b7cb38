//! The program that measures the host's techniques: an example of the crate `initiator`. Builds it,
//! and runs it against a target with a drive in memory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::load::{Drive, Load, Rw, Schedule, Target};
use super::process::Process;
use super::resources::Resources;
use super::targets::words;
use super::{fill, hosts, targets};
use ebof_statistics::{STEAL_PERCENT_MAX, Stolen};

/// The processors of target and host.
const PROCESSORS: [usize; 2] = [0, 1];
const TICK: Duration = Duration::from_millis(20);
/// Time limit of a run.
const TIME_MAX: Duration = Duration::from_secs(60);
/// How often a run is repeated during which the hypervisor took time.
const TRIES: usize = 4;

/// Builds the program.
///
/// # Errors
/// It does not build.
pub(super) fn build(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let words = ["build", "-q", "--release", "--locked", "-p", "ebof-initiator", "--example", "techniques"];
    let status = Command::new(cargo).args(words).current_dir(root).status().context("starting cargo")?;
    if !status.success() {
        bail!("the example techniques does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release/examples/techniques"))
}

/// One run of `program`: `verb`, then the target's URI, then `arguments`. Its target has one thread
/// and a drive of `drive_mib` that is written. Repeated while the hypervisor takes too much time,
/// of which the last figure is returned, too.
///
/// # Errors
/// A process fails, or `interrupted`.
pub(super) fn run(
    program: &Path,
    (verb, arguments): (&str, &str),
    drive_mib: u64,
    resources: &Resources,
    interrupted: &dyn Fn() -> bool,
) -> Result<(Value, f64)> {
    let mut last = None;
    for _ in 0..TRIES {
        let done = once(program, (verb, arguments), drive_mib, resources, interrupted)?;
        if done.1 <= STEAL_PERCENT_MAX {
            return Ok(done);
        }
        last = Some(done);
    }
    last.context("nothing was run")
}

fn once(
    program: &Path,
    (verb, arguments): (&str, &str),
    drive_mib: u64,
    resources: &Resources,
    interrupted: &dyn Fn() -> bool,
) -> Result<(Value, f64)> {
    let target = Target::Ebof { drive: Drive::Memory, threads: Some(1) };
    let load = Load { drive_mib, ..Load::new(Rw::RandRead, 4096, 1) };
    let target = targets::start(target, &load, (Schedule::Pinned, &PROCESSORS[..1]), resources, interrupted)?;
    let settling = target.process.as_ref().map(Process::id);
    fill::fill(target.port, drive_mib, settling, (Schedule::Pinned, &PROCESSORS[1..]), resources, interrupted)?;
    let mut command = vec![program.into(), verb.into(), hosts::subsystem_uri(target.port)];
    command.extend(words(arguments));
    let stolen = Stolen::now();
    let mut host = Process::start(&command, Schedule::Pinned, &PROCESSORS[1..])?;
    let until = Instant::now() + TIME_MAX;
    let status = loop {
        if let Some(status) = host.ended()? {
            break status;
        }
        if interrupted() || Instant::now() > until {
            bail!("{verb} does not end, or was interrupted: {}", host.last_output());
        }
        std::thread::sleep(TICK);
    };
    if !status.success() {
        bail!("{}", host.last_output());
    }
    let steal = stolen.and_then(Stolen::percent).unwrap_or(0.0);
    Ok((serde_json::from_str(host.printed().trim()).context("its JSON")?, steal))
}
