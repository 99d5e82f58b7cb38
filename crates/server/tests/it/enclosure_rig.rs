//! A box for tests: a drive with functions, ports, and the tasks that change who has what.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebof_initiator::{Controller, Options};
use ebof_manage::enclosure::{Enclosure as _, Phase, Task, TaskState, Transaction};
use ebof_manage::{Config, load};
use ebof_nvme::{Nqn, Nsid};
use ebof_server::{Observer, RunningEnclosure, Settings, Target};

use crate::drive_rig::wait;

pub(crate) const NQN: &str = "nqn.2014-08.org.example:box:d0";

/// Two ports, and a drive with three functions.
pub(crate) fn config(backing: &str) -> Config {
    config_with(backing, "")
}

/// The same with more.
pub(crate) fn config_with(backing: &str, more: &str) -> Config {
    let text = format!(
        r#"
[[ports]]
name = "a"
listen = "tcp://127.0.0.1:0"
[[ports]]
name = "b"
listen = "tcp://127.0.0.1:0"
[[drives]]
name = "d0"
backing = "{backing}"
{}
functions = 3
[[subsystems]]
nqn = "{NQN}"
allow_any_host = true
ports = ["a"]
drive = "d0"
{more}
"#,
        if backing.starts_with("mem:") { "" } else { "size = \"64Mi\"" }
    );
    load("box.toml", &text).unwrap().config
}

pub(crate) fn settings() -> Settings {
    Settings { threads: Some(2), pin: false, ..Settings::default() }
}

pub(crate) struct Rig {
    pub(crate) target: Arc<Target>,
    pub(crate) enclosure: RunningEnclosure,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::observed(config("mem:256Mi"), Box::new(|_| ()))
    }

    pub(crate) fn observed(config: Config, observer: Observer) -> Self {
        let target = Arc::new(Target::start(config, settings()).unwrap());
        Self { enclosure: RunningEnclosure::observed(Arc::clone(&target), observer), target }
    }

    /// Makes changes; gives the task when it has ended.
    pub(crate) fn make(&self, changes: &str) -> Task {
        let task = self.enclosure.begin(transaction(changes)).unwrap_or_else(|refused| panic!("{refused}"));
        self.end(&task)
    }

    pub(crate) fn end(&self, task: &Task) -> Task {
        wait("a task", || self.enclosure.task(task.id, None, Duration::ZERO).filter(Task::is_over))
    }

    /// The same; it has to succeed.
    pub(crate) fn made(&self, changes: &str) {
        let task = self.make(changes);
        assert_eq!(task.state, TaskState::Done, "{:?}", task.error);
    }

    pub(crate) fn port_of(&self, function: &str) -> Option<String> {
        self.enclosure.inventory().function(&function.parse().unwrap()).unwrap().port().map(str::to_owned)
    }

    /// A host of a subsystem at a port, if it may connect.
    pub(crate) fn try_connect(&self, port: &str, nqn: &str) -> Option<Controller> {
        let (_, address) = self.target.addresses().into_iter().find(|(name, _)| name == port)?;
        let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(nqn).unwrap());
        options.nr_io_queues = 1;
        Controller::connect(&options).ok()
    }

    pub(crate) fn connect(&self, port: &str, nqn: &str) -> Controller {
        wait("a connection", || self.try_connect(port, nqn))
    }

    /// A namespace of the drive, mapped to `function`.
    pub(crate) fn namespace(&self, function: &str) -> Nsid {
        let manager = self.connect("a", NQN);
        let nsid = create_unattached(&manager);
        manager.disconnect();
        self.made(&format!(r#"{{"change": "map", "namespace": "d0/ns{}", "function": "{function}"}}"#, nsid.0));
        nsid
    }
}

pub(crate) fn create_unattached(manager: &Controller) -> Nsid {
    use ebof_initiator::AdminData;
    use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
    use zerocopy::IntoBytes as _;

    let command = NamespaceManagement { select: ManagementSelect::Create, csi: ebof_nvme::identify::Csi::NVM };
    let wanted = NewNamespace::new(16_384);
    let cqe = manager.admin(command.encode(Nsid::NONE), AdminData::FromHost(wanted.as_bytes()), None).unwrap();
    assert!(cqe.status().is_success(), "{}", cqe.status());
    Nsid(u32::try_from(cqe.result() & 0xffff_ffff).unwrap())
}

pub(crate) fn transaction(changes: &str) -> Transaction {
    serde_json::from_str(&format!("{{\"changes\": [{changes}]}}")).unwrap()
}

pub(crate) fn assign(function: &str, port: &str) -> String {
    format!(r#"{{"change": "assign", "function": "{function}", "port": "{port}"}}"#)
}

pub(crate) fn moved(function: &str, port: &str) -> String {
    format!(r#"{{"change": "move", "function": "{function}", "to": "{port}"}}"#)
}

pub(crate) fn function(number: u16) -> String {
    format!("{NQN}:vf{number}")
}

/// An observer that stops each task at `phase` until it is told to go on.
pub(crate) fn gate(phase: Phase) -> (Observer, Receiver<()>, Sender<()>) {
    gate_of(phase, |_| true)
}

/// The same, for some tasks: others pass.
pub(crate) fn gate_of(phase: Phase, is_stopped: fn(&Task) -> bool) -> (Observer, Receiver<()>, Sender<()>) {
    let (arrive, arrived) = channel();
    let (go, goes) = channel();
    let goes = Mutex::new(goes);
    let observer = move |task: &Task| {
        if task.phase == phase && is_stopped(task) {
            arrive.send(()).unwrap();
            // An error is a test that has ended.
            let _goes = goes.lock().unwrap().recv();
        }
    };
    (Box::new(observer), arrived, go)
}

/// A target with this drive, once whoever had it has let it go.
pub(crate) fn reopened(config: &Config) -> Rig {
    wait("the lock of the file", || {
        let target = Arc::new(Target::start(config.clone(), settings()).ok()?);
        Some(Rig { enclosure: RunningEnclosure::new(Arc::clone(&target)), target })
    })
}
