//! Functions at direct ports: each has one function, moves between direct and fabric ports with
//! clients attached, and what becomes of wrong ones.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ebof_manage::Target as _;
use ebof_manage::config::Port;
use ebof_manage::enclosure::{Change, Enclosure as _, MistakeKind, Phase, TaskState};
use ebof_manage::{Config, Listen};
use ebof_nvme::{Nsid, Status};
use ebof_server::{Observer, RunningEnclosure, Target};

use crate::direct::{READ, WRITE};
use crate::direct_rig::{DATA, Guest, transfer};
use crate::drive_rig::wait;
use crate::enclosure_rig::{
    NQN, Rig, assign, config_with, function, gate, gate_of, moved, reopened, settings, transaction,
};

/// A box with the direct ports `direct1` and `direct2`, beside `a` and `b`.
struct DirectBox {
    folder: tempfile::TempDir,
    rig: Rig,
}

impl DirectBox {
    fn new() -> Self {
        Self::observed(Box::new(|_| ()))
    }

    fn observed(observer: Observer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let rig = Rig::observed(box_config(folder.path()), observer);
        Self { folder, rig }
    }

    fn socket(&self, number: u16) -> PathBuf {
        socket(self.folder.path(), number)
    }
}

fn socket(folder: &Path, number: u16) -> PathBuf {
    folder.join(format!("{number}.sock"))
}

fn box_config(folder: &Path) -> Config {
    let mut ports = String::new();
    for number in [1, 2] {
        let path = socket(folder, number);
        writeln!(ports, "[[ports]]\nname = \"direct{number}\"\nlisten = \"vfio-user:{}\"", path.display()).unwrap();
    }
    config_with(folder.join("d0.img").to_str().unwrap(), &ports)
}

/// `config` with a subsystem at a direct port.
fn with_subsystem(config: &Config, port: &str) -> Config {
    let mut config = config.clone();
    let nqn = ebof_nvme::Nqn::parse("nqn.2014-08.org.example:plain").unwrap();
    let mut subsystem = ebof_manage::config::Subsystem::new(nqn);
    subsystem.ports = vec![port.to_owned()];
    subsystem.allow_any_host = true;
    config.subsystems.push(subsystem);
    config
}

/// Reads the first blocks of the namespace.
fn first_block(guest: &mut Guest) -> Vec<u8> {
    let mut io = guest.create(1, 64);
    assert_eq!(guest.call(&mut io, transfer(READ, 0, 8, DATA, 0)).status(), Status::SUCCESS);
    guest.get(DATA, 4096)
}

#[test]
fn a_function_goes_from_fabric_to_direct_to_direct_to_fabric_to_none() {
    let it = DirectBox::new();
    let rig = &it.rig;
    assert_eq!(rig.namespace("d0/vf1"), Nsid(1));
    rig.made(&assign("d0/vf1", "a"));
    let host = rig.connect("a", &function(1));
    host.namespace(Nsid(1)).unwrap().write(0, &[1; 4096], false).unwrap();

    rig.made(&moved("d0/vf1", "direct1"));
    assert!(rig.try_connect("a", &function(1)).is_none());
    let mut one = Guest::enabled(&it.socket(1));
    assert_eq!(first_block(&mut one), [1; 4096]);

    // The client stays attached: its controller fails, and there is none to be enabled any more.
    rig.made(&moved("d0/vf1", "direct2"));
    one.await_status(2, 2);
    let mut two = Guest::enabled(&it.socket(2));
    assert_eq!(first_block(&mut two), [1; 4096]);
    two.put(DATA, &[2; 4096]);
    let mut io = two.create(2, 64);
    assert_eq!(two.call(&mut io, transfer(WRITE, 0, 8, DATA, 0)).status(), Status::SUCCESS);
    let shown = rig.enclosure.inventory().function(&"d0/vf1".parse().unwrap()).unwrap().clone();
    assert_eq!((shown.port(), shown.hosts.len(), shown.hosts[0].cntlid), (Some("direct2"), 1, 1));

    rig.made(&moved("d0/vf1", "b"));
    two.await_status(2, 2);
    let there = rig.connect("b", &function(1));
    let mut data = [0; 4096];
    there.namespace(Nsid(1)).unwrap().read(0, &mut data).unwrap();
    assert_eq!(data, [2; 4096]);

    rig.made(r#"{"change": "assign", "function": "d0/vf1", "port": null}"#);
    assert!(rig.try_connect("b", &function(1)).is_none());
    rig.made(&assign("d0/vf1", "direct1"));
    one.disable();
    one.enable();
    assert_eq!(first_block(&mut one), [2; 4096], "the first client had stayed");
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_direct_port_is_claimed_by_who_is_given_it_and_by_who_leaves_it() {
    let (one, two) = (assign("d0/vf1", "direct1"), assign("d0/vf2", "direct1"));
    for (phase, before, first, second) in [
        (Phase::Stopping, None, &one, &two),
        (Phase::Stopping, None, &one, &add_drive("direct1")),
        // It is stored at the other port already, and may still come back.
        (Phase::Binding, Some(&one), &moved("d0/vf1", "a"), &two),
        (Phase::Binding, Some(&one), &moved("d0/vf1", "a"), &add_drive("direct1")),
    ] {
        let (observer, arrived, go) = gate(phase);
        let it = DirectBox::observed(observer);
        let rig = &it.rig;
        if let Some(before) = before {
            let task = rig.enclosure.begin(transaction(before)).unwrap();
            arrived.recv().unwrap();
            go.send(()).unwrap();
            assert_eq!(rig.end(&task).state, TaskState::Done);
        }
        let task = rig.enclosure.begin(transaction(first)).unwrap();
        arrived.recv().unwrap();
        let refused = rig.enclosure.begin(transaction(second)).unwrap_err();
        assert!(refused.is_busy() && refused.mistakes[0].object == "port direct1", "{first}: {refused}");
        drop(go);
        assert_eq!(rig.end(&task).state, TaskState::Done);
        rig.target.stop(Duration::ZERO);
    }
}

#[test]
fn a_direct_port_that_is_taken_is_refused() {
    let it = DirectBox::new();
    it.rig.made(&assign("d0/vf2", "direct1"));
    for wrong in [assign("d0/vf3", "direct1"), add_drive("direct1")] {
        let refused = it.rig.enclosure.begin(transaction(&wrong)).unwrap_err();
        assert_eq!(refused.mistakes[0].kind, MistakeKind::Conflict, "{refused}");
        assert!(refused.to_string().contains("port direct1 has d0/vf2 already"), "{refused}");
    }
    it.rig.target.stop(Duration::ZERO);
}

fn add_drive(port: &str) -> String {
    format!(r#"{{"change": "add-drive", "drive": {{"name": "d1", "backing": "mem:64Mi"}}, "ports": ["{port}"]}}"#)
}

#[test]
fn an_added_drive_is_at_fabric_ports_unless_it_names_others() {
    let it = DirectBox::new();
    it.rig.made(r#"{"change": "add-drive", "drive": {"name": "d1", "backing": "mem:64Mi"}}"#);
    assert_eq!(it.rig.enclosure.inventory().drive("d1").unwrap().ports, ["a"]);
    it.rig.made(r#"{"change": "remove-drive", "drive": "d1"}"#);
    it.rig.made(&add_drive("direct2"));
    let refused = it.rig.enclosure.begin(transaction(&assign("d0/vf1", "direct2"))).unwrap_err();
    assert!(refused.to_string().contains("port direct2 has drive d1 already"), "{refused}");
    it.rig.target.stop(Duration::ZERO);
}

#[test]
fn a_configuration_does_not_take_the_direct_port_of_a_function() {
    let (observer, arrived, go) = gate_of(Phase::Storing, |task| matches!(task.changes[..], [Change::Move { .. }]));
    let it = DirectBox::observed(observer);
    let rig = &it.rig;
    rig.namespace("d0/vf1");
    rig.made(&assign("d0/vf1", "direct1"));
    let mut guest = Guest::enabled(&it.socket(1));
    let before = rig.target.config();
    let error = rig.target.apply(with_subsystem(&before, "direct1")).unwrap_err().to_string();
    assert!(error.contains("org.example:plain cannot have direct port direct1, which has d0/vf1"), "{error}");
    assert_eq!(rig.target.config(), before);
    assert_eq!(first_block(&mut guest).len(), 4096, "nothing was disturbed");

    // A port that is taken while a function is on its way to it.
    let task = rig.enclosure.begin(transaction(&moved("d0/vf1", "direct2"))).unwrap();
    arrived.recv().unwrap();
    guest.await_status(2, 2);
    assert_ne!(guest.read32(0x1c), u32::MAX, "it is not unplugged yet: the function may come back");
    rig.target.apply(with_subsystem(&before, "direct2")).unwrap();
    drop(go);
    let error = rig.end(&task).error.unwrap();
    assert_eq!((error.phase, &error.remains), (Phase::Binding, &Vec::new()), "{error}");
    assert!(error.message.contains("port direct2 cannot have it"), "{error}");
    guest.disable();
    guest.enable();
    rig.target.stop(Duration::ZERO);
}

#[test]
fn what_drives_remember_of_direct_ports_is_shown_once() {
    let it = DirectBox::new();
    it.rig.made(&assign("d0/vf1", "direct1"));
    it.rig.made(&assign("d0/vf2", "direct2"));
    // As on a drive that comes from another box.
    let given =
        ebof_drive::Request::GiveTo(ebof_drive::FunctionId(2), ebof_drive::PortNames::new(["direct1"]).unwrap());
    it.rig.target.ask_drive("d0", given).unwrap().unwrap();
    let shown = || it.rig.enclosure.inventory();
    assert_eq!(shown().contradictions.len(), 1, "{:?}", shown().contradictions);
    assert!(shown().contradictions[0].contains("direct1 is given to d0/vf1 and d0/vf2"));
    it.rig.namespace("d0/vf1");
    let mut guest = Guest::enabled(&it.socket(1));
    assert_eq!(first_block(&mut guest), [0; 4096], "who came first has the port and its namespace");
    it.rig.target.stop(Duration::from_secs(5));
    let DirectBox { folder, rig } = it;
    drop((rig, guest));
    // A subsystem of the configuration has it before functions that remember it.
    let rig = reopened(&with_subsystem(&box_config(folder.path()), "direct1"));
    let contradictions = rig.enclosure.inventory().contradictions;
    assert!(contradictions[0].contains("org.example:plain and d0/vf1 and d0/vf2"), "{contradictions:?}");
    let mut guest = Guest::enabled(&socket(folder.path(), 1));
    assert!(guest.identify().starts_with("nqn.2014-08.org.example:plain"));
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_move_to_a_direct_port_that_vanishes_goes_back() {
    let (observer, arrived, go) = gate(Phase::Binding);
    let it = DirectBox::observed(observer);
    let rig = &it.rig;
    let first = rig.enclosure.begin(transaction(&assign("d0/vf1", "direct1"))).unwrap();
    arrived.recv().unwrap();
    go.send(()).unwrap();
    assert_eq!(rig.end(&first).state, TaskState::Done);
    let task = rig.enclosure.begin(transaction(&moved("d0/vf1", "direct2"))).unwrap();
    arrived.recv().unwrap();
    let mut without = rig.target.config();
    without.ports.retain(|port| port.name != "direct2");
    rig.target.apply(without).unwrap();
    wait("the end of the socket", || (!it.socket(2).exists()).then_some(()));
    drop(go);
    let error = rig.end(&task).error.unwrap();
    assert_eq!((error.phase, &error.remains), (Phase::Binding, &Vec::new()), "{error}");
    assert_eq!(rig.port_of("d0/vf1").as_deref(), Some("direct1"));
    rig.namespace("d0/vf1");
    drop(Guest::enabled(&it.socket(1)));
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_socket_that_cannot_be_made_is_refused_and_disturbs_nothing() {
    let it = DirectBox::new();
    let rig = &it.rig;
    rig.namespace("d0/vf1");
    rig.made(&assign("d0/vf1", "direct1"));
    let mut guest = Guest::enabled(&it.socket(1));
    let file = it.folder.path().join("notes.txt");
    std::fs::write(&file, "keep").unwrap();
    let before = rig.target.config();
    // A file, a live socket, a folder that is not there, and one that nobody can write.
    let taken = it.folder.path().join("taken.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&taken).unwrap();
    for path in [&file, &taken, &it.folder.path().join("none/3.sock"), &PathBuf::from("/proc/self/3.sock")] {
        let mut with = before.clone();
        with.ports.push(Port { name: "direct3".into(), ..Port::new(9, Listen::vfio_user(path)) });
        let error = rig.target.apply(with.clone()).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert_eq!(rig.target.config(), before);
        let refused = rig.enclosure.begin(transaction(&moved("d0/vf1", "direct3"))).unwrap_err();
        assert_eq!(refused.mistakes[0].kind, MistakeKind::NotFound, "{refused}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "keep");
    assert_eq!(first_block(&mut guest).len(), 4096);
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_client_that_dies_in_the_middle_of_commands_does_not_hold_a_move_up() {
    let (observer, arrived, go) = gate(Phase::Stopping);
    let it = DirectBox::observed(observer);
    let rig = &it.rig;
    rig.namespace("d0/vf1");
    let given = rig.enclosure.begin(transaction(&assign("d0/vf1", "direct1"))).unwrap();
    arrived.recv().unwrap();
    go.send(()).unwrap();
    assert_eq!(rig.end(&given).state, TaskState::Done);
    for to in ["direct2", "direct1", "direct2", "direct1"] {
        let from = if to == "direct1" { 2 } else { 1 };
        let mut guest = Guest::enabled(&it.socket(from));
        let mut io = guest.create(1, 64);
        let before = io.tail;
        for at in 0..60 {
            guest.push(&mut io, transfer(WRITE, at * 8, 8, DATA, 0));
        }
        let task = rig.enclosure.begin(transaction(&moved("d0/vf1", to))).unwrap();
        arrived.recv().unwrap();
        guest.ring(&io, before);
        // Its memory and its socket go while its commands are under way.
        drop(guest);
        go.send(()).unwrap();
        let task = rig.end(&task);
        assert_eq!(task.state, TaskState::Done, "{:?}", task.error);
    }
    drop(Guest::enabled(&it.socket(1)));
    drop(go);
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_second_move_at_direct_ports_is_refused() {
    let (observer, arrived, go) = gate(Phase::Stopping);
    let it = DirectBox::observed(observer);
    let rig = &it.rig;
    let first = rig.enclosure.begin(transaction(&assign("d0/vf1", "direct1"))).unwrap();
    arrived.recv().unwrap();
    for to in ["direct1", "direct2", "a"] {
        let refused = rig.enclosure.begin(transaction(&assign("d0/vf1", to))).unwrap_err();
        assert!(refused.is_busy(), "{refused}");
    }
    // Another function goes to another direct port meanwhile.
    let other = rig.enclosure.begin(transaction(&assign("d0/vf2", "direct2"))).unwrap();
    drop(go);
    assert_eq!(rig.end(&first).state, TaskState::Done);
    assert_eq!(rig.end(&other).state, TaskState::Done);
    rig.target.stop(Duration::ZERO);
}

/// The target is used as other tests have it, too.
#[test]
fn two_tasks_that_want_one_port_never_both_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let target = Arc::new(Target::start(box_config(folder.path()), settings()).unwrap());
    let enclosure = RunningEnclosure::new(Arc::clone(&target));
    for round in 0..20 {
        let tasks: Vec<_> = std::thread::scope(|scope| {
            let begin = |number| {
                let enclosure = &enclosure;
                scope.spawn(move || enclosure.begin(transaction(&assign(&format!("d0/vf{number}"), "direct1"))))
            };
            let begun = [1, 2, 3].map(begin);
            begun.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect()
        });
        for task in &tasks {
            let end = enclosure.task(task.id, Some(u64::MAX), Duration::ZERO);
            let mut end = end.unwrap();
            while end.state == TaskState::Running {
                end = enclosure.task(end.id, Some(end.revision), Duration::from_secs(20)).unwrap();
            }
        }
        let inventory = enclosure.inventory();
        let given = &inventory.port("direct1").unwrap().functions;
        assert_eq!(given.len(), 1, "round {round}: {given:?}");
        let free = format!(r#"{{"change": "assign", "function": "{}", "port": null}}"#, given[0]);
        let task = enclosure.begin(transaction(&free)).unwrap();
        wait("a task", || enclosure.task(task.id, None, Duration::ZERO).filter(ebof_manage::enclosure::Task::is_over));
    }
    assert!(enclosure.inventory().drives[0].nqn.starts_with(NQN));
    target.stop(Duration::ZERO);
}
