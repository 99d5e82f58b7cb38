//! Messages at the start.

use ebof_manage::api::{IoCounters, NamespaceStatus, PortStatus, STATUS_SCHEMA, SubsystemStatus};
use ebof_manage::config::{PortTls, Security};

use super::*;

fn subsystem(nqn: &str, namespaces: Vec<NamespaceStatus>) -> SubsystemStatus {
    let serial = "S".to_owned();
    let model = "ebof".to_owned();
    let allowed_hosts = Vec::new();
    let ports = vec!["a".to_owned()];
    let (nqn, enabled, allow_any_host) = (nqn.to_owned(), true, true);
    let security = Security::Anyone;
    SubsystemStatus { nqn, enabled, serial, model, allow_any_host, allowed_hosts, security, ports, namespaces }
}

fn port(transport: &str, address: &str) -> PortStatus {
    PortStatus {
        name: "a".to_owned(),
        id: 1,
        transport: transport.to_owned(),
        address: address.parse().unwrap(),
        socket: None,
        discovery_only: false,
        ana: ebof_manage::config::AnaStates::default(),
        tls: PortTls::Off,
        connections: 0,
        accepted: 0,
        refused: 0,
    }
}

fn status(ports: Vec<PortStatus>, subsystems: Vec<SubsystemStatus>, drives: Vec<DriveStatus>) -> Status {
    Status {
        schema: STATUS_SCHEMA,
        version: String::new(),
        uptime_s: 0,
        generation: 1,
        connections: 0,
        connections_max: 1,
        ana_group_max: 128,
        confinement: None,
        keys_unprotected: None,
        ports,
        disabled_ports: Vec::new(),
        missing: Vec::new(),
        subsystems,
        drives,
        controllers: Vec::new(),
        proving: Vec::new(),
    }
}

fn drive(namespaces: u32, unallocated_bytes: u64) -> DriveStatus {
    DriveStatus {
        ana_limit: None,
        name: "d0".to_owned(),
        subsystem_nqn: Some("nqn.a".to_owned()),
        backing: "disk.img".to_owned(),
        profile: "default".to_owned(),
        capacity_bytes: 100_000_000_000,
        unallocated_bytes,
        namespaces,
        namespaces_max: 128,
        allocated_bytes: 0,
        health: ebof_manage::api::DriveHealth::default(),
    }
}

#[test]
fn a_drive_without_namespaces_is_served_with_a_hint() {
    let ports = vec![port("tcp", "127.0.0.1:4420")];
    let status = status(ports, vec![subsystem("nqn.a", Vec::new())], vec![drive(0, 100_000_000_000)]);
    assert_eq!(
        text(&status, None),
        "subsystem nqn.a\n\
         \x20 for anyone: any host, without a proof of who it is\n\
         \x20 drive d0: 100.00 GB (93.13 GiB), profile default, no namespace yet: disk.img\n\
         listening on tcp://127.0.0.1:4420\n\
         attach with: ebof connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.a\n\
         make a namespace on a drive that has none with: \
         ebof create-ns nvme0 -S SIZE; ebof attach-ns nvme0 -n 1\n"
    );
}

#[test]
fn what_is_disabled_is_named_and_not_offered() {
    let namespace = |nsid, enabled| NamespaceStatus {
        nsid,
        enabled,
        drive: "mem:1Gi".to_owned(),
        size_bytes: if enabled { 1_000_000_000 } else { 0 },
        block_size_bytes: if enabled { 512 } else { 0 },
        uuid: None,
        write_protect: false,
        ana_group: 1,
        io: IoCounters::default(),
    };
    let mut off = subsystem("nqn.off", vec![namespace(1, true)]);
    off.enabled = false;
    let subsystems = vec![subsystem("nqn.on", vec![namespace(1, true), namespace(2, false)]), off];
    let mut status = status(vec![port("tcp", "127.0.0.1:4420")], subsystems, Vec::new());
    status.disabled_ports = vec!["spare".to_owned()];
    assert_eq!(
        text(&status, None),
        "subsystem nqn.on\n\
         \x20 for anyone: any host, without a proof of who it is\n\
         \x20 namespace 1    1.00 GB (953.67 MiB), 512 B blocks: mem:1Gi\n\
         disabled: port spare, namespace nqn.on/2, subsystem nqn.off\n\
         listening on tcp://127.0.0.1:4420\n\
         attach with: ebof connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.on\n"
    );
}

#[test]
fn only_connects_that_can_work_are_offered() {
    let [direct, discovery, fabric, rdma] = ["direct", "discovery", "fabric", "rdma"].map(str::to_owned);
    let mut ports = vec![port("vfio-user", "0.0.0.0:0"), port("tcp", "127.0.0.1:8009"), port("tcp", "127.0.0.1:4420")];
    ports.push(port("rdma", "192.0.2.1:4420"));
    for (port, name) in ports.iter_mut().zip([&direct, &discovery, &fabric, &rdma]) {
        port.name.clone_from(name);
    }
    ports[0].socket = Some("direct.sock".to_owned());
    ports[1].discovery_only = true;
    ports.extend([port("tcp", "127.0.0.1:4421"), port("tcp", "127.0.0.1:4422")]);
    (ports[4].name, ports[4].tls) = ("sealed".to_owned(), PortTls::Required);
    (ports[5].name, ports[5].tls) = ("both".to_owned(), PortTls::Allowed);
    let mut subsystems =
        ["vm", "nowhere", "all", "far", "proven", "tls", "never"].map(|name| subsystem(name, Vec::new()));
    subsystems[0].ports = vec![direct.clone()];
    subsystems[1].ports = vec![discovery.clone()];
    subsystems[2].ports = vec![direct, discovery, fabric.clone()];
    subsystems[3].ports = vec![rdma];
    let sealed = ["a", "sealed", "both"].map(str::to_owned);
    for (at, security) in [(4, Security::AuthenticatedTls), (5, Security::Tls)] {
        (subsystems[at].ports, subsystems[at].security) = ([vec![fabric.clone()], sealed.to_vec()].concat(), security);
    }
    (subsystems[6].ports, subsystems[6].security) = (vec![fabric], Security::Tls);
    let text = text(&status(ports, subsystems.to_vec(), Vec::new()), None);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("attach with")).collect();
    let expected = [
        "attach with: ebof connect -t tcp -a 127.0.0.1 -s 4420 -n all",
        "attach with: ebof connect -t rdma -a 192.0.2.1 -s 4420 -n far",
        "attach with: ebof connect -t tcp -a 127.0.0.1 -s 4422 -n proven --dhchap-secret-file FILE --tls --tls-key-file FILE",
        "attach with: ebof connect -t tcp -a 127.0.0.1 -s 4422 -n tls --tls --tls-key-file FILE",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn drives_and_namespaces_are_printed_with_their_subsystems() {
    let namespace = NamespaceStatus {
        nsid: 1,
        enabled: true,
        drive: "mem:1Gi".to_owned(),
        size_bytes: 1_000_000_000,
        block_size_bytes: 512,
        uuid: None,
        write_protect: true,
        ana_group: 1,
        io: IoCounters::default(),
    };
    let subsystems = vec![subsystem("nqn.plain", vec![namespace]), subsystem("nqn.a", Vec::new())];
    let ports = vec![port("rdma", "0.0.0.0:4420"), port("tcp", "[::1]:8009")];
    let status = status(ports, subsystems, vec![drive(2, 40_000_000_000)]);
    let metrics = Some("127.0.0.1:9464".parse().unwrap());
    assert_eq!(
        text(&status, metrics),
        "subsystem nqn.plain\n\
         \x20 for anyone: any host, without a proof of who it is\n\
         \x20 namespace 1    1.00 GB (953.67 MiB), 512 B blocks, write protected: mem:1Gi\n\
         subsystem nqn.a\n\
         \x20 for anyone: any host, without a proof of who it is\n\
         \x20 drive d0: 100.00 GB (93.13 GiB), 40.00 GB unallocated, profile default, 2 namespaces: disk.img\n\
         listening on rdma://0.0.0.0:4420\n\
         listening on tcp://[::1]:8009\n\
         metrics on http://127.0.0.1:9464/metrics\n\
         attach with: ebof connect -t rdma -a ADDRESS -s 4420 -n nqn.plain\n\
         attach with: ebof connect -t rdma -a ADDRESS -s 4420 -n nqn.a\n"
    );
}

/// The environment variable of the process that has to end.
const CHILD: &str = "EBOF_TEST_CHILD";

#[test]
fn connections_leave_descriptors_for_everything_else() {
    for (files, descriptors, expected) in [
        (1024, 1, 512),
        (1024, 4, 128),
        (65_536, 1, 65_024),
        (65_536, 4, 16_256),
        (100, 4, 12),
        (u64::MAX, 1, u32::MAX),
    ] {
        assert_eq!(connections_within(files, descriptors), expected, "{files} {descriptors}");
    }
}

// @test data.threads
#[test]
fn a_panic_of_any_thread_ends_the_target() {
    use std::os::unix::process::ExitStatusExt;

    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["serve::tests::a_panic_of_any_thread_ends_the_target", "--exact", "--nocapture"]);
        let output = child.env(CHILD, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(rustix::process::Signal::ABORT.as_raw()), "{}: {said}", output.status);
        return;
    }
    // No core dumps of tests.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
    let serving = std::thread::spawn(|| {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
            #[command(flatten)]
            global: Global,
        }
        let words = ["serve", "--listen", "tcp://127.0.0.1:0", "--threads", "1", "--state", "none", "mem:1Mi"];
        let line = <Line as clap::Parser>::try_parse_from(words).unwrap();
        run(&line.args, &line.global).unwrap();
    });
    let is_there = |name: &str| {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.into_iter().any(|comm| comm.trim() == name)
    };
    while !is_there("ebof-reload") {
        assert!(!serving.is_finished(), "it does not serve");
        std::thread::yield_now();
    }
    // Any thread: this one does not belong to the target.
    let stranger = std::thread::spawn(|| panic!("a test wants it"));
    let _panicked = stranger.join();
    std::process::exit(0);
}
