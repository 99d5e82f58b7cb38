//! `cargo xtask bench`: measures ebof, the raw limit and the installed peers in one run. Owns the
//! rounds, the progress and the end; each step has a file.
//!
//! Every subject is a pair of processes, started for each run and stopped after it, so that no
//! subject affects another. Each round runs all subjects, so that other load affects them alike.

mod calls;
mod device;
mod examples;
mod fill;
mod hosts;
mod huge_pages;
mod load;
mod measure;
mod mixed;
mod options;
mod parse;
mod plot;
mod process;
mod report;
mod resources;
mod scenarios;
mod targets;
mod techniques;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use load::{Drive, Host, Metric, Scenario, Schedule, Subject, Target};
use options::Options;
use report::{Measured, Outcome};
use resources::Resources;

pub(crate) use options::USAGE;

/// How often a run is repeated that stalled or was disturbed.
const REPEATS_MAX: usize = 3;
const GUIDE: &str = "docs/performance.md says how to bring it";

/// Measures; `false` if ebof or the raw limit failed, or the run was interrupted.
///
/// # Errors
/// The arguments are invalid, or nothing can be measured.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<bool> {
    if let [example @ ("delayed" | "direct" | "fair" | "moves" | "secure"), words @ ..] = words {
        return examples::run(root, example, words);
    }
    match words {
        ["mixed", words @ ..] => return mixed::run(root, words),
        ["calls", words @ ..] => return calls::run(root, words),
        _ => {}
    }
    if let ["--help" | "-h"] = words {
        println!("{USAGE}");
        return Ok(true);
    }
    let options = Options::parse(words)?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let picked = options.pick(&scenarios::all(processors))?;
    if options.list {
        for scenario in &picked {
            println!("{:16} {}", scenario.name, scenario.title);
        }
        return Ok(true);
    }
    let stop = Arc::new(AtomicBool::new(false));
    catch_signals(&stop)?;
    let ebof = match &options.ebof {
        Some(program) => program.clone(),
        None => build(root)?,
    };
    let ebof = fs::canonicalize(&ebof).with_context(|| format!("looking for {}", ebof.display()))?;
    let disk = options.directory.clone().unwrap_or_else(|| root.join("target"));
    let mut resources = Resources::new(ebof, &disk)?;
    let one_thread = |subject: &Subject| subject.host == Host::EbofOneThread;
    if picked.iter().flat_map(|scenario| &scenario.subjects).any(one_thread) {
        resources.techniques = Some(techniques::build(root)?);
    }
    if let Some(mib) = picked.iter().flat_map(|scenario| &scenario.subjects).filter_map(hosts::huge_mib).max()
        && let Err(error) = resources.reserve_huge_pages(mib)
    {
        eprintln!("SPDK without huge pages: {error:#}");
    }
    process::raise_own_priority(options.real_time);
    introduce(&options, &picked);
    let mut all = Vec::new();
    for (index, scenario) in picked.iter().enumerate() {
        let label = format!("[{}/{}] {}", index + 1, picked.len(), scenario.name);
        let measured = run_rounds(scenario, &options, &resources, &label, &stop);
        print!("{}", measured.text());
        all.push(measured);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    println!("{}", report::goals(&all));
    let file = options.json.clone().unwrap_or_else(|| root.join("target/bench.json"));
    if let Some(directory) = file.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    }
    let text = serde_json::to_string_pretty(&report::document(&all, &settings(options.rounds, options.seconds)))?;
    fs::write(&file, text + "\n").with_context(|| format!("writing {}", file.display()))?;
    println!("all figures: {}", file.display());
    let shares =
        if words.is_empty() && !stop.load(Ordering::Relaxed) { examples::run(root, "fair", words)? } else { true };
    // Failures of other programs are only reported.
    let is_ours = |name: &str| name.contains("ebof") || name.starts_with("raw");
    let failed = |measured: &Measured| {
        measured.outcomes.iter().any(|(name, one)| is_ours(name) && one.trouble.is_some() && !one.is_missing)
    };
    Ok(shares && !stop.load(Ordering::Relaxed) && !all.iter().any(failed))
}

/// Ctrl-C and the like set `stop`.
fn catch_signals(stop: &Arc<AtomicBool>) -> Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(stop)).context("catching signals")?;
    }
    Ok(())
}

/// Builds the program as users get it.
fn build(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(["build", "--release", "--locked", "-p", "ebof"]).current_dir(root).status();
    if !status.context("starting cargo")?.success() {
        bail!("ebof does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release/ebof"))
}

fn introduce(options: &Options, picked: &[Scenario]) {
    let runs: usize = picked.iter().map(|scenario| scenario.subjects.len() * rounds(scenario, options)).sum();
    eprintln!(
        "{} scenarios, {runs} runs of {} s; {}",
        picked.len(),
        options.seconds,
        if process::is_real_time() {
            "pinned processes run before all others (SCHED_RR)"
        } else {
            "no real-time priorities: other load on this machine will be seen"
        }
    );
}

fn settings(rounds: usize, seconds: f64) -> Value {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    json!({
        "rounds": rounds,
        "seconds": seconds,
        "real_time": process::is_real_time(),
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
        "processor": model.trim_start_matches(['\t', ' ', ':']),
        "kernel": kernel.trim(),
        "load_average_at_end": fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
    })
}

/// Idle processes are observed for long, and vary little: one round is enough.
fn rounds(scenario: &Scenario, options: &Options) -> usize {
    if scenario.schedule == Schedule::Plain { options.rounds.min(2) } else { options.rounds }
}

/// All rounds of one scenario.
fn run_rounds(
    scenario: &Scenario,
    options: &Options,
    resources: &Resources,
    label: &str,
    stop: &AtomicBool,
) -> Measured {
    let mut outcomes: BTreeMap<String, Outcome> = BTreeMap::new();
    for subject in &scenario.subjects {
        let missing = hosts::missing(subject, resources).map(|what| format!("not measured: {what}; {GUIDE}"));
        let outcome = Outcome { is_missing: missing.is_some(), trouble: missing, ..Outcome::default() };
        outcomes.insert(subject.name.clone(), outcome);
    }
    if scenario.subjects.iter().any(uses_file) {
        eprintln!("{label}: the file");
        if let Err(error) = resources.make_file() {
            let trouble = format!("{error:#}");
            outcomes.values_mut().for_each(|outcome| outcome.trouble = Some(trouble.clone()));
        }
    }
    let rounds = rounds(scenario, options);
    for round in 1..=rounds {
        let label = format!("{label}, round {round} of {rounds}");
        for subject in &scenario.subjects {
            if let Some(outcome) = outcomes.get_mut(&subject.name).filter(|outcome| outcome.trouble.is_none()) {
                run_once(subject, scenario.schedule, options, resources, &label, stop, outcome);
            }
        }
    }
    let label = format!("{label}, again");
    for subject in std::iter::repeat_n(&scenario.subjects, REPEATS_MAX).flatten() {
        let Some(outcome) = outcomes.get_mut(&subject.name) else { continue };
        for _ in 0..outcome.drop_stalled() + outcome.drop_disturbed() {
            run_once(subject, scenario.schedule, options, resources, &label, stop, outcome);
        }
    }
    Measured { scenario: scenario.clone(), outcomes }
}

/// One run of one subject, reported in one line.
fn run_once(
    subject: &Subject,
    schedule: Schedule,
    options: &Options,
    resources: &Resources,
    label: &str,
    stop: &AtomicBool,
    outcome: &mut Outcome,
) {
    let interrupted = || stop.load(Ordering::Relaxed);
    if interrupted() {
        return;
    }
    eprint!("{label}: {:22} ", subject.name);
    match measure::run(subject, schedule, options.seconds, resources, &interrupted) {
        Ok(sample) => {
            eprintln!("{}", brief(&sample));
            outcome.samples.push(sample);
        }
        Err(_) if interrupted() => eprintln!("interrupted"),
        Err(error) => {
            eprintln!("failed: {error:#}");
            outcome.trouble = Some(format!("{error:#}"));
        }
    }
}

fn uses_file(subject: &Subject) -> bool {
    matches!(subject.host, Host::FioFile(_)) || matches!(subject.target, Target::Ebof { drive: Drive::File, .. })
}

/// The results of one run, in short.
fn brief(sample: &measure::Sample) -> String {
    let iops = sample.get(&Metric::Iops).copied().filter(|&iops| iops > 0.0);
    let percent = |metric| sample.get(&metric).copied().unwrap_or_default();
    match iops {
        Some(iops) => format!("{:>8} IOPS", report::thousands(iops)),
        None => format!(
            "target {:.3} %, host {:.3} % of a processor",
            percent(Metric::TargetCpuPercent),
            percent(Metric::HostCpuPercent)
        ),
    }
}
