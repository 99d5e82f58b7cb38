//! The progress of a procedure: a bar on a terminal, a line for each run elsewhere.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ebof_bench::LoadProgress;
use ebof_qualify::document::{Phase, Run};
use ebof_qualify::runner::{Begun, Observer};
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::say;
use crate::output::text::si;

/// Shows what runs, and tells the runner to stop.
pub(super) struct Bar {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    is_terminal: bool,
    /// What runs.
    what: String,
    /// When it began, and how long everything from then on takes.
    since: Instant,
    remaining: Duration,
    expected: Option<Duration>,
}

impl Bar {
    pub(super) fn new(stop: Arc<AtomicBool>) -> Self {
        let bar = ProgressBar::new(1000);
        let template = "{bar:24} {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let is_terminal = std::io::stderr().is_terminal();
        let (since, remaining) = (Instant::now(), Duration::ZERO);
        Self { bar, stop, is_terminal, what: String::new(), since, remaining, expected: None }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// A line that remains, above the bar.
    fn tell(&self, line: &str) {
        if self.is_terminal {
            self.bar.suspend(|| say(line));
        } else {
            say(line);
        }
    }

    fn left(&self) -> String {
        let left = self.remaining.saturating_sub(self.since.elapsed());
        format!("about {} left", indicatif::HumanDuration(left))
    }
}

impl Observer for Bar {
    fn begin(&mut self, begun: &Begun<'_>) {
        let Begun { phase, number, phases, columns, round, is_repeated, expected, remaining } = begun;
        let of = if phase.rounds > 1 { format!(", round {round} of {}", phase.rounds) } else { String::new() };
        let again = if *is_repeated { " (again: it was disturbed)" } else { "" };
        self.what = format!("[{number}/{phases}] {}{of}: {columns}{again}", phase.title);
        (self.since, self.remaining, self.expected) = (Instant::now(), *remaining, *expected);
        self.bar.set_position(0);
        self.bar.set_message(format!("{}, {}", self.what, self.left()));
        if !self.is_terminal {
            say(&format!("{}, {}", self.what, self.left()));
        }
    }

    fn progress(&mut self, progress: &LoadProgress) {
        let elapsed = progress.elapsed.as_secs_f64();
        let whole = self.expected.or(progress.total).map_or(0.0, |whole| whole.as_secs_f64());
        if whole > 0.0 {
            let part = (elapsed / whole).clamp(0.0, 1.0) * 1000.0;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
            self.bar.set_position(part as u64);
        } else {
            self.bar.set_position(progress.bytes % 1000);
        }
        let mb = progress.bytes_per_s / 1e6;
        let done = if whole > 0.0 { String::new() } else { format!(", {} so far", si(progress.bytes.into())) };
        let rates = format!("{:.0} IOPS, {mb:.1} MB/s{done}", progress.iops);
        self.bar.set_message(format!("{}: {rates}, {}", self.what, self.left()));
    }

    fn end(&mut self, phase: &Phase, run: &Run) {
        if let Some(why) = &run.failed {
            self.tell(&format!("{}: {why}", self.what));
            return;
        }
        let figure = run.reports.first().map(|report| phase.figure(report)).unwrap_or_default();
        let unit = phase.unit.name();
        match &run.disturbed {
            Some(why) => self.tell(&format!("{}: {figure:.0} {unit}, disturbed: {why}", self.what)),
            None if !self.is_terminal => self.tell(&format!("{}: {figure:.0} {unit}", self.what)),
            None => {}
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
