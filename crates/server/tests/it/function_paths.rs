//! A function at several fabric ports: paths to one subsystem, of which some are left and others
//! stay.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use ebof_initiator::{AdminData, Controller, Options, Subsystem};
use ebof_manage::Target as _;
use ebof_manage::enclosure::{Enclosure as _, HostObject, Phase, Task, TaskState};
use ebof_nvme::identify::Cns;
use ebof_nvme::log::AnaState;
use ebof_nvme::{Nqn, Nsid};

use crate::drive_rig::wait;
use crate::enclosure_rig::{NQN, Rig, assign, config, function, gate_of, moved, transaction};

const VF1: &str = "d0/vf1";

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn at(change: &str, ports: &[&str]) -> String {
    let key = if change == "move" { "to" } else { "port" };
    serde_json::json!({ "change": change, "function": VF1, key: ports }).to_string()
}

/// The controllers that hosts have of the function, by port.
fn hosts(rig: &Rig) -> Vec<HostObject> {
    let mut hosts = rig.enclosure.inventory().function(&VF1.parse().unwrap()).unwrap().hosts.clone();
    hosts.sort_by(|one, other| one.port.cmp(&other.port));
    hosts
}

/// What the host at a port is told of the access to its namespaces.
fn access(host: &Controller) -> AnaState {
    let mut page = [0; 1024];
    host.log_page(Nsid::NONE, 0x0c, 0, &mut page).unwrap();
    // The first descriptor follows a header of 16 bytes.
    AnaState(page[32] & 0xf)
}

/// The ports at which a host that asks at port `a` finds the function.
fn listed(rig: &Rig, discovery: &Controller) -> Vec<String> {
    let log = discovery.discovery_log().unwrap();
    let own = log.entries.iter().filter(|entry| entry.subsystem_nqn().to_string() == function(1));
    let name = |service: &str| {
        let found = rig.target.addresses().into_iter().find(|(_, address)| address.port().to_string() == service);
        found.unwrap().0
    };
    let mut ports: Vec<String> = own.map(|entry| name(&entry.service_id().to_string())).collect();
    ports.sort();
    ports
}

fn discovery(rig: &Rig) -> Controller {
    let (_, address) = rig.target.addresses().into_iter().find(|(name, _)| name == "a").unwrap();
    Controller::connect(&Options::new(address.ip().to_string(), address.port(), Nqn::discovery())).unwrap()
}

// @test drive.function-paths
#[test]
fn a_function_at_two_ports_is_one_subsystem() {
    let rig = Rig::new();
    let nsid = rig.namespace(VF1);
    rig.made(&at("assign", &["a", "b"]));
    let inventory = rig.enclosure.inventory();
    for port in ["a", "b"] {
        assert_eq!(inventory.port(port).unwrap().functions.len(), 1, "{port}");
    }
    let asking = discovery(&rig);
    assert_eq!(listed(&rig, &asking), ["a", "b"]);
    let [one, other] = ["a", "b"].map(|port| rig.connect(port, &function(1)));
    let (here, there) = (one.identify(), other.identify());
    assert_eq!((here.subnqn, here.sn, here.mn), (there.subnqn, there.sn, there.mn));
    assert_ne!(one.id(), other.id());
    assert_eq!(here.cmic & 0b11, 0b11, "several ports and controllers");
    let nguid = |host: &Controller| host.identify_namespace(nsid).unwrap().nguid;
    assert_eq!(nguid(&one), nguid(&other));
    one.namespace(nsid).unwrap().write(0, &[7; 4096], false).unwrap();
    let mut data = [0; 4096];
    other.namespace(nsid).unwrap().read(0, &mut data).unwrap();
    assert_eq!(data, [7; 4096]);
    rig.target.stop(Duration::from_secs(5));
}

// @test drive.function-paths
#[test]
fn hosts_may_share_a_namespace_where_its_function_has_several_ports() {
    let rig = Rig::new();
    // Made without NMIC, as nvme-cli does by default: it may be attached to one function only.
    let nsid = rig.namespace(VF1);
    rig.made(&at("assign", &["a"]));
    let nmic = |host: &Controller| {
        let data = host.identify_namespace(nsid).unwrap();
        assert_eq!(host.identify_bytes(Cns::INDEPENDENT_NAMESPACE, nsid).unwrap()[1], data.nmic);
        data.nmic
    };
    assert_eq!(nmic(&rig.connect("a", &function(1))), 0);
    // A device that was there before takes the second path, too.
    let options = |port| rig.connect(port, &function(1)).options().clone();
    let device = Subsystem::connect(&[options("a")]).unwrap();
    let namespace = device.open(nsid).unwrap();
    rig.made(&at("assign", &["a", "b"]));
    device.add(&options("b")).unwrap();
    namespace.write(0, &[7; 4096], false).unwrap();
    device.disconnect();
    for port in ["a", "b"] {
        assert_eq!(nmic(&rig.connect(port, &function(1))), 1, "a host at {port} may have another path");
    }
    rig.target.stop(Duration::from_secs(5));
}

// @test drive.function-paths
#[test]
fn what_stays_of_a_function_notices_nothing_of_what_comes_and_goes() {
    let rig = Rig::new();
    let nsid = rig.namespace(VF1);
    rig.made(&at("assign", &["b"]));
    let staying = rig.connect("b", &function(1));
    let there = |rig: &Rig| -> Vec<_> {
        let hosts = hosts(rig).into_iter();
        hosts.map(|host| (host.port, host.cntlid, host.peer, host.connected_since_unix_ms)).collect()
    };
    let before = there(&rig);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also if something is wrong.
        let _over = Over(&over);
        scope.spawn(|| {
            let namespace = staying.namespace(nsid).unwrap();
            let mut data = [0; 4096];
            for round in (0..).map(|round: u64| round.to_le_bytes()[0]) {
                namespace.write(0, &[round; 4096], false).unwrap();
                namespace.read(0, &mut data).unwrap();
                assert_eq!(data, [round; 4096]);
                if over.load(Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..5 {
            rig.made(&at("assign", &["a", "b"]));
            let leaving = rig.connect("a", &function(1));
            leaving.namespace(nsid).unwrap().write(8192, &[1; 4096], false).unwrap();
            assert_eq!(hosts(&rig).len(), 2);
            rig.made(&at("move", &["b"]));
            assert!(rig.try_connect("a", &function(1)).is_none());
            assert_eq!(there(&rig), before, "the same controller since the same time");
        }
    });
    rig.target.stop(Duration::from_secs(5));
}

#[test]
fn hosts_with_another_path_are_told_before_one_is_closed() {
    let (observer, arrived, go) = gate_of(Phase::Stopping, |task| task.detail.is_some());
    let rig = Rig::observed(config("mem:256Mi"), observer);
    rig.namespace(VF1);
    rig.made(&at("assign", &["a", "b"]));
    let [leaving, staying] = ["a", "b"].map(|port| rig.connect(port, &function(1)));
    let asking = discovery(&rig);
    assert_eq!((access(&leaving), access(&staying)), (AnaState::OPTIMIZED, AnaState::OPTIMIZED));
    let task = rig.enclosure.begin(transaction(&at("move", &["b"]))).unwrap();
    arrived.recv().unwrap();
    wait("inaccessible", || (access(&leaving) == AnaState::INACCESSIBLE).then_some(()));
    assert_eq!(access(&staying), AnaState::OPTIMIZED);
    assert_eq!(listed(&rig, &asking), ["b"]);
    assert!(rig.try_connect("a", &function(1)).is_none());
    drop(go);
    assert_eq!(rig.end(&task).state, TaskState::Done);
    assert_eq!(hosts(&rig).len(), 1);
    assert_eq!(access(&staying), AnaState::OPTIMIZED);
    rig.target.stop(Duration::from_secs(5));
}

/// A host that has a discovery controller learns of the new port, and is there before the old one
/// is closed.
#[test]
fn a_function_stays_at_its_port_until_hosts_that_are_told_have_another_path() {
    let rig = Rig::new();
    rig.namespace(VF1);
    rig.made(&at("assign", &["a"]));
    let _old = rig.connect("a", &function(1));
    let asking = discovery(&rig);
    let task = rig.enclosure.begin(transaction(&moved(VF1, "b"))).unwrap();
    wait("both ports", || (listed(&rig, &asking) == ["a", "b"]).then_some(()));
    let new = rig.connect("b", &function(1));
    let there = |host: &HostObject| (host.port.clone(), host.cntlid);
    let both: Vec<_> = hosts(&rig).iter().map(there).collect();
    let task: Task = rig.end(&task);
    assert_eq!(task.state, TaskState::Done, "{:?}", task.error);
    assert_eq!(hosts(&rig).iter().map(there).collect::<Vec<_>>(), [("b".to_owned(), new.id().0)]);
    assert!(both.contains(&("b".to_owned(), new.id().0)), "{both:?}");
    assert_eq!(listed(&rig, &asking), ["b"]);
    rig.target.stop(Duration::from_secs(5));
}

#[test]
fn several_ports_are_remembered_and_one_that_is_gone_is_told() {
    let rig = Rig::new();
    rig.made(&at("assign", &["a", "b"]));
    let mut without = rig.target.config();
    without.ports.retain(|port| port.name != "b");
    rig.target.apply(without).unwrap();
    let shown = rig.enclosure.inventory().function(&VF1.parse().unwrap()).unwrap().clone();
    assert_eq!((shown.ports.len(), shown.port_exists), (2, false));
    rig.connect("a", &function(1)).disconnect();
    rig.made(&at("move", &["a"]));
    assert!(rig.enclosure.inventory().function(&VF1.parse().unwrap()).unwrap().port_exists);
    rig.target.stop(Duration::from_secs(5));
}

/// A drive with functions that are controllers of its own subsystem, which is at port `c`.
fn one_subsystem() -> Rig {
    let port = |name: &str| format!("[[ports]]\nname = \"{name}\"\nlisten = \"tcp://127.0.0.1:0\"\n");
    let text = format!(
        "{}{}{}[[drives]]\nname = \"d0\"\nbacking = \"mem:256Mi\"\nfunctions = 3\none_subsystem = true\n\
         [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\nports = [\"c\"]\ndrive = \"d0\"\n",
        port("a"),
        port("b"),
        port("c")
    );
    Rig::observed(ebof_manage::load("box.toml", &text).unwrap().config, Box::new(|_| ()))
}

fn reset(by: &Controller, lost: &Controller) -> ebof_nvme::Cqe {
    let instance = lost.identify().instance().unwrap();
    by.admin(instance.reset_command(), AdminData::None, None).unwrap()
}

// @test drive.one-subsystem
#[test]
fn functions_are_controllers_of_one_subsystem() {
    let rig = one_subsystem();
    let manager = rig.connect("c", NQN);
    let nsid = Nsid(1);
    rig.made(
        r#"{"change": "create-namespace", "drive": "d0", "size_bytes": 67108864, "shared": true, "nsid": 1,
            "attach_to": ["d0/vf1", "d0/vf2"]}"#,
    );
    rig.made(&format!("{}, {}", assign("d0/vf1", "a"), assign("d0/vf2", "b")));
    let refused = rig.enclosure.begin(transaction(&assign("d0/vf3", "b"))).unwrap_err().to_string();
    assert!(refused.contains("port b has d0/vf2 already, in the same subsystem"), "{refused}");
    let refused = rig.enclosure.begin(transaction(&assign("d0/vf3", "c"))).unwrap_err().to_string();
    assert!(refused.contains("port c has the primary controller of d0"), "{refused}");

    let [one, other] = ["a", "b"].map(|port| rig.connect(port, NQN));
    let all = [&manager, &one, &other];
    let identity = |host: &Controller| {
        let identify = host.identify();
        (identify.subnqn, identify.sn, identify.mn, host.identify_namespace(nsid).unwrap().nguid)
    };
    let identities = [identity(&one), identity(&other)];
    assert_eq!(identities[0], identities[1]);
    assert_eq!(identities[0].0, manager.identify().subnqn);
    let ids = std::collections::BTreeSet::from(all.map(|host| host.id().0));
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert_eq!(one.namespaces().unwrap(), [nsid]);
    one.namespace(nsid).unwrap().write(0, &[7; 4096], false).unwrap();
    let mut data = [0; 4096];
    other.namespace(nsid).unwrap().read(0, &mut data).unwrap();
    assert_eq!(data, [7; 4096]);

    // Each NQN of a function is one of this target only.
    assert!(rig.try_connect("a", &function(1)).is_none());
    let asking = discovery(&rig);
    let entries = asking.discovery_log().unwrap().entries;
    let named: Vec<String> = entries.iter().map(|entry| entry.subsystem_nqn().to_string()).collect();
    assert_eq!(named.iter().filter(|nqn| *nqn == NQN).count(), 3);
    assert!(!named.contains(&function(1).to_string()));

    // They are controllers of one host in one subsystem: one resets the other.
    assert!(reset(&other, &one).status().is_success());
    let shown = rig.enclosure.inventory().function(&VF1.parse().unwrap()).unwrap().clone();
    assert_eq!((shown.nqn, shown.known_as.as_deref()), (function(1), Some(NQN)));
    rig.target.stop(Duration::from_secs(5));
}

#[test]
fn functions_that_are_subsystems_of_their_own_reset_nothing_of_each_other() {
    let rig = Rig::new();
    rig.made(&format!("{}, {}", assign("d0/vf1", "a"), assign("d0/vf2", "b")));
    let [one, other] = [("a", 1), ("b", 2)].map(|(port, number)| rig.connect(port, &function(number)));
    assert_ne!(one.identify().subnqn, other.identify().subnqn);
    assert!(!reset(&other, &one).status().is_success());
    rig.target.stop(Duration::from_secs(5));
}
