//! `simulate [--seed N] [--hours H] [--seconds S] [--level NAME] [--patience S]`: plays stories
//! until so many hours have passed in them, or this program has had the processor for so many
//! seconds: what else the machine does decides how long that takes, not how many stories are
//! played. `cargo xtask simulate` builds it with assertions and runs it.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks to the terminal")]

use std::process::ExitCode;
use std::time::Duration;

use ebof_simulation::administration::Administration;
use ebof_simulation::functions::Functions;
use ebof_simulation::medium::Medium;
use ebof_simulation::paths::Paths;
use ebof_simulation::story::{self, Level, Report};
use ebof_simulation::whole_target::WholeTarget;
use rustix::time::{ClockId, clock_gettime};
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

const USAGE: &str = "\
simulate [--seed N] [--hours H] [--seconds S] [--stories N] [--level NAME] [--patience S]
  --seed N      the first story, by default 1; each seed is a story of its own
  --hours H     until so many hours have passed in the stories, by default 1
  --seconds S   at most so many seconds of processor time
  --stories N   at most so many stories
  --patience S  a story that fails is made shorter for so many seconds, by default 60
  --level NAME  one level alone; without it they share the limits 2:2:1:1:1:
                medium, a drive's medium;
                target, a whole target with hosts of the simulation's own and initiators;
                administration, a whole target with many hosts that manage its drive;
                functions, a whole target whose functions and namespaces move;
                paths, hosts with several paths, to two ports or two targets";

/// How long a story that fails is made shorter.
const PATIENCE: u64 = 60;

/// Keeps what the product logs in the trace of a story that fails.
struct Log;

impl std::io::Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        story::trace(|| String::from_utf8_lossy(line).trim_end().to_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Limits {
    seed: u64,
    time: Duration,
    processor: Duration,
    stories: u64,
    level: Option<String>,
    patience: Duration,
}

fn main() -> ExitCode {
    let Some(limits) = limits() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    story::keep_panics();
    let is_told = tracing_subscriber::filter::dynamic_filter_fn(|_, _| story::is_traced());
    let log = tracing_subscriber::fmt::layer().with_writer(|| Log).without_time().with_ansi(false);
    tracing_subscriber::registry().with(log.with_filter(is_told)).init();
    // If one fails, the others are run all the same.
    let done = [
        run(&Medium, 2, &limits),
        run(&WholeTarget, 2, &limits),
        run(&Administration, 1, &limits),
        run(&Functions, 1, &limits),
        run(&Paths, 1, &limits),
    ];
    if done == [true; 5] { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn limits() -> Option<Limits> {
    let hour = Duration::from_secs(3600);
    let mut limits = Limits {
        seed: 1,
        time: hour,
        processor: Duration::MAX,
        stories: u64::MAX,
        level: None,
        patience: Duration::from_secs(PATIENCE),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--seed" => limits.seed = value.parse().ok()?,
            "--hours" => limits.time = Duration::try_from_secs_f64(value.parse::<f64>().ok()? * 3600.0).ok()?,
            "--seconds" => limits.processor = Duration::from_secs(value.parse().ok()?),
            "--stories" => limits.stories = value.parse().ok()?,
            "--level" => limits.level = Some(value),
            "--patience" => limits.patience = Duration::from_secs(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(limits)
}

/// How long this process has had a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("no process has had a processor for less than no time")
}

/// Sum of the levels' shares of the limits.
const SHARES: u32 = 7;

/// Plays stories of a level that has this share of the limits; `false` where one failed.
fn run<L: Level>(level: &L, share: u32, limits: &Limits) -> bool {
    let share = match &limits.level {
        Some(name) if name == L::NAME => SHARES,
        Some(_) => return true,
        None => share,
    };
    let (time, processor) = (limits.time / SHARES * share, limits.processor / SHARES * share);
    let begin = processor_time();
    let mut all = Report::default();
    let mut stories = 0;
    while all.time < time && processor_time() - begin < processor && stories < limits.stories {
        let seed = limits.seed.wrapping_add(stories);
        match story::tell(level, seed, limits.patience) {
            Ok(report) => all.add(&report),
            Err(shrunk) => {
                println!("level {}, seed {seed}: {shrunk}", L::NAME);
                println!(
                    "after {} stories, {:.1} hours of their time, {:.0} s: again with \
                     `cargo xtask simulate --level {} --seed {seed} --stories 1`",
                    stories,
                    all.time.as_secs_f64() / 3600.0,
                    (processor_time() - begin).as_secs_f64(),
                    L::NAME,
                );
                return false;
            }
        }
        stories += 1;
    }
    let counts: Vec<String> = all.counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    println!(
        "level {}: {stories} stories from seed {} on, {:.2} hours of their time in {:.0} s; {}; digest {:016x}",
        L::NAME,
        limits.seed,
        all.time.as_secs_f64() / 3600.0,
        (processor_time() - begin).as_secs_f64(),
        counts.join(", "),
        all.digest,
    );
    true
}
