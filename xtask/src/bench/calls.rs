//! `cargo xtask bench calls`: system calls per 1000 commands of target and host, by what they are
//! for. Counted in the kernel (perf's counters of tracepoints), so that hardly anything waits for
//! it. Owns the events and the table.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use rustix::process::{Pid, Signal, kill_process};

use super::load::{Drive, Load, Rw, Schedule, Target};
use super::process::Process;
use super::resources::Resources;
use super::targets::words;
use super::{fill, hosts, process, targets};
use ebof_statistics::Summary;

/// Size of the drive: a run has as many commands as it has blocks.
const DRIVE_MIB: u64 = 1024;
const COMMANDS: f64 = 262_144.0;
const BLOCK_BYTES: u32 = 4096;
const DEPTHS: [u16; 3] = [1, 32, 128];
/// Time in which perf attaches to a process.
const ATTACH: Duration = Duration::from_millis(300);
const TICK: Duration = Duration::from_millis(20);
/// Time limit of a run.
const TIME_MAX: Duration = Duration::from_secs(120);

/// Every system call.
const ALL: &str = "raw_syscalls:sys_enter";

const RECEIVES: &[&str] = &["recvmsg", "recvfrom", "readv"];
const WAITS: &[&str] = &["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll"];

/// System calls, and a filter on their result.
type Events = (&'static [&'static str], &'static str);

/// What a system call is for, with the events that count it, each with a filter on its result:
/// transfers, looks that found nothing, and the rest of polling.
const KINDS: [(&str, &[Events]); 5] = [
    ("send", &[(&["sendmsg", "sendto", "writev"], "ret > 0")]),
    ("receive", &[(RECEIVES, "ret > 0")]),
    ("event", &[(WAITS, "ret > 0")]),
    ("look in vain", &[(RECEIVES, "ret < 0"), (WAITS, "ret == 0")]),
    ("yield", &[(&["sched_yield"], "ret == 0")]),
];

/// Counts per 1000 commands by kind; those of no kind are `other`.
type Counts = BTreeMap<&'static str, f64>;

/// Counts all loads, and prints the table.
///
/// # Errors
/// perf is not there or may not count, or a process fails.
pub(super) fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let (rounds, ebof, real_time) = parse(words)?;
    if Command::new("perf").args(["stat", "-e", ALL, "true"]).output().is_ok_and(|done| !done.status.success()) {
        bail!("perf cannot count {ALL}: this needs the right to (kernel.perf_event_paranoid, tracefs)");
    }
    let stop = Arc::new(AtomicBool::new(false));
    super::catch_signals(&stop)?;
    let ebof = match ebof {
        Some(program) => program,
        None => super::build(root)?,
    };
    let ebof = fs::canonicalize(&ebof).with_context(|| format!("looking for {}", ebof.display()))?;
    let resources = Resources::new(ebof, &root.join("target"))?;
    process::raise_own_priority(real_time);
    let interrupted = || stop.load(Ordering::Relaxed);
    let mut rows = Vec::new();
    for (drive, name) in [(Drive::Memory, "memory"), (Drive::Null, "null")] {
        for (rw, depth) in [Rw::RandRead, Rw::RandWrite].iter().flat_map(|rw| DEPTHS.map(|depth| (*rw, depth))) {
            let load = Load { drive_mib: DRIVE_MIB, ..Load::new(rw, BLOCK_BYTES, depth) };
            let runs =
                (0..rounds).map(|_| count(drive, &load, &resources, &interrupted)).collect::<Result<Vec<_>>>()?;
            for (end, pick) in [("target", 0), ("host", 1)] {
                let counts: Vec<&Counts> = runs.iter().map(|run| &run[pick]).collect();
                let row = (format!("{name}, {}, QD{depth}", rw.name()), end, medians(&counts));
                eprintln!("{}: {end}: {:?}", row.0, row.2);
                rows.push(row);
            }
        }
    }
    println!("{}", table(&rows));
    Ok(true)
}

fn parse(words: &[&str]) -> Result<(usize, Option<PathBuf>, bool)> {
    let (mut rounds, mut ebof, mut real_time) = (3, None, true);
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        match (word, words.as_slice().first()) {
            ("--no-real-time", _) => {
                real_time = false;
                continue;
            }
            ("--rounds", Some(value)) => rounds = value.parse().context("--rounds")?,
            ("--ebof", Some(value)) => ebof = Some(PathBuf::from(value)),
            _ => bail!("{word} is not known or has no value; there are --rounds, --ebof and --no-real-time"),
        }
        words.next();
    }
    if !(1..=100).contains(&rounds) {
        bail!("want --rounds from 1 to 100");
    }
    Ok((rounds, ebof, real_time))
}

/// One run: the counts of the target and of the host.
fn count(drive: Drive, load: &Load, resources: &Resources, interrupted: &dyn Fn() -> bool) -> Result<[Counts; 2]> {
    let pinned = Schedule::Pinned;
    let target = Target::Ebof { drive, threads: Some(1) };
    let target = targets::start(target, load, (pinned, &[0]), resources, interrupted)?;
    if drive == Drive::Memory {
        fill::fill(
            target.port,
            load.drive_mib,
            target.process.as_ref().map(Process::id),
            (pinned, &[1]),
            resources,
            interrupted,
        )?;
    }
    let files = ["target.perf", "host.perf"].map(|name| resources.directory.join(name));
    let mut counting = perf(&files[0]);
    counting.extend(words(&format!("-p {}", target.process.as_ref().context("no target")?.id())));
    let counting = Process::start(&counting, Schedule::Plain, &[])?;
    std::thread::sleep(ATTACH);
    let mut command = perf(&files[1]);
    command.push("--".into());
    command.extend(hosts::once(load, target.port, resources));
    finish(Process::start(&command, pinned, &[1])?, interrupted)?;
    // It writes its counts when it is interrupted.
    kill_process(Pid::from_raw(i32::try_from(counting.id())?).context("its number")?, Signal::INT)?;
    finish(counting, interrupted)?;
    let read =
        |file: &PathBuf| counts(&fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?);
    Ok([read(&files[0])?, read(&files[1])?])
}

/// Waits for the end of a process.
fn finish(mut running: Process, interrupted: &dyn Fn() -> bool) -> Result<()> {
    let until = Instant::now() + TIME_MAX;
    loop {
        if let Some(status) = running.ended()? {
            // perf ends as its signal says.
            let is_well = status.success() || status.code().is_none() || status.code() == Some(130);
            return if is_well { Ok(()) } else { Err(anyhow::anyhow!("{}", running.last_output())) };
        }
        if interrupted() || Instant::now() > until {
            bail!("it does not end, or was interrupted: {}", running.last_output());
        }
        std::thread::sleep(TICK);
    }
}

/// perf with all events, writing to `file`. What to count follows.
fn perf(file: &Path) -> Vec<OsString> {
    let mut command = words(&format!("perf stat -x, -e {ALL}"));
    for (calls, filter) in KINDS.iter().flat_map(|(_, events)| *events) {
        for call in *calls {
            command.extend(words(&format!("-e syscalls:sys_exit_{call} --filter")));
            command.push(filter.into());
        }
    }
    command.push("-o".into());
    command.push(file.into());
    command
}

/// Per 1000 commands, from perf's output: a line for each event, in their order, which begins with
/// the count.
fn counts(text: &str) -> Result<Counts> {
    let mut values = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let value = line.split(',').next().unwrap_or_default();
        value.parse::<f64>().with_context(|| format!("perf did not count: {line}"))
    });
    let mut next = || values.next().context("perf's output is too short")?;
    let all = next()?;
    let mut counts = Counts::new();
    for (kind, events) in KINDS {
        let sum = (0..events_of(events)).map(|_| next()).sum::<Result<f64>>()?;
        counts.insert(kind, sum);
    }
    counts.insert("other", (all - counts.values().sum::<f64>()).max(0.0));
    counts.values_mut().for_each(|count| *count *= 1000.0 / COMMANDS);
    Ok(counts)
}

fn events_of(events: &[Events]) -> usize {
    events.iter().map(|(calls, _)| calls.len()).sum()
}

fn medians(runs: &[&Counts]) -> Counts {
    let Some(first) = runs.first() else { return Counts::new() };
    let median = |kind: &&'static str| {
        let all = runs.iter().filter_map(|run| run.get(*kind).copied()).collect();
        Some((*kind, Summary::new(all)?.median))
    };
    first.keys().collect::<Vec<_>>().into_iter().filter_map(median).collect()
}

fn table(rows: &[(String, &str, Counts)]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let kinds: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).chain(["other"]).collect();
    table.set_header(["per 1000 commands", "end"].into_iter().chain(kinds.iter().copied()));
    for (load, end, counts) in rows {
        let cells = kinds.iter().map(|kind| counts.get(kind).map_or(String::new(), |count| format!("{count:.0}")));
        table.add_row([load.clone(), (*end).to_owned()].into_iter().chain(cells));
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// perf's output, with the same count for every event but the first.
    fn output(all: f64, each: &str) -> String {
        let events: usize = KINDS.iter().map(|(_, events)| events_of(events)).sum();
        let lines: String = (0..events).map(|_| format!("{each},,syscalls:sys_exit_x,1,100.00,,\n")).collect();
        format!("# started on Thu\n\n{all},,{ALL},1,100.00,,\n{lines}")
    }

    #[test]
    fn counts_are_summed_by_what_a_call_is_for() {
        let counts = counts(&output(2_621_440.0, "131072")).unwrap();
        assert_eq!((counts["send"], counts["yield"], counts["look in vain"]), (1500.0, 500.0, 4000.0));
        assert_eq!(counts["other"], 10_000.0 - 500.0 * 20.0);
        let rows = [("memory".to_owned(), "host", medians(&[&counts, &counts]))];
        assert!(table(&rows).to_string().contains("1500"), "{}", table(&rows));
    }

    #[test]
    fn what_was_not_counted_is_an_error() {
        assert!(counts(&output(9.0, "<not supported>")).is_err());
        assert!(counts("5,,raw\n").is_err() && counts("").is_err());
    }

    #[test]
    fn arguments_are_parsed() {
        assert_eq!(parse(&["--rounds", "2", "--no-real-time"]).unwrap(), (2, None, false));
        assert_eq!(parse(&["--no-real-time", "--ebof", "e"]).unwrap(), (3, Some("e".into()), false));
        for wrong in [&["--rounds"][..], &["--rounds", "0"], &["--what", "1"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
