//! Tasks whose drives have a device that hangs or fails.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use ebof_backend::{Class, Device, Error, Geometry, Io, Memory, OpenError, Operation, Spec, Submitted};
use ebof_manage::enclosure::{Change, Enclosure as _, Phase, Task, TaskState};
use ebof_manage::load;

use super::*;
use crate::enclosure::{Observer, RunningEnclosure};
use crate::environment::settings::Settings;
use crate::environment::{Environment, Storage};
use crate::life::serve::Target;

/// What the devices do with writes.
const WORK: u8 = 0;
const HANG: u8 = 1;
const FAIL: u8 = 2;
/// Large ones fail, which are of data.
const FAIL_DATA: u8 = 3;

#[derive(Debug)]
struct Troubled {
    memory: Memory,
    writes: Arc<AtomicU8>,
}

impl Device for Troubled {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn submit(&self, io: &mut Io, request: ebof_backend::Request) -> Submitted {
        match (self.writes.load(Relaxed), &request.operation) {
            (HANG, Operation::Write { .. }) => Submitted::Busy(request),
            (FAIL, Operation::Write { .. }) | (FAIL_DATA, Operation::Write { len: 0x1_0000.., .. }) => {
                let action = request.operation.action();
                let reason = "as the test wants";
                let error = Error::Refused { action, offset: 0, len: 0, class: Class::MediumWrite, reason };
                Submitted::Done(request.complete(Err(error)))
            }
            _ => self.memory.submit(io, request),
        }
    }

    fn describe(&self) -> String {
        "memory in trouble".to_owned()
    }
}

struct Trouble(Arc<AtomicU8>);

impl Storage for Trouble {
    fn open(&self, _spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
        let memory = Memory::new(128 << 20, 512, false);
        Ok(Arc::new(Troubled { memory, writes: Arc::clone(&self.0) }))
    }

    fn is_missing(&self, _path: &Path) -> bool {
        false
    }

    fn remove(&self, _path: &Path) {}
}

struct Rig {
    target: Arc<Target>,
    enclosure: RunningEnclosure,
    writes: Arc<AtomicU8>,
}

const WEIGHTS: &str = r#"{"change": "weight", "function": "d0/vf1", "weight": 7},
                         {"change": "weight", "function": "d0/vf2", "weight": 8}"#;

impl Rig {
    /// A drive with two functions; `observer` sees what its device does with writes.
    fn new(observer: impl Fn(&Task, &AtomicU8) + Send + Sync + 'static) -> Self {
        let text = "[[ports]]\nname = \"a\"\nlisten = \"tcp://127.0.0.1:0\"\n\
                    [[drives]]\nname = \"d0\"\nbacking = \"d0.img\"\nsize = \"32Mi\"\nfunctions = 2\n\
                    [[subsystems]]\nnqn = \"nqn.2014-08.org.example:d0\"\nallow_any_host = true\ndrive = \"d0\"\n";
        let writes = Arc::new(AtomicU8::new(WORK));
        let environment = Environment { storage: Arc::new(Trouble(Arc::clone(&writes))), ..Environment::default() };
        let settings = Settings { threads: Some(1), pin: false, environment, ..Settings::default() };
        let target = Arc::new(Target::start(load("a.toml", text).unwrap().config, settings).unwrap());
        let seen = Arc::clone(&writes);
        let observer: Observer = Box::new(move |task| observer(task, &seen));
        Self { enclosure: RunningEnclosure::observed(Arc::clone(&target), observer), target, writes }
    }

    fn begin(&self, changes: &str) -> Task {
        let transaction = serde_json::from_str(&format!("{{\"changes\": [{changes}]}}")).unwrap();
        self.enclosure.begin(transaction).unwrap_or_else(|refused| panic!("{refused}"))
    }

    /// The task when `is_so`.
    fn wait(&self, task: &Task, is_so: impl Fn(&Task) -> bool) -> Task {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let now = self.enclosure.task(task.id, None, Duration::ZERO).unwrap();
            if is_so(&now) {
                return now;
            }
            assert!(Instant::now() < end, "{now:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn make(&self, changes: &str) -> Task {
        self.wait(&self.begin(changes), Task::is_over)
    }

    fn actor(&self) -> Arc<DriveActor> {
        Arc::clone(&self.target.in_force().devices.actors[0].actor)
    }

    fn weights(&self) -> [u16; 2] {
        [1, 2].map(|number| self.actor().view().functions.get(&number).map_or(0, |it| it.share.weight))
    }
}

#[test]
fn a_task_goes_on_when_it_knows_what_became_of_a_request() {
    let rig = Rig::new(|_, _| ());
    for changes in [r#"{"change": "assign", "function": "d0/vf1", "port": "a"}"#, WEIGHTS] {
        rig.writes.store(HANG, Relaxed);
        let task = rig.begin(changes);
        let told =
            |task: &Task| task.detail.as_deref().is_some_and(|text| text.contains("d0") && text.contains("device"));
        assert!(!rig.wait(&task, told).is_over());
        assert_ne!(rig.weights()[0], 7, "it is not stored yet");
        rig.writes.store(WORK, Relaxed);
        let task = rig.wait(&task, Task::is_over);
        assert_eq!((task.state, task.error), (TaskState::Done, None));
    }
    assert_eq!(rig.weights(), [7, 8]);
    assert!(rig.actor().view().functions[&1].ports.iter().eq(["a"]));
    assert!(rig.actor().unfinished().is_empty());
    rig.target.stop(Duration::ZERO);
}

#[test]
fn the_end_of_a_transaction_is_stored_when_that_can_be_done_again() {
    let rig = Rig::new(|task, writes| {
        if task.phase == Phase::Storing && task.change == 1 {
            writes.store(FAIL, Relaxed);
        }
    });
    let error = rig.make(WEIGHTS).error.unwrap();
    assert_eq!((error.change, error.remains.len()), (1, 1), "{error}");
    let actor = rig.actor();
    assert_eq!((actor.unfinished().len(), actor.owed_ends().len()), (1, 1));
    let refused = rig.make(r#"{"change": "weight", "function": "d0/vf2", "weight": 3}"#).error.unwrap();
    assert!(refused.message.contains("earlier transaction"), "{refused}");
    let shown = rig.enclosure.inventory().contradictions;
    assert!(shown.iter().any(|text| text.contains("drive d0") && text.contains("next start")), "{shown:?}");

    rig.writes.store(WORK, Relaxed);
    actor.pay_ends();
    let end = Instant::now() + Duration::from_secs(60);
    while !(actor.unfinished().is_empty() && actor.owed_ends().is_empty()) {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(5));
    }
    rig.writes.store(WORK, Relaxed);
    let made = rig.make(r#"{"change": "weight", "function": "d0/vf2", "weight": 3}"#);
    assert_eq!(made.error, None);
    rig.target.stop(Duration::ZERO);
}

#[test]
fn what_a_task_that_panics_has_made_is_taken_back() {
    let panics = AtomicBool::new(true);
    let rig = Rig::new(move |task, _| {
        let is_now = task.change == 1 && matches!(task.changes[..], [Change::Weight { .. }, ..]);
        assert!(!(is_now && panics.swap(false, Relaxed)), "as it is to be here");
    });
    let before = rig.weights();
    assert!(rig.make(WEIGHTS).error.unwrap().message.contains("panic"));
    assert_eq!(rig.weights(), before, "the first change is taken back");
    assert!(rig.actor().unfinished().is_empty());
    assert_eq!(rig.make(WEIGHTS).error, None);
    assert_eq!(rig.weights(), [7, 8]);
    rig.target.stop(Duration::ZERO);
}

const CREATE: &str = r#"{"change": "create-namespace", "drive": "d0", "size_bytes": 1048576}"#;

#[test]
fn a_namespace_that_cannot_be_stored_is_not_there() {
    let rig = Rig::new(|_, _| ());
    rig.writes.store(FAIL, Relaxed);
    let task = rig.make(CREATE);
    let error = task.error.unwrap();
    assert!(error.message.contains("Internal Error") && task.made.is_empty() && error.remains.is_empty(), "{error}");
    assert!(rig.actor().view().namespaces.is_empty());
    rig.writes.store(WORK, Relaxed);
    assert_eq!(rig.make(CREATE).made, ["d0/ns1"]);
    rig.target.stop(Duration::ZERO);
}

#[test]
fn what_was_created_before_the_device_failed_is_said_to_be_left() {
    let rig = Rig::new(|task, writes| {
        if task.changes.len() > 1 && task.phase == Phase::Storing && task.change == 1 {
            writes.store(FAIL, Relaxed);
        }
    });
    let weight = r#"{"change": "weight", "function": "d0/vf1", "weight": 7}"#;
    let error = rig.make(&format!("{CREATE}, {weight}")).error.unwrap();
    assert!(error.change == 1 && error.remains.iter().any(|left| left.starts_with("d0/ns1 stays: ")), "{error}");
    let actor = rig.actor();
    assert_eq!((actor.view().namespaces.len(), actor.unfinished().len()), (1, 1));
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_drive_that_cannot_be_sanitized_says_so_and_that_state_can_be_left() {
    let rig = Rig::new(|_, _| ());
    rig.make(CREATE);
    let sanitize = r#"{"change": "sanitize-drive", "drive": "d0", "action": "overwrite", "passes": 16,
                       "allow_exit_after_failure": true}"#;
    rig.writes.store(FAIL_DATA, Relaxed);
    let error = rig.make(sanitize).error.unwrap();
    rig.writes.store(WORK, Relaxed);
    assert!(error.message.contains("could not be sanitized") && error.advice.contains("exit-failure"), "{error}");
    let advice = rig.make(CREATE).error.unwrap().advice;
    assert!(
        advice.contains("or sanitize it again, without allowing that (--allow-exit-after-failure): all data are lost"),
        "{advice}"
    );
    let exit = r#"{"change": "sanitize-drive", "drive": "d0", "action": "exit-failure"}"#;
    assert_eq!(rig.make(exit).error, None);
    assert_eq!(rig.make(CREATE).error, None);
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_format_waits_for_its_device_and_says_so() {
    let rig = Rig::new(|task, writes| {
        if matches!(task.changes[..], [Change::FormatNamespace(_)]) && task.phase == Phase::Storing {
            writes.store(HANG, Relaxed);
        }
    });
    rig.make(CREATE);
    let format = r#"{"change": "format-namespace", "namespace": "d0/ns1", "erase": "user-data"}"#;
    let task = rig.begin(format);
    let told = |task: &Task| task.detail.as_deref().is_some_and(|text| text.contains("device does not answer"));
    assert!(!rig.wait(&task, |task| told(task) || task.is_over()).is_over());
    rig.writes.store(WORK, Relaxed);
    assert_eq!(rig.wait(&task, Task::is_over).error, None);
    rig.target.stop(Duration::ZERO);
}
