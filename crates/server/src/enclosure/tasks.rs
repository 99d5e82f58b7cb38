//! The tasks of a target: what they are doing, who waits for that, and which objects they are
//! changing.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ebof_manage::api::Asker;
use ebof_manage::enclosure::{Change, Phase, TASK_SCHEMA, Task, TaskError, TaskState};

use crate::shared::Uptime;

/// Tasks that run at a time.
pub(super) const RUNNING_MAX: usize = 16;

/// Tasks that are remembered after their end.
const ENDED_MAX: usize = 100;

/// The tasks of a target.
pub(super) struct Tasks {
    state: Mutex<State>,
    changed: Condvar,
    clock: Uptime,
    report: Report,
}

/// When the numbers of tasks begin, milliseconds since 1970: on 2025-01-01.
const NUMBERS_BEGIN_UNIX_MS: u64 = 1_735_689_600_000;

/// The number before that of the first task: no task has one that a task of an earlier start had,
/// whose address somebody may still look at. There is less than one task in a millisecond.
fn before_first(now_unix_ms: u64) -> u64 {
    now_unix_ms.saturating_sub(NUMBERS_BEGIN_UNIX_MS)
}

/// Is told of tasks that have begun, have come further, or have ended, one after the other and
/// before anyone sees the task so: who waited for a task finds its events. The tasks are locked
/// meanwhile, so it does not ask for them.
type Report = Box<dyn Fn(&Task) + Send + Sync>;

#[derive(Default)]
struct State {
    last_id: u64,
    /// How many have ended.
    ended: u64,
    /// The oldest first.
    tasks: VecDeque<Kept>,
}

/// Why a task does not begin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotBegun {
    /// Another one has ended since it was checked.
    Outdated,
    /// As many are running as there may be.
    TooMany,
    /// Others are changing these objects: each with its task.
    Taken(Vec<(String, u64)>),
}

struct Kept {
    task: Task,
    began_ms: u64,
    /// The objects that it is changing: a name stands for everything below it, too.
    claims: Vec<String>,
    /// The phase and the tenth of it that were last reported.
    reported: Option<(Phase, u8)>,
}

impl Tasks {
    pub(super) fn new(clock: Uptime, report: Report) -> Self {
        let state = State { last_id: before_first(clock.unix_ms()), ..State::default() };
        Self { state: Mutex::new(state), changed: Condvar::new(), clock, report }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many tasks have ended: what was looked at before another number may be outdated.
    pub(super) fn ended(&self) -> u64 {
        self.state().ended
    }

    /// Begins a task that changes the objects of `claims`, which was checked when so many tasks had
    /// `ended`.
    ///
    /// # Errors
    /// Another task is in the way.
    pub(super) fn begin(
        &self,
        (changes, by): (Vec<Change>, &Asker),
        claims: Vec<String>,
        ended: u64,
    ) -> Result<Task, NotBegun> {
        let mut state = self.state();
        let running = || state.tasks.iter().filter(|kept| !kept.task.is_over());
        if state.ended != ended {
            return Err(NotBegun::Outdated);
        }
        if running().count() >= RUNNING_MAX {
            return Err(NotBegun::TooMany);
        }
        let taken = |claim: &String| {
            let other = running().find(|kept| kept.claims.iter().any(|other| overlap(other, claim)))?;
            Some((claim.clone(), other.task.id))
        };
        let taken: Vec<_> = claims.iter().filter_map(taken).collect();
        if !taken.is_empty() {
            return Err(NotBegun::Taken(taken));
        }
        while state.tasks.len() >= ENDED_MAX + RUNNING_MAX {
            let oldest = state.tasks.iter().position(|kept| kept.task.is_over());
            state.tasks.remove(oldest.expect("fewer of them run than that, as was looked at above"));
        }
        state.last_id += 1;
        let what = match changes.as_slice() {
            [one] => one.to_string(),
            [one, rest @ ..] => format!("{one}, and {} more", rest.len()),
            [] => String::new(),
        };
        let task = Task {
            task_schema: TASK_SCHEMA,
            id: state.last_id,
            revision: 1,
            what,
            changes,
            by: Some(by.clone()),
            state: TaskState::Running,
            change: 0,
            phase: Phase::Waiting,
            percent: 0,
            detail: None,
            began_unix_ms: self.clock.unix_ms(),
            ended_unix_ms: None,
            elapsed_ms: 0,
            made: Vec::new(),
            remark: None,
            error: None,
        };
        state.tasks.push_back(Kept { task: task.clone(), began_ms: self.clock.now_ms(), claims, reported: None });
        (self.report)(&task);
        Ok(task)
    }

    /// Notes how far a task has come.
    pub(super) fn advance(&self, id: u64, change: usize, phase: Phase, percent: u8, detail: Option<String>) {
        self.update(id, |task| {
            (task.change, task.phase, task.percent, task.detail) = (change, phase, percent, detail);
        });
    }

    /// Notes what is to be known about what a task did.
    pub(super) fn remark(&self, id: u64, remark: &str) {
        self.update(id, |task| match &mut task.remark {
            Some(before) => *before = format!("{before}; {remark}"),
            none => *none = Some(remark.to_owned()),
        });
    }

    /// Notes the name of what a task made.
    pub(super) fn add_made(&self, id: u64, name: String) {
        self.update(id, |task| task.made.push(name));
    }

    /// Notes the end of a task; its objects are free.
    pub(super) fn end(&self, id: u64, outcome: Result<(), TaskError>) {
        let now = self.clock.unix_ms();
        self.update(id, |task| {
            task.state = if outcome.is_ok() { TaskState::Done } else { TaskState::Failed };
            (task.phase, task.percent, task.detail) = (Phase::Ended, 100, None);
            if outcome.is_err() {
                task.remark = None;
                task.made.clear();
            }
            (task.error, task.ended_unix_ms) = (outcome.err(), Some(now));
        });
    }

    fn update(&self, id: u64, update: impl FnOnce(&mut Task)) {
        let mut state = self.state();
        let now_ms = self.clock.now_ms();
        let kept = state.tasks.iter_mut().find(|kept| kept.task.id == id);
        let kept = kept.expect("a task is kept while it runs");
        update(&mut kept.task);
        kept.task.revision += 1;
        kept.task.elapsed_ms = now_ms.saturating_sub(kept.began_ms);
        if kept.task.is_over() {
            kept.claims.clear();
        }
        let step = (kept.task.phase, kept.task.percent / 10);
        if kept.reported != Some(step) {
            kept.reported = Some(step);
            (self.report)(&kept.task);
        }
        if kept.task.is_over() {
            state.ended += 1;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// All that are remembered, the latest last.
    pub(super) fn all(&self) -> Vec<Task> {
        let now_ms = self.clock.now_ms();
        self.state().tasks.iter().map(|kept| kept.seen(now_ms)).collect()
    }

    /// The task that is changing an object, or something that it is a part of.
    pub(super) fn changing(&self, object: &str) -> Option<u64> {
        let state = self.state();
        let is_it = |kept: &&Kept| kept.claims.iter().any(|claim| covers(claim, object));
        state.tasks.iter().find(is_it).map(|kept| kept.task.id)
    }

    /// A task, once it has ended or has another revision than `known`, and after `wait` at the
    /// latest.
    pub(super) fn wait(&self, id: u64, known: Option<u64>, wait: Duration) -> Option<Task> {
        let end = Instant::now() + wait;
        let mut state = self.state();
        loop {
            let kept = state.tasks.iter().find(|kept| kept.task.id == id)?;
            let left = end.saturating_duration_since(Instant::now());
            if kept.task.is_over() || known != Some(kept.task.revision) || left.is_zero() {
                return Some(kept.seen(self.clock.now_ms()));
            }
            (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Kept {
    /// As others see it now.
    fn seen(&self, now_ms: u64) -> Task {
        let mut task = self.task.clone();
        if !task.is_over() {
            task.elapsed_ms = now_ms.saturating_sub(self.began_ms);
        }
        task
    }
}

/// Whether `claim` stands for `object`: `d3` does for `d3/vf2`.
fn covers(claim: &str, object: &str) -> bool {
    object.strip_prefix(claim).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn overlap(one: &str, other: &str) -> bool {
    covers(one, other) || covers(other, one)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use ebof_clock::Clock;

    use super::*;

    fn tasks() -> Tasks {
        Tasks::new(Uptime::start(Clock::default()), Box::new(|_| ()))
    }

    fn begin(tasks: &Tasks, claims: &[&str]) -> Result<Task, NotBegun> {
        tasks.begin(
            (Vec::new(), &Asker::Library),
            claims.iter().map(|&claim| claim.to_owned()).collect(),
            tasks.ended(),
        )
    }

    // @test redfish.identifiers
    #[test]
    fn a_later_start_has_later_numbers() {
        let (earlier, now_ms) = (before_first(1_764_000_000_000), 1_764_000_001_000);
        assert!(earlier + 999 < before_first(now_ms) && earlier > 0);
        let (first, second) = (tasks(), tasks());
        let of = |tasks: &Tasks| begin(tasks, &[]).unwrap().id;
        let before = of(&first);
        assert!(of(&first) == before + 1 && of(&second) > 1_000_000_000, "{before}");
    }

    #[test]
    fn an_object_has_one_task_at_a_time() {
        let tasks = tasks();
        let first = begin(&tasks, &["d3/vf2", "d3/ns1"]).unwrap();
        let taken = |object: &str| NotBegun::Taken(vec![(object.to_owned(), first.id)]);
        assert_eq!(begin(&tasks, &["d3/vf2"]).unwrap_err(), taken("d3/vf2"));
        assert_eq!(begin(&tasks, &["d3"]).unwrap_err(), taken("d3"));
        let other = begin(&tasks, &["d3/vf20", "d33"]).unwrap();
        assert_eq!(
            (tasks.changing("d3/vf2"), tasks.changing("d3"), tasks.changing("d33/vf1")),
            (Some(first.id), None, Some(other.id))
        );
        let checked = tasks.ended();
        tasks.end(first.id, Ok(()));
        assert_eq!(
            tasks.begin((Vec::new(), &Asker::Library), vec!["d3/vf2".to_owned()], checked).unwrap_err(),
            NotBegun::Outdated
        );
        assert_eq!(tasks.changing("d3/vf2"), None);
        begin(&tasks, &["d3/vf2"]).unwrap();
    }

    #[test]
    fn as_many_tasks_are_remembered_as_there_is_room_for() {
        let tasks = tasks();
        let first = begin(&tasks, &["d0"]).unwrap();
        for at in 1..300 {
            let task = begin(&tasks, &[&format!("e{at}")]).unwrap();
            tasks.end(task.id, Ok(()));
        }
        assert_eq!(tasks.all().len(), ENDED_MAX + RUNNING_MAX);
        assert!(tasks.wait(first.id, None, Duration::ZERO).is_some(), "one that runs is not forgotten");
        assert!(tasks.wait(2, None, Duration::ZERO).is_none());
        for at in 1..RUNNING_MAX {
            begin(&tasks, &[&format!("f{at}")]).unwrap();
        }
        assert_eq!(begin(&tasks, &["g"]).unwrap_err(), NotBegun::TooMany);
    }

    #[test]
    fn who_sees_the_end_finds_it_reported() {
        let reported = Arc::new(AtomicBool::new(false));
        let report = Arc::clone(&reported);
        let report = move |task: &Task| {
            std::thread::sleep(Duration::from_millis(20));
            report.store(task.is_over(), Relaxed);
        };
        let tasks = Tasks::new(Uptime::start(Clock::default()), Box::new(report));
        let task = begin(&tasks, &["d0"]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| tasks.end(task.id, Ok(())));
            while !tasks.wait(task.id, None, Duration::ZERO).unwrap().is_over() {}
            assert!(reported.load(Relaxed));
        });
    }

    #[test]
    fn who_waits_is_told_of_changes_and_of_the_end() {
        let tasks = tasks();
        let task = begin(&tasks, &["d0"]).unwrap();
        let seen = tasks.wait(task.id, Some(task.revision), Duration::from_millis(1)).unwrap();
        assert_eq!(seen.revision, task.revision, "time is over");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| tasks.wait(task.id, Some(task.revision), Duration::from_secs(60)).unwrap());
            tasks.advance(task.id, 0, Phase::Draining, 20, None);
            assert_eq!(waiting.join().unwrap().phase, Phase::Draining);
        });
        tasks.end(task.id, Ok(()));
        let over = tasks.wait(task.id, Some(3), Duration::from_secs(60)).unwrap();
        assert_eq!((over.state, over.percent), (TaskState::Done, 100));
    }
}
