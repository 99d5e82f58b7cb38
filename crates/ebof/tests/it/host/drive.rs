//! A drive that hosts manage, end to end: `ebof serve --drive` in a process of its own, which is
//! stopped and killed, and verbs as several hosts.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Run;
use super::devices::can_attach;

pub(crate) use crate::server::Server;

mod kill;
mod lost;

pub(super) const NQN: &str = "nqn.2014-08.org.example:drive0";
pub(super) const ALICE: &str = "nqn.2014-08.org.example:alice";
const BOB: &str = "nqn.2014-08.org.example:bob";

/// A drive in a file, the target that serves it, and a separate state directory.
pub(super) struct Rig {
    server: Option<Server>,
    pub(super) directory: tempfile::TempDir,
}

impl Rig {
    /// A target with a drive of this size, with these additional keys.
    pub(super) fn new(size: &str, keys: &str) -> Self {
        let mut rig = Self { server: None, directory: tempfile::tempdir().unwrap() };
        rig.start(size, keys);
        rig
    }

    fn start(&mut self, size: &str, keys: &str) {
        let backing = self.directory.path().join("disk.img");
        let drive = format!("name=d0,backing={},size={size}{keys}", backing.display());
        self.server = Some(Server::start(NQN, &["--threads", "1", "--allow-any-host", "--drive", &drive]));
    }

    fn kill(&mut self) {
        drop(self.server.take());
    }

    /// Ends the target with SIGTERM.
    fn end(&mut self) {
        self.server.take().unwrap().terminate();
    }

    pub(super) fn port(&self) -> String {
        self.server.as_ref().unwrap().port.to_string()
    }

    pub(super) fn uri(&self, rest: &str) -> String {
        format!("nvme+tcp://127.0.0.1:{}/{NQN}{rest}", self.port())
    }

    pub(super) fn run(&self, args: &[&str]) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebof"));
        command.args(args).env("EBOF_RUNTIME_DIR", self.directory.path()).env_remove("EBOF_LOG").stdin(Stdio::null());
        command.output().unwrap().into()
    }

    /// `ebof VERB URI/REST --hostnqn HOST ...`.
    pub(super) fn host(&self, host: &str, verb: &str, rest: &str, args: &[&str]) -> Run {
        self.run(&[&[verb, &self.uri(rest), "--hostnqn", host], args].concat())
    }

    pub(super) fn json(&self, host: &str, verb: &str, rest: &str, args: &[&str]) -> Value {
        let run = self.host(host, verb, rest, &[args, &["-o", "json"]].concat());
        run.ok();
        run.json()
    }

    /// `ebof connect`, with block devices by loop devices.
    pub(super) fn attach(&self) -> Value {
        let port = self.port();
        let connect = ["connect", "-t", "tcp", "-a", "127.0.0.1", "-s", &port, "-n", NQN, "-i", "1"];
        self.run(&[&connect[..], &["--front", "loop", "-o", "json"]].concat()).json()
    }

    /// The controller that a host has, now and whenever it comes back.
    fn controller_of(&self, host: &str) -> u64 {
        self.json(host, "id-ctrl", "", &[])["cntlid"].as_u64().unwrap()
    }

    /// Makes namespace 1, shared, and attaches it to Alice and Bob.
    fn share(&self) {
        let controllers = format!("{},{}", self.controller_of(ALICE), self.controller_of(BOB));
        self.host(ALICE, "create-ns", "", &["-S", "8M", "--nmic", "1"]).ok();
        self.host(ALICE, "attach-ns", "", &["-n", "1", "-c", &controllers]).ok();
    }

    /// Writes 512 bytes to block 9 of namespace 1.
    pub(super) fn write(&self, host: &str, byte: u8) -> Run {
        let file = self.directory.path().join("data");
        std::fs::write(&file, [byte; 512]).unwrap();
        self.host(host, "write", "/1", &["-s", "9", "-f", "-d", file.to_str().unwrap()])
    }

    fn read(&self, host: &str) -> Vec<u8> {
        let run = self.host(host, "read", "/1", &["-s", "9", "-z", "512"]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stdout
    }

    fn health(&self) -> Value {
        self.json(ALICE, "smart-log", "", &[])
    }
}

impl Drop for Rig {
    /// A test that failed leaves no holder behind.
    fn drop(&mut self) {
        let _ended = self.run(&["disconnect-all", "--force"]);
    }
}

/// The numbers in a list of objects.
fn numbers(list: &Value, key: &str) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|entry| entry[key].as_u64().unwrap()).collect()
}

pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The commands of the article about NVMe over RoCE, with its flags.
#[test]
fn a_namespace_is_created_attached_listed_and_deleted_by_uri() {
    let rig = Rig::new("1Gi", "");
    let device = &rig.uri("");
    let run = |words: &str, more: &[&str]| {
        let mut args: Vec<&str> = words.split(' ').collect();
        args.insert(1, device);
        args.extend(more);
        rig.run(&args)
    };
    let create = "create-ns -s 0x100000 -c 0x100000 -f 0 -d 0 -m 0";
    assert_eq!(run(create, &[]).ok(), "create-ns: Success, created nsid:1\n");
    assert_eq!(run("list-ns", &[]).ok(), "NVME Namespace List:\n", "it is attached to nobody");
    assert_eq!(run("list-ns --all", &[]).ok(), "NVME Namespace List:\n[   0]:0x1\n");
    assert_eq!(run("list-ctrl -n 1", &[]).ok(), "num of ctrls present: 0\n");
    assert_eq!(run("attach-ns -n 1 -c 0", &[]).ok(), "attach-ns: Success, nsid:1\n");
    assert_eq!(run("reset", &[]).ok(), "reset: Success\n");
    assert_eq!(run("list-ns", &[]).ok(), "NVME Namespace List:\n[   0]:0x1\n");
    for words in ["list-ctrl", "list-ctrl -n 1"] {
        assert_eq!(run(words, &[]).ok(), "num of ctrls present: 1\n[   0]:0\n", "{words}");
    }
    let id = run("id-ns -n 1", &["-o", "json"]).json();
    assert_eq!((&id["nsze"], &id["ncap"], &id["nuse"]), (&0x10_0000.into(), &0x10_0000.into(), &0.into()));
    assert_eq!((&id["flbas"], &id["dps"], &id["nmic"]), (&0.into(), &0.into(), &0.into()));
    assert_eq!(id["nvmcap"], 512_u64 << 20);

    let over = run("create-ns -s 0x100001 -c 0x100001 -f 0 -d 0 -m 0", &[]);
    assert!(over.failed().contains("Namespace Insufficient Capacity (SCT 1h, SC 15h"), "{}", over.stderr);
    assert_eq!(run("delete-ns -n 1 --force", &[]).ok(), "delete-ns: Success, deleted nsid:1\n");
    assert_eq!(run("list-ns --all", &[]).ok(), "NVME Namespace List:\n");
    assert_eq!(run(create, &[]).ok(), "create-ns: Success, created nsid:1\n", "number and capacity are free again");
}

/// The same with a connected device, which has a disk as long as there is a namespace.
#[test]
fn block_devices_follow_changes_of_namespaces() {
    if !can_attach() {
        eprintln!("skipped: no /dev/fuse or /dev/loop-control here, or no right to use them");
        return;
    }
    let rig = Rig::new("64Mi", "");
    let connected = rig.attach();
    assert_eq!(connected["namespaces"], serde_json::json!([]), "{connected}");
    let nvme = connected["device"].as_str().unwrap();
    let disks = || rig.run(&["list", "-o", "json"]).json()["Devices"].as_array().unwrap().clone();
    assert!(disks().is_empty());

    let create = ["create-ns", nvme, "-s", "0x4000", "-c", "0x4000", "-f", "0", "-d", "0", "-m", "0"];
    assert_eq!(rig.run(&create).ok(), "create-ns: Success, created nsid:1\n");
    rig.run(&["attach-ns", nvme, "-n", "1", "-c", "0"]).ok();
    rig.run(&["reset", nvme]).ok();
    until("the disk of the new namespace appears", || disks().iter().any(|disk| disk["DevicePath"].is_string()));
    let disk = &disks()[0];
    assert_eq!((&disk["NameSpace"], &disk["PhysicalSize"]), (&1.into(), &(8 << 20).into()), "{disk}");
    let node = disk["DevicePath"].as_str().unwrap();
    let pattern: Vec<u8> = (0..1_u32 << 20).map(|at| u8::try_from(at % 251).unwrap()).collect();
    std::fs::write(node, &pattern).unwrap();
    std::fs::File::open(node).unwrap().sync_all().unwrap();
    let read = rig.run(&["read", &rig.uri("/1"), "-z", "1048576"]);
    assert!(read.stdout == pattern, "what the disk has is in the namespace: {}", read.stderr);
    let name = disk["GenericPath"].as_str().unwrap();
    let id = rig.run(&["id-ns", name, "-o", "json"]).json();
    assert_eq!(id["nuse"], 2048, "{id}");
    rig.run(&["write-uncor", name, "-s", "8", "-c", "1"]).ok();
    let bad = rig.run(&["get-lba-status", name, "-a", "tracked", "-o", "json"]).json();
    let range = &bad["descriptors"][0];
    assert_eq!((&bad["nlsd"], &range["dslba"], &range["nlb"]), (&1.into(), &8.into(), &2.into()), "{bad}");
    assert_eq!(rig.run(&["list-ns", nvme]).ok(), "NVME Namespace List:\n[   0]:0x1\n");
    assert_eq!(rig.run(&["list-ctrl", nvme, "-n", "1"]).ok(), "num of ctrls present: 1\n[   0]:0\n");

    // None of these needs a reset: the attach daemon is notified.
    rig.run(&["detach-ns", nvme, "-n", "1", "-c", "0"]).ok();
    until("the disk goes when its namespace is detached", || disks().is_empty());
    // The block device exists when the verb ends, and the verb prints it.
    let attached = rig.run(&["attach-ns", nvme, "-n", "1", "-c", "0", "-o", "json"]).json();
    let path = &attached["block_devices"][0]["path"];
    assert!(path.is_string() && disks()[0]["DevicePath"] == *path, "{attached}");
    assert_eq!(rig.run(&["delete-ns", nvme, "-n", "1", "--force"]).ok(), "delete-ns: Success, deleted nsid:1\n");
    until("the disk goes when its namespace is deleted", || disks().is_empty());
    assert_eq!(rig.run(&["disconnect", "-n", NQN]).ok(), format!("NQN:{NQN} disconnected 1 controller(s)\n"));
}

/// A namespace that this machine uses is not removed or overwritten, neither by the device nor by a
/// URI of the subsystem.
// @test output.confirmation
#[test]
fn a_namespace_in_use_is_not_changed_unless_forced() {
    if !can_attach() {
        eprintln!("skipped: no /dev/fuse or /dev/loop-control here, or no right to use them");
        return;
    }
    let rig = Rig::new("64Mi", "");
    rig.run(&["create-ns", &rig.uri(""), "-S", "8M", "-m", "1"]).ok();
    rig.run(&["attach-ns", &rig.uri(""), "-n", "1", "-c", "0"]).ok();
    let connected = rig.attach();
    let nvme = connected["device"].as_str().unwrap();
    let name = connected["namespaces"][0]["name"].as_str();
    let node = connected["namespaces"][0]["path"].as_str();
    let name = name.unwrap();
    let node = node.unwrap();
    // Claims the device as a mount does.
    let claimed = claim(node);

    let uri = &rig.uri("");
    let namespace = &rig.uri("/1");
    let verbs: [&[&str]; 12] = [
        &["delete-ns", nvme, "-n", "1"],
        &["delete-ns", uri, "-n", "1"],
        &["delete-ns", uri, "-n", "0xffffffff"],
        &["detach-ns", nvme, "-n", "1"],
        &["format", name],
        &["sanitize", nvme, "-a", "start-block-erase"],
        &["write", namespace, "-d", "/proc/version"],
        &["write-zeroes", name],
        &["write-uncor", name],
        &["dsm", name, "-d", "-s", "0", "-b", "8"],
        &["copy", name, "-d", "8", "-s", "0", "-b", "0"],
        &["delete-ns", name],
    ];
    for args in verbs {
        let run = rig.run(args);
        let text = run.failed();
        assert!(text.contains("is in use on this machine. Nothing was done"), "{args:?}: {text}");
        assert!(text.contains(node) && text.contains("--force"), "{args:?}: {text}");
    }
    // These only read, or give hints about data.
    for args in [["verify", name].as_slice(), &["read", name, "-z", "512"], &["dsm", name, "-r", "-s", "0", "-b", "8"]]
    {
        assert_eq!(rig.run(args).code, Some(0), "{args:?}");
    }
    rig.run(&["write-zeroes", name, "--force"]).ok();
    drop(claimed);
    let run = rig.run(&["delete-ns", nvme, "-n", "1"]);
    let text = run.failed();
    for part in
        ["Deleting takes namespace 1 of", "Nothing was done", "namespace 1, 8.13 MB, attached to controller", "--force"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(rig.json(ALICE, "list-ns", "", &["--all"])["nsid_list"].as_array().unwrap().len(), 1);
    rig.run(&["delete-ns", nvme, "-n", "1", "--force"]).ok();
    rig.run(&["disconnect", "-n", NQN]).ok();
}

/// Opens a block device exclusively.
fn claim(node: &str) -> std::fs::File {
    use std::os::unix::fs::OpenOptionsExt as _;
    let exclusive = i32::try_from(rustix::fs::OFlags::EXCL.bits()).unwrap();
    std::fs::OpenOptions::new().read(true).custom_flags(exclusive).open(node).unwrap()
}

/// The commands in the manual of an Ethernet SSD, in its order and with its numbers: a namespace of
/// 1.6 TB.
#[test]
fn the_commands_of_an_ethernet_ssds_manual_work_unchanged() {
    if !can_attach() {
        eprintln!("skipped: no /dev/fuse or /dev/loop-control here, or no right to use them");
        return;
    }
    let rig = Rig::new("2Ti", "");
    let connect = ["connect", "-t", "tcp", "-a", "127.0.0.1", "-s", &rig.port(), "-n", NQN, "--front", "loop"];
    assert_eq!(rig.run(&connect).ok(), "connecting to device: nvme0\n");
    let verb = |words: &str| rig.run(&words.split(' ').collect::<Vec<_>>()).ok();
    let create = verb("create-ns -s 0xba4d4ab0 -c 0xba4d4ab0 -f 0 -d 0 -m 0 /dev/nvme0");
    assert_eq!(create, "create-ns: Success, created nsid:1\n");
    assert!(verb("attach-ns /dev/nvme0 -c 0 -n 1").starts_with("attach-ns: Success, nsid:1\nnvme0n1: /dev/loop"));
    assert_eq!(verb("reset /dev/nvme0"), "reset: Success\n");
    until("the disk appears", || verb("list").lines().any(|line| line.contains("1.60  TB")));
    assert_eq!(verb("list-ns /dev/nvme0"), "NVME Namespace List:\n[   0]:0x1\n");
    assert_eq!(verb("list-ctrl /dev/nvme0"), "num of ctrls present: 1\n[   0]:0\n");
    // At a terminal it asks; there is none here.
    assert_eq!(verb("delete-ns /dev/nvme0 -n 1 --force"), "delete-ns: Success, deleted nsid:1\n");
    assert_eq!(verb("list-ctrl /dev/nvme0"), "num of ctrls present: 1\n[   0]:0\n");
    assert_eq!(verb("list-ns /dev/nvme0 --all"), "NVME Namespace List:\n");
    rig.run(&["disconnect", "-n", NQN]).ok();
}

/// The properties of a drive that a restart must not change.
fn memory(rig: &Rig) -> Vec<Value> {
    let id = rig.json(ALICE, "id-ns", "/1", &[]);
    vec![
        rig.json(ALICE, "list-ns", "", &["--all"]),
        rig.json(ALICE, "list-ns", "", &[]),
        rig.json(BOB, "list-ns", "", &[]),
        rig.json(ALICE, "ns-descs", "", &["-n", "1"]),
        serde_json::json!([id["nsze"], id["ncap"], id["nuse"], id["nguid"], id["eui64"], id["nmic"]]),
        rig.json(ALICE, "id-ctrl", "", &[])["unvmcap"].clone(),
        rig.json(BOB, "id-ctrl", "", &[])["cntlid"].clone(),
    ]
}

#[test]
fn everything_is_kept_after_a_shutdown_and_after_a_kill() {
    let mut rig = Rig::new("64Mi", "");
    rig.share();
    rig.host(ALICE, "create-ns", "", &["-S", "4M"]).ok();
    rig.write(BOB, 0x5a).ok();
    rig.host(ALICE, "resv-register", "/1", &["--nrkey", "0xa11ce", "--cptpl", "3"]).ok();
    rig.host(ALICE, "resv-acquire", "/1", &["--crkey", "0xa11ce", "-t", "write-exclusive"]).ok();
    assert!(rig.write(BOB, 0xbb).failed().contains("Reservation Conflict (SCT 0h, SC 83h"));
    let errors = rig.json(ALICE, "error-log", "", &["-e", "1"]);
    assert_eq!(errors["errors"][0]["status"], "Reservation Conflict", "{errors}");
    assert_eq!((&errors["errors"][0]["lba"], &errors["errors"][0]["nsid"]), (&9.into(), &1.into()), "{errors}");
    let before = memory(&rig);
    let health = rig.health();
    assert_eq!(health["num_err_log_entries"], errors["errors"][0]["error_count"], "{health}");
    assert_eq!((&health["power_cycles"], &health["unsafe_shutdowns"]), (&1.into(), &0.into()), "{health}");
    assert_eq!(health["host_write_commands"], 1, "what was refused is none: {health}");

    for (round, kill) in [(2, false), (3, true), (4, true), (5, false)] {
        if kill {
            rig.kill();
        } else {
            rig.end();
        }
        rig.start("64Mi", "");
        assert_eq!(memory(&rig), before, "start {round}");
        assert!(rig.read(BOB) == [0x5a; 512]);
        assert!(rig.write(BOB, 0xbb).failed().contains("Reservation Conflict"), "start {round}");
        let report = rig.json(BOB, "resv-report", "/1", &[]);
        assert_eq!((&report["rtype"], &report["regstrnt"], &report["ptpls"]), (&1.into(), &1.into(), &1.into()));
        assert_eq!(
            (&report["registrantext"][0]["rkey"], &report["registrantext"][0]["rcsts"]),
            (&0xa11ce.into(), &1.into())
        );
        let now = rig.health();
        let unsafe_shutdowns = [0, 0, 0, 1, 2, 2][round];
        assert_eq!(
            (&now["power_cycles"], &now["unsafe_shutdowns"]),
            (&round.into(), &unsafe_shutdowns.into()),
            "{now}"
        );
        // The refusal above, once per start; a kill may lose those of the last seconds.
        let entries = &now["num_err_log_entries"];
        let first = health["num_err_log_entries"].as_u64().unwrap();
        assert!(entries.as_u64().unwrap() > first, "{now}");
        assert_eq!(now["host_write_commands"].as_u64().unwrap(), 1, "{now}");
        let listed = rig.json(ALICE, "error-log", "", &["-e", "64"]);
        let listed = numbers(&listed["errors"], "error_count");
        assert!(listed.contains(&first) && &Value::from(listed[0]) == entries, "{listed:?}");
    }
    rig.host(ALICE, "resv-release", "/1", &["--crkey", "0xa11ce", "-t", "write-exclusive"]).ok();
    rig.write(BOB, 0xbb).ok();
    assert!(rig.read(ALICE) == [0xbb; 512]);
}

#[test]
fn a_reservation_without_persistence_ends_with_the_target() {
    let mut rig = Rig::new("64Mi", "");
    rig.share();
    rig.host(ALICE, "resv-register", "/1", &["--nrkey", "5", "--cptpl", "clear"]).ok();
    rig.host(ALICE, "resv-acquire", "/1", &["--crkey", "5", "-t", "exclusive-access"]).ok();
    let read = rig.host(BOB, "read", "/1", &["-z", "512"]);
    assert!(read.failed().contains("Reservation Conflict"), "{}", read.stderr);
    rig.kill();
    rig.start("64Mi", "");
    let report = rig.json(BOB, "resv-report", "/1", &[]);
    assert_eq!((&report["rtype"], &report["regstrnt"]), (&0.into(), &0.into()), "{report}");
    rig.write(BOB, 1).ok();
}

#[test]
fn reservations_exclude_other_hosts_and_can_be_preempted() {
    let rig = Rig::new("64Mi", "");
    rig.share();
    rig.write(ALICE, 1).ok();
    for (host, key) in [(ALICE, "0xa11ce"), (BOB, "0xb0b")] {
        rig.host(host, "resv-register", "/1", &["--nrkey", key]).ok();
    }
    rig.host(ALICE, "resv-acquire", "/1", &["--crkey", "0xa11ce", "-t", "1"]).ok();
    let refused = rig.write(BOB, 2);
    let text = refused.failed();
    assert!(text.contains("Reservation Conflict (SCT 0h, SC 83h") && text.contains("ebof resv-report"), "{text}");
    assert!(rig.read(BOB) == [1; 512], "write exclusive leaves reading to others");
    let taken = rig.host(BOB, "resv-acquire", "/1", &["--crkey", "0xb0b", "-t", "1"]);
    assert!(taken.failed().contains("Reservation Conflict"), "{}", taken.stderr);
    let wrong = rig.host(BOB, "resv-release", "/1", &["--crkey", "0xbad", "-t", "1"]);
    assert!(wrong.failed().contains("Reservation Conflict"), "{}", wrong.stderr);
    let report = rig.json(BOB, "resv-report", "/1", &[]);
    let mut keys = numbers(&report["registrantext"], "rkey");
    keys.sort_unstable();
    assert_eq!((keys, &report["rtype"]), (vec![0xb0b, 0xa11ce], &1.into()), "{report}");

    let preempt = ["--crkey", "0xb0b", "--prkey", "0xa11ce", "-t", "1", "-a", "preempt"];
    rig.host(BOB, "resv-acquire", "/1", &preempt).ok();
    assert!(rig.write(ALICE, 3).failed().contains("Reservation Conflict"));
    rig.write(BOB, 2).ok();
    let report = rig.json(ALICE, "resv-report", "/1", &[]);
    assert_eq!(numbers(&report["registrantext"], "rkey"), [0xb0b], "who was preempted is registered no more");
    rig.host(BOB, "resv-release", "/1", &["--crkey", "0xb0b", "-a", "clear", "-t", "1"]).ok();
    assert_eq!(rig.json(ALICE, "resv-report", "/1", &[])["regstrnt"], 0);
    rig.write(ALICE, 4).ok();
}

#[test]
fn only_managers_manage_and_only_within_their_quota() {
    let mut rig = Rig::new("64Mi", &format!(",manager={ALICE},quota={ALICE}:16Mi"));
    rig.host(ALICE, "create-ns", "", &["-S", "8M"]).ok();
    for (verb, args) in [
        ("create-ns", ["-S", "8M"].as_slice()),
        ("attach-ns", &["-n", "1"]),
        ("detach-ns", &["-n", "1"]),
        ("delete-ns", &["-n", "1", "--force"]),
    ] {
        let run = rig.host(BOB, verb, "", args);
        let text = run.failed();
        assert!(text.contains("Operation Denied (SCT 0h, SC 15h"), "{verb}: {text}");
        assert!(text.contains("this host may not manage the namespaces of"), "{verb}: {text}");
    }
    let run = rig.host(ALICE, "create-ns", "", &["-S", "12M"]);
    assert!(run.failed().contains("Namespace Insufficient Capacity"), "beyond the quota: {}", run.stderr);
    rig.host(ALICE, "create-ns", "", &["-S", "4M"]).ok();

    // The rules belong to the configuration, not to the drive's file: with others, Bob may manage,
    // and there is no quota.
    rig.end();
    rig.start("64Mi", &format!(",manager={BOB}"));
    rig.host(BOB, "delete-ns", "", &["-n", "1", "--force"]).ok();
    assert!(rig.host(ALICE, "create-ns", "", &["-S", "8M"]).failed().contains("Operation Denied"));
    rig.host(BOB, "create-ns", "", &["-S", "40M"]).ok();
}

#[test]
fn an_exclusive_drive_attaches_a_namespace_to_one_host() {
    let rig = Rig::new("64Mi", ",exclusive");
    let alice = rig.controller_of(ALICE).to_string();
    let bob = rig.controller_of(BOB).to_string();
    rig.host(ALICE, "create-ns", "", &["-S", "8M", "-m", "1"]).ok();
    rig.host(ALICE, "attach-ns", "", &["-n", "1", "-c", &alice]).ok();
    let second = rig.host(ALICE, "attach-ns", "", &["-n", "1", "-c", &bob]);
    assert!(second.failed().contains("Namespace Is Private (SCT 1h, SC 19h"), "{}", second.stderr);
    let read = rig.host(BOB, "read", "/1", &["-z", "512"]);
    assert!(read.failed().contains("namespace 1 is not active"), "{}", read.stderr);
    rig.host(ALICE, "detach-ns", "", &["-n", "1", "-c", &alice]).ok();
    rig.host(ALICE, "attach-ns", "", &["-n", "1", "-c", &bob]).ok();
    rig.write(BOB, 1).ok();
}

#[test]
fn a_full_drive_refuses_writes_that_allocate_and_recovers() {
    let rig = Rig::new("32Mi", ",overcommit,attach=everyone");
    for _ in 0..2 {
        rig.host(ALICE, "create-ns", "", &["-S", "24Mi", "-m", "1"]).ok();
    }
    let both: Value = serde_json::json!([{ "nsid": 1 }, { "nsid": 2 }]);
    assert_eq!(rig.json(BOB, "list-ns", "", &[])["nsid_list"], both, "attached to everyone");
    let file = rig.directory.path().join("large");
    std::fs::write(&file, vec![0xaa; 1 << 20]).unwrap();
    let write = |nsid: &str, mib: u32| {
        let lba = (mib * 2048).to_string();
        let file = file.to_str().unwrap();
        rig.host(BOB, "write", nsid, &["-s", &lba, "-d", file])
    };
    (0..24).for_each(|mib| drop(write("/1", mib).ok()));
    let first_refused = (0..24).find(|&mib| write("/2", mib).code != Some(0)).unwrap();
    let refused = write("/2", first_refused);
    assert!(refused.failed().contains("Capacity Exceeded (SCT 0h, SC 81h"), "{}", refused.stderr);
    assert!((7..=8).contains(&first_refused), "all that there is was given: {first_refused}");
    write("/1", 3).ok();
    let health = rig.health();
    assert_eq!((&health["critical_warning"], &health["avail_spare"]), (&1.into(), &0.into()), "{health}");
    assert!(health["num_err_log_entries"].as_u64().unwrap() >= 2, "{health}");
    let errors = rig.json(BOB, "error-log", "", &["-e", "1"]);
    assert_eq!(errors["errors"][0]["status"], "Capacity Exceeded", "{errors}");
    let read = rig.host(BOB, "read", "/2", &["-z", "1Mi"]);
    assert!(read.stdout == vec![0xaa; 1 << 20], "what is there stays: {}", read.stderr);

    rig.host(BOB, "dsm", "/1", &["-d", "-s", "0", "-b", "16384"]).ok();
    until("there is room again", || write("/2", first_refused).code == Some(0));
    until("and no warning", || rig.health()["critical_warning"] == 0);
    let read = rig.host(BOB, "read", "/1", &["-z", "4Ki"]);
    assert!(read.stdout == vec![0; 4096], "what was given back reads as zeros: {}", read.stderr);
}

#[test]
fn deallocation_frees_blocks_of_the_file_and_reduces_nuse() {
    let rig = Rig::new("64Mi", ",attach=everyone");
    rig.host(ALICE, "create-ns", "", &["-S", "32M"]).ok();
    let file = rig.directory.path().join("large");
    std::fs::write(&file, vec![0xaa; 1 << 20]).unwrap();
    let held = || blocks_of(&rig.directory.path().join("disk.img"));
    let used = || rig.json(ALICE, "id-ns", "/1", &[])["nuse"].as_u64().unwrap();
    let empty = held();
    let whole = 16 * 2048;
    for mib in 0..16 {
        rig.host(ALICE, "write", "/1", &["-s", &(mib * 2048).to_string(), "-d", file.to_str().unwrap()]).ok();
    }
    assert_eq!(used(), whole);
    assert!(held() >= empty + whole, "{} blocks of 512 are less than was written", held());
    rig.host(ALICE, "dsm", "/1", &["-d", "-s", "0", "-b", "32768"]).ok();
    assert_eq!(used(), 0);
    until("the file gives the space back", || held() < empty + whole / 4);
}

/// The allocated size of a file, in units of 512 bytes.
fn blocks_of(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    path.metadata().unwrap().blocks()
}

#[test]
fn firmware_is_created_downloaded_activated_and_kept() {
    let mut rig = Rig::new("16Mi", "");
    let file = |name: &str| rig.directory.path().join(name).to_str().unwrap().to_owned();
    let good = file("good");
    let foreign = file("foreign");
    let broken = file("broken");
    rig.run(&["fw-image", &good, "-r", "9.9-test"]).ok();
    rig.run(&["fw-image", &foreign, "-r", "9.9-test", "--product", "toaster"]).ok();
    let mut bytes = std::fs::read(&good).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&broken, bytes).unwrap();
    let before = rig.json(ALICE, "id-ctrl", "", &[])["fr"].clone();
    for image in [&foreign, &broken] {
        let refused = rig.host(ALICE, "fw-commit", "", &["-f", image, "-s", "2", "-a", "3"]);
        assert!(refused.failed().contains("Invalid Firmware Image"), "{}", refused.stderr);
        assert_eq!(rig.json(ALICE, "id-ctrl", "", &[])["fr"], before);
    }
    let sent = rig.host(ALICE, "fw-download", "", &["-f", &good]).ok();
    assert!(sent.contains("end with this connection; `ebof fw-commit"), "{sent}");
    let refused = rig.host(ALICE, "fw-commit", "", &["-s", "2", "-a", "3"]);
    assert!(refused.failed().contains("Invalid Firmware Image"), "the download is gone: {}", refused.stderr);
    rig.host(ALICE, "fw-commit", "", &["-f", &good, "-s", "2", "-a", "3"]).ok();
    for kill in [true, false] {
        assert_eq!(rig.json(BOB, "id-ctrl", "", &[])["fr"], "9.9-test");
        let slots = rig.host(BOB, "fw-log", "", &[]).ok();
        assert!(slots.contains("9.9-test"), "{slots}");
        if kill {
            rig.kill();
        } else {
            rig.end();
        }
        rig.start("16Mi", "");
    }
}

#[test]
fn blocks_are_marked_bad_and_listed_until_they_are_written() {
    let mut rig = Rig::new("64Mi", ",attach=everyone");
    rig.host(ALICE, "create-ns", "", &["-S", "32M"]).ok();
    let list = |rig: &Rig, action: &str| {
        let status = rig.json(BOB, "get-lba-status", "/1", &["-a", action]);
        assert_eq!(status["cmpc-definition"], "all of the range is covered", "{status}");
        let ranges = status["descriptors"].as_array().unwrap().iter();
        ranges.map(|range| (range["dslba"].as_u64().unwrap(), range["nlb"].as_u64().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!((list(&rig, "0x11"), list(&rig, "allocated")), (vec![], vec![]));
    rig.write(ALICE, 0xaa).ok();
    assert_eq!(list(&rig, "allocated").first().map(|(first, _)| *first), Some(0));
    let marked = rig.host(ALICE, "write-uncor", "/1", &["-s", "8", "-c", "3"]).ok();
    assert_eq!(marked, "write-uncor: Success\n");
    let refused = rig.host(BOB, "read", "/1", &["-s", "9", "-z", "512"]);
    assert!(refused.failed().contains("Unrecovered Read Error"), "{}", refused.stderr);
    let entry = rig.json(BOB, "error-log", "", &["-e", "1"])["errors"][0].clone();
    assert_eq!((&entry["status"], &entry["lba"]), (&"Unrecovered Read Error".into(), &9.into()), "{entry}");
    rig.kill();
    rig.start("64Mi", ",attach=everyone");
    for action in ["scan", "tracked"] {
        assert_eq!(list(&rig, action), [(8, 4)]);
    }
    rig.write(ALICE, 0xbb).ok();
    assert_eq!((list(&rig, "tracked"), rig.read(BOB)), (vec![(8, 1), (10, 2)], vec![0xbb; 512]));
    let text = rig.host(BOB, "get-lba-status", "/1", &["-a", "0x11", "-s", "10", "-l", "1"]).ok();
    assert!(text.contains("{ DSLBA: 0x0000000000000a, NLB: 0x000001, Status: 0 }"), "{text}");
}
