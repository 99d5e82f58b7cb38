//! What a process gives up once it knows what it is to do: new privileges, capabilities, system
//! calls, paths, dumps of its memory.
//!
//! This crate owns how that is done, what is kept for the processes of ebof, and what is told of
//! it. It deliberately knows no configuration: who calls says which measures there are to be, and
//! which paths. Nothing is given back.

mod calls;
mod capabilities;
mod install;
mod paths;

use std::io;

use ebof_manage::api::{Confinement, MeasureState, MeasureStatus};
use ebof_manage::config::{Measure, Measures};
use landlock::RulesetStatus;
use rustix::process::DumpableBehavior;
pub use rustix::thread::CapabilitySet;

pub use calls::Calls;
pub use capabilities::{ATTACH_CAPABILITIES, TARGET_CAPABILITIES};
pub use paths::Paths;

/// What a process keeps.
#[derive(Clone, Debug)]
pub struct Rights {
    /// The measures to take.
    pub measures: Measures,
    /// The capabilities that it keeps, of those that it has.
    pub capabilities: CapabilitySet,
    /// Which system calls it keeps.
    pub calls: Calls,
    /// What it may open.
    pub paths: Paths,
}

/// Why a measure is not in force, or not as a whole.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(
        "this kernel has no Landlock (CONFIG_SECURITY_LANDLOCK, and `landlock` in `lsm=`): every path can be opened"
    )]
    NoLandlock,
    #[error("this kernel's Landlock is an older one: some operations on files are not refused")]
    OldLandlock,
    #[error("threads run already, and would keep what this one gives up")]
    Threads,
    #[error("Landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
    #[error("no filter for this processor: {0}")]
    Filter(#[from] seccompiler::BackendError),
    #[error("the filter is not taken: {0}")]
    Install(io::Error),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl Rights {
    /// Gives up what is not kept, for good, and tells what became of it. To be called while the
    /// process has one thread. What this kernel does not know is told, and not done.
    #[must_use]
    pub fn apply(&self) -> Confinement {
        let alone = is_single_threaded();
        // The filter last: it refuses what the others need.
        let order = [Measure::Privileges, Measure::Paths, Measure::Capabilities, Measure::Dumps, Measure::SystemCalls];
        let mut measures = order.map(|measure| self.status(measure, alone)).to_vec();
        measures.sort_by_key(|it| it.measure);
        let mut confinement = Confinement { measures, capabilities: capabilities::names(), paths: Vec::new() };
        if confinement.has(Measure::Paths) {
            confinement.paths = self.paths.rights().to_vec();
        }
        confinement
    }

    fn status(&self, measure: Measure, alone: bool) -> MeasureStatus {
        if !self.has(measure) {
            return MeasureStatus { measure, state: MeasureState::Off, problem: None };
        }
        let (state, problem) = match self.take(measure, alone) {
            Ok(()) => (MeasureState::On, None),
            Err(problem @ Problem::OldLandlock) => (MeasureState::Partly, Some(problem.to_string())),
            Err(problem) => (MeasureState::Failed, Some(problem.to_string())),
        };
        MeasureStatus { measure, state, problem }
    }

    /// Whether it is asked for, by itself or by what needs it.
    fn has(&self, measure: Measure) -> bool {
        let needs_no_privileges = self.measures.has(Measure::SystemCalls) || self.measures.has(Measure::Paths);
        self.measures.has(measure) || measure == Measure::Privileges && needs_no_privileges
    }

    fn take(&self, measure: Measure, alone: bool) -> Result<(), Problem> {
        // The filter takes the privileges of all threads, Landlock those of one.
        let of_all = matches!(measure, Measure::SystemCalls | Measure::Dumps)
            || measure == Measure::Privileges && self.measures.has(Measure::SystemCalls);
        if !alone && !of_all {
            return Err(Problem::Threads);
        }
        match measure {
            Measure::Privileges => Ok(rustix::thread::set_no_new_privs(true).map_err(io::Error::from)?),
            Measure::Capabilities => Ok(capabilities::keep(self.capabilities)?),
            Measure::Paths => match self.paths.confine()? {
                RulesetStatus::FullyEnforced => Ok(()),
                RulesetStatus::PartiallyEnforced => Err(Problem::OldLandlock),
                RulesetStatus::NotEnforced => Err(Problem::NoLandlock),
            },
            Measure::Dumps => {
                let hidden = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
                Ok(hidden.map_err(io::Error::from)?)
            }
            Measure::SystemCalls => {
                for filter in &calls::filters(self.calls)? {
                    install::for_all_threads(filter).map_err(Problem::Install)?;
                }
                Ok(())
            }
        }
    }
}

/// Whether this is the only thread. The kernel's workers of an io_uring that was used are listed,
/// too: they run no code of the process, and every request with the rights of who has made it.
fn is_single_threaded() -> bool {
    let is_worker = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("iou-"))
    };
    let tasks = std::fs::read_dir("/proc/self/task");
    tasks.is_ok_and(|tasks| tasks.flatten().filter(|task| !is_worker(task)).count() == 1)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
