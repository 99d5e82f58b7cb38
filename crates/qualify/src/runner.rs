//! Runs a plan: rounds that alternate between columns, conditions, repetitions, and the document
//! that is saved after each run.

mod load;
mod steps;

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebof_bench::LoadProgress;

use crate::conditions::disturbance;
use crate::document::{Document, Phase, Purpose, Run, SCHEMA, State};
use crate::file_system::{Attach, FileSystems, Mount};
use crate::interrupts;
use crate::machine::Machine;
use crate::procedure::{ColumnPlan, DeviceUnderTest, Plan, Wish};
use crate::report;
use crate::store::{Store, StoreError};
use load::Done;
use steps::{RunStep, order};

/// Who watches a procedure.
pub trait Observer {
    /// A run begins.
    fn begin(&mut self, begun: &Begun<'_>);
    /// The run continues.
    fn progress(&mut self, progress: &LoadProgress);
    /// It has ended, in `phase`.
    fn end(&mut self, phase: &Phase, run: &Run);
    /// Whether to end: everything that was measured is kept.
    fn is_stopped(&self) -> bool;
}

/// A run that begins.
#[derive(Clone, Copy, Debug)]
pub struct Begun<'a> {
    /// The phase, and its number from 1.
    pub phase: &'a Phase,
    /// Its number, from 1.
    pub number: usize,
    /// Of so many phases that are not left out.
    pub phases: usize,
    /// The columns that run, in words.
    pub columns: &'a str,
    /// The round, from 1.
    pub round: u32,
    /// It is run once more: the previous time was disturbed.
    pub is_repeated: bool,
    /// How long it takes; `None` if that depends on the device.
    pub expected: Option<Duration>,
    /// How long everything that follows takes, about, this run included.
    pub remaining: Duration,
}

/// What a report says of how it was made.
#[derive(Clone, Debug)]
pub struct Provenance {
    /// The command line.
    pub command: Vec<String>,
    /// The program and its version.
    pub program: String,
    /// Versions of other programs that take part.
    pub programs: Vec<String>,
}

/// The error of a procedure that cannot be run or resumed.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The report cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The report that is there is of something else.
    #[error(
        "the report in {directory} is of {what}: it is resumed by the same command with --resume, or name another directory"
    )]
    Other {
        /// Where it is.
        directory: String,
        /// What differs.
        what: String,
    },
}

/// A procedure that runs.
pub struct Runner<'a> {
    devices: &'a [DeviceUnderTest],
    repeats: u32,
    columns: Vec<ColumnPlan>,
    store: Store,
    document: Document,
    attach: &'a dyn Attach,
    systems: FileSystems,
}

impl<'a> Runner<'a> {
    /// For a new report.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(
        wish: &'a Wish,
        plan: Plan,
        origin: Provenance,
        store: Store,
        attach: &'a dyn Attach,
    ) -> Result<Self, RunnerError> {
        let document = document(wish, &plan, origin);
        Self::start(wish, plan.columns, document, store, attach)
    }

    /// Goes on with a report: what was measured is not measured again.
    ///
    /// # Errors
    /// It is of something else, or cannot be written.
    pub fn resume(
        wish: &'a Wish,
        plan: Plan,
        origin: Provenance,
        (store, old): (Store, Document),
        attach: &'a dyn Attach,
    ) -> Result<Self, RunnerError> {
        let mut document = document(wish, &plan, origin);
        if let Some(what) = difference(&old, &document) {
            return Err(RunnerError::Other { directory: store.directory().display().to_string(), what });
        }
        for (phase, old) in document.phases.iter_mut().zip(old.phases) {
            phase.runs = old.runs.into_iter().filter(|run| run.has_result() || is_unsupported(run)).collect();
        }
        document.started_unix_ms = old.started_unix_ms;
        document.resumed = old.resumed + 1;
        document.compute_results();
        Self::start(wish, plan.columns, document, store, attach)
    }

    fn start(
        wish: &'a Wish,
        columns: Vec<ColumnPlan>,
        document: Document,
        store: Store,
        attach: &'a dyn Attach,
    ) -> Result<Self, RunnerError> {
        store.save(&document)?;
        let systems = FileSystems::default();
        Ok(Self { devices: &wish.devices, repeats: wish.repeats, columns, store, document, attach, systems })
    }

    /// Runs it to its end, and returns the document. Its state says if it ended early.
    ///
    /// # Errors
    /// The report cannot be written: it is as it was after the last run, and comes along.
    pub fn run(mut self, observer: &mut dyn Observer) -> Result<Document, (RunnerError, Box<Document>)> {
        let ended = self.run_phases(observer);
        // A file system is unmounted before the report says that all is done.
        self.systems = FileSystems::default();
        let saved = ended.and_then(|()| {
            if self.document.state == State::Running {
                self.document.state = State::Complete;
            }
            self.save()?;
            self.store.write("report.html", report::html(&self.document).as_bytes())?;
            self.store.write("report.md", report::markdown(&self.document).as_bytes())
        });
        match saved {
            Ok(()) => Ok(self.document),
            Err(error) => {
                self.end(State::Failed, &error.to_string());
                Err((error.into(), Box::new(self.document)))
            }
        }
    }

    fn run_phases(&mut self, observer: &mut dyn Observer) -> Result<(), StoreError> {
        for index in 0..self.document.phases.len() {
            for step in order(&self.document.phases[index]) {
                if !self.run_step(index, &step, observer, false)? {
                    return Ok(());
                }
            }
            if !self.repeat(index, observer)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Runs again what was disturbed.
    fn repeat(&mut self, index: usize, observer: &mut dyn Observer) -> Result<bool, StoreError> {
        for _ in 0..self.repeats {
            let phase = &self.document.phases[index];
            if phase.purpose != Purpose::Measure {
                return Ok(true);
            }
            let quiet = |step: &RunStep| {
                step.columns.iter().all(|&column| {
                    let mut runs = phase.runs.iter().filter(|run| (run.column, run.round) == (column, step.round));
                    runs.clone().count() == 0 || runs.any(|run| run.disturbed.is_none())
                })
            };
            let all = steps::all(phase);
            for step in all.into_iter().filter(|step| !quiet(step)).collect::<Vec<_>>() {
                if !self.run_step(index, &step, observer, true)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// One run, of one column or of all at the same time; false if nothing follows.
    fn run_step(
        &mut self,
        index: usize,
        step: &RunStep,
        observer: &mut dyn Observer,
        is_repeated: bool,
    ) -> Result<bool, StoreError> {
        if observer.is_stopped() {
            return Ok(self.end(State::Interrupted, "interrupted by the user"));
        }
        let phase = self.document.phases[index].clone();
        let mounts = match self.mounts(&phase, step) {
            Ok(mounts) => mounts,
            Err(why) => {
                self.document.phases[index].skipped = Some(why);
                self.save()?;
                return Ok(true);
            }
        };
        self.announce(index, step, observer, is_repeated);
        let setting = load::Loading {
            devices: self.devices,
            columns: &self.columns,
            phase: &phase,
            step,
            mounts: &mounts,
            directory: self.store.directory(),
        };
        let done = load::run(&setting, self.attach, observer);
        let mut failed = None;
        for Done { mut run, is_fatal } in done {
            run.disturbed = if phase.purpose == Purpose::Measure { disturbance(&run.conditions) } else { None };
            if is_fatal {
                failed = run.failed.clone();
            }
            observer.end(&phase, &run);
            self.document.phases[index].runs.push(run);
        }
        self.save()?;
        if observer.is_stopped() {
            return Ok(self.end(State::Interrupted, "interrupted by the user"));
        }
        Ok(failed.is_none_or(|why| self.end(State::Failed, &format!("{}: {why}", phase.title))))
    }

    /// The files of a phase on a file system; none on raw devices.
    fn mounts(&mut self, phase: &Phase, step: &RunStep) -> Result<Vec<Option<Mount>>, String> {
        let Some(name) = &phase.file_system else { return Ok(step.columns.iter().map(|_| None).collect()) };
        let bytes = phase.jobs.first().and_then(|job| job.size_bytes);
        let mut mount = |&column: &usize| {
            let device = self.columns[column].device;
            self.systems.mount(name, &self.devices[device], bytes, self.attach).map(Some)
        };
        step.columns.iter().map(&mut mount).collect()
    }

    fn announce(&self, index: usize, step: &RunStep, observer: &mut dyn Observer, is_repeated: bool) {
        let phases = &self.document.phases;
        let phase = &phases[index];
        let labels: Vec<&str> = step.columns.iter().map(|&one| self.document.columns[one].label.as_str()).collect();
        let of = |phase: &Phase| order(phase).iter().map(|step| steps::estimate(phase, step)).sum::<Duration>();
        let later: Duration = phases[index + 1..].iter().map(of).sum();
        observer.begin(&Begun {
            phase,
            number: phases[..=index].iter().filter(|phase| phase.skipped.is_none()).count(),
            phases: phases.iter().filter(|phase| phase.skipped.is_none()).count(),
            columns: &labels.join(" + "),
            round: step.round,
            is_repeated,
            expected: steps::expected(phase),
            remaining: of(phase).max(steps::estimate(phase, step)) + later,
        });
    }

    /// Ends early.
    fn end(&mut self, state: State, why: &str) -> bool {
        self.document.state = state;
        self.document.trouble = Some(why.to_owned());
        false
    }

    fn save(&mut self) -> Result<(), StoreError> {
        self.document.ended_unix_ms = now_ms();
        self.document.compute_results();
        self.store.save(&self.document)
    }
}

/// A run that another program cannot do: it is not tried again.
fn is_unsupported(run: &Run) -> bool {
    run.failed.as_deref().is_some_and(|why| why.starts_with(load::NOT_MEASURED))
}

fn document(wish: &Wish, plan: &Plan, origin: Provenance) -> Document {
    let now = now_ms();
    Document {
        schema: SCHEMA.to_owned(),
        procedure: wish.procedure,
        title: plan.title.clone(),
        state: State::Running,
        trouble: None,
        quick: wish.quick,
        command: origin.command,
        program: origin.program,
        started_unix_ms: now,
        ended_unix_ms: now,
        resumed: 0,
        machine: machine(origin.programs),
        rounds: wish.rounds,
        columns: plan.columns.iter().map(|column| column.column.clone()).collect(),
        phases: plan.phases.clone(),
        notes: plan.notes.clone(),
        results: Vec::new(),
    }
}

/// This machine, with the state of its interrupts.
fn machine(programs: Vec<String>) -> Machine {
    let mut machine = Machine { programs, ..Machine::this() };
    let name = |text: &String| Some(text.split_once(':')?.0.to_owned());
    let names: Vec<String> = machine.interfaces.iter().filter_map(name).collect();
    machine.settings.extend(interrupts::settings(Path::new("/"), &names));
    machine
}

/// What a report that is there has otherwise than the one that is to be made; `None` if nothing.
fn difference(old: &Document, new: &Document) -> Option<String> {
    if old.procedure != new.procedure {
        return Some(format!("another procedure ({})", old.procedure.name()));
    }
    let devices = |document: &Document| {
        let columns = document.columns.iter();
        let of = |column: &crate::document::Column| (column.device.name.clone(), column.engine, column.variant.clone());
        columns.map(of).collect::<Vec<_>>()
    };
    if devices(old) != devices(new) {
        return Some("other devices or engines".to_owned());
    }
    if old.quick != new.quick {
        return Some("another --quick".to_owned());
    }
    let loads = |document: &Document| {
        let phases = document.phases.iter();
        phases.map(|phase| (phase.id.clone(), phase.jobs.clone(), phase.rounds)).collect::<Vec<_>>()
    };
    (loads(old) != loads(new)).then(|| "other sizes, times or rounds".to_owned())
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
