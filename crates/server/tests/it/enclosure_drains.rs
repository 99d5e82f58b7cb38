//! A function leaves its port when nothing of its hosts is at its drive any more.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebof_backend::{Device, Geometry, Io, Memory, OpenError, Operation, Remote, Request, Spec, Submitted};
use ebof_manage::enclosure::{Change, Enclosure as _, Phase, Task, TaskState};
use ebof_server::{Environment, RunningEnclosure, Settings, Storage, Target};

use crate::drive_rig::wait;
use crate::enclosure_rig::{Rig, assign, config, function, moved, settings, transaction};

/// The disk below a drive, which keeps writes while it is shut.
#[derive(Debug)]
pub(crate) struct Disk {
    memory: Memory,
    is_shut: AtomicBool,
    kept: Mutex<Vec<(Remote, Request)>>,
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        if !(self.is_shut.load(Relaxed) && matches!(request.operation, Operation::Write { .. })) {
            return self.memory.submit(io, request);
        }
        let Some(remote) = io.remote() else { return Submitted::Busy(request) };
        self.kept.lock().unwrap().push((remote, request));
        Submitted::Pending
    }

    fn describe(&self) -> String {
        "a disk".to_owned()
    }
}

impl Disk {
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        let memory = Memory::new(bytes, 512, false);
        Arc::new(Self { memory, is_shut: AtomicBool::default(), kept: Mutex::default() })
    }

    pub(crate) fn shut(&self) {
        self.is_shut.store(true, Relaxed);
    }

    /// How many writes it keeps.
    pub(crate) fn kept(&self) -> usize {
        self.kept.lock().unwrap().len()
    }

    pub(crate) fn open(&self) {
        self.is_shut.store(false, Relaxed);
        let mut io = Io::new(16).unwrap();
        for (remote, request) in self.kept.lock().unwrap().drain(..) {
            let Submitted::Done(completion) = self.memory.submit(&mut io, request) else { panic!("memory is quick") };
            remote.deliver(completion);
        }
    }
}

pub(crate) struct Disks(pub(crate) Arc<Disk>);

impl Storage for Disks {
    fn open(&self, _spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
        Ok(Arc::<Disk>::clone(&self.0))
    }

    fn is_missing(&self, _path: &Path) -> bool {
        false
    }

    fn remove(&self, _path: &Path) {}
}

#[test]
fn a_function_is_moved_when_the_commands_of_its_hosts_have_ended() {
    let disk = Disk::new(256 << 20);
    let environment = Environment { storage: Arc::new(Disks(Arc::clone(&disk))), ..Environment::default() };
    let target = Arc::new(Target::start(config("disk"), Settings { environment, ..settings() }).unwrap());
    let (tell, phases) = channel();
    let observer = move |task: &Task| {
        if matches!(task.changes[0], Change::Move { .. }) {
            let _the_test_has_ended = tell.send(task.phase);
        }
    };
    let rig = Rig { enclosure: RunningEnclosure::observed(Arc::clone(&target), Box::new(observer)), target };
    let nsid = rig.namespace("d0/vf1");
    rig.made(&assign("d0/vf1", "a"));
    let host = rig.connect("a", &function(1));
    let namespace = host.namespace(nsid).unwrap();
    disk.shut();
    // Its connection is closed before the answer.
    let writer = std::thread::spawn(move || drop(namespace.write(0, &[7; 4096], false)));
    wait("the write at the disk", || (!disk.kept.lock().unwrap().is_empty()).then_some(()));

    let task = rig.enclosure.begin(transaction(&moved("d0/vf1", "b"))).unwrap();
    let told = [phases.recv().unwrap(), phases.recv().unwrap()];
    let is_over = rig.enclosure.task(task.id, None, Duration::ZERO).unwrap().is_over();
    let port = rig.port_of("d0/vf1");
    disk.open();
    assert_eq!(told, [Phase::Stopping, Phase::Draining], "the write is at the disk");
    assert_eq!((port.as_deref(), is_over), (Some("a"), false));
    assert_eq!(rig.end(&task).state, TaskState::Done);
    let there = rig.connect("b", &function(1));
    let mut data = [0; 4096];
    there.namespace(nsid).unwrap().read(0, &mut data).unwrap();
    assert_eq!(data, [7; 4096]);
    // Until then it tries again.
    host.disconnect();
    writer.join().unwrap();
    rig.target.stop(Duration::ZERO);
}
