//! Connected devices: from connect to disconnect, with a real block device. If this machine does
//! not permit one, the test prints that and ends.

use std::net::SocketAddr;

use super::{NQN, Rig, Run};

/// Whether a block device can be made here: FUSE and loop devices need root.
pub(crate) fn can_attach() -> bool {
    let open = |path: &str| std::fs::OpenOptions::new().read(true).write(true).open(path).is_ok();
    open("/dev/fuse") && open("/dev/loop-control")
}

fn connect(rig: &Rig, address: SocketAddr, nqn: &str, more: &[&str]) -> Run {
    let port = address.port().to_string();
    let args = ["connect", "-t", "tcp", "-a", "127.0.0.1", "-s", &port, "-n", nqn, "-i", "1", "--front", "loop"];
    rig.run(&[&args, more].concat())
}

#[test]
fn a_connected_device_accepts_every_verb_and_can_be_disconnected() {
    if !can_attach() {
        eprintln!("skipped: no /dev/fuse or /dev/loop-control here, or no right to use them");
        return;
    }
    let rig = Rig::new();
    let address = rig.address("any");
    let json = connect(&rig, address, NQN, &["-o", "json"]).json();
    assert_eq!(json["schema"], "ebof/connect/1", "{json}");
    let controller = json["device"].as_str().unwrap();
    let name = json["namespaces"][0]["name"].as_str().unwrap();
    let node = json["namespaces"][0]["path"].as_str().unwrap();

    let text = rig.run(&["list"]).ok();
    assert!(text.contains(node) && text.contains(name), "{text}");
    let text = rig.run(&["list-subsys", name]).ok();
    assert!(text.contains(&format!(" +- {controller} tcp traddr=127.0.0.1,trsvcid={} live", address.port())), "{text}");
    for args in [
        ["id-ctrl", controller],
        ["id-ns", name],
        ["list-ns", controller],
        ["show-regs", controller],
        ["smart-log", node],
    ] {
        rig.run(&args).ok();
    }
    assert_eq!(rig.run(&["ns-rescan", controller]).ok(), "ns-rescan: Success\n");
    rig.run_with_input(&["write", name, "-s", "3"], b"through the holder").ok();
    assert!(rig.run(&["read", &format!("/dev/{name}"), "-s", "3"]).stdout.starts_with(b"through the holder\0"));
    let run = rig.run(&["read", name, "-s", "16384"]);
    assert!(run.failed().contains("namespace 1 has 16384 blocks, 0 to 16383"), "{}", run.stderr);

    let again = connect(&rig, address, NQN, &[]);
    assert!(again.failed().contains(&format!("already connected: {controller} is {NQN}")), "{}", again.stderr);
    assert_eq!(rig.run(&["disconnect", "-n", NQN]).ok(), format!("NQN:{NQN} disconnected 1 controller(s)\n"));
    assert!(rig.run(&["id-ctrl", controller]).failed().contains("is not connected"));
    assert_eq!(rig.run(&["list", "-o", "json"]).json()["Devices"], serde_json::json!([]));
}

#[test]
fn connect_reports_errors_like_every_other_verb() {
    let rig = Rig::new();
    let nqn = "nqn.2014-08.org.example:drive9";
    let run = connect(&rig, rig.address("any"), nqn, &[]);
    for text in
        [&format!("knows no subsystem {nqn}"), "\n  tried:  ", "\n  answer: Connect Invalid Parameters", "\n  to do:  "]
    {
        assert!(run.failed().contains(text), "{}", run.stderr);
    }
    let run = connect(&rig, rig.address("any"), nqn, &["-o", "json"]);
    let error = &run.json()["error"];
    assert_eq!((run.code, &error["kind"]), (Some(1), &"wrong-nqn".into()));
    assert!(error["advice"].as_str().unwrap().contains("ebof discover"), "{error}");
    assert_eq!(rig.run(&["list", "-o", "json"]).json()["Devices"], serde_json::json!([]), "nothing is left behind");
}

#[test]
fn connect_all_creates_one_device_for_a_subsystem_with_two_ports() {
    if !can_attach() {
        eprintln!("skipped: no /dev/fuse or /dev/loop-control here, or no right to use them");
        return;
    }
    let rig = Rig::new();
    let port = rig.address("any").port().to_string();
    let args = ["connect-all", "-t", "tcp", "-a", "127.0.0.1", "-s", &port, "-i", "1", "--front", "loop", "-o", "json"];
    for round in 0..2 {
        let run = rig.run(&args);
        let json = run.json();
        assert_eq!(run.code, Some(0), "{json}");
        let of_drive = |list: &str| {
            let all = json[list].as_array().unwrap();
            all.iter().filter(|one| one["nqn"] == NQN).cloned().collect::<Vec<_>>()
        };
        let connected = of_drive("connected");
        let skipped = of_drive("skipped");
        assert_eq!((connected.len(), skipped.len()), if round == 0 { (2, 0) } else { (0, 2) }, "{json}");
        let devices = |one: &serde_json::Value| (one["device"].clone(), one["namespaces"].clone());
        if let [first, second] = connected.as_slice() {
            assert_eq!(devices(first), devices(second), "{json}");
            assert!(first["path"].is_null() && second["path"].as_str().unwrap().ends_with("c1"), "{json}");
        }
        let is_told = |one: &serde_json::Value| one["reason"].as_str().unwrap().contains("connected as nvme");
        assert!(skipped.iter().all(is_told), "{json}");
    }
    // Through the other port it is refused, too, unless duplicates are requested.
    let plain = rig.address("plain");
    let run = connect(&rig, plain, NQN, &[]);
    assert!(run.failed().contains("already connected"), "{}", run.stderr);
    connect(&rig, plain, NQN, &["-D"]).ok();
}

#[test]
fn mistakes_of_a_command_line_get_a_hint() {
    let rig = Rig::new();
    let connect = |traddr: &str, nqn: &str| rig.run(&["connect", "-t", "tcp", "-a", traddr, "-s", "1", "-n", nqn]);
    assert!(connect("127.0.0.1:4420", NQN).stderr.contains("-a 127.0.0.1 -s 4420"));
    assert!(connect("[::1]", NQN).stderr.contains("-a ::1"));
    assert!(connect("127.0.0.1", "foo").stderr.contains("warning: --nqn \"foo\" is not an NQN"));
    for args in [["disconnect", "--force"].as_slice(), &["disconnect"]] {
        let run = rig.run(args);
        assert_ne!(run.code, Some(0));
        let told = run.stderr.contains("nothing is named that is to be disconnected") && run.stderr.contains("-n NQN");
        assert!(told && run.stderr.contains("disconnect-all"), "{}", run.stderr);
    }
}

/// In a mount namespace of its own, so root's state directory of this machine is not used.
const TWO_USERS: &str = r#"
set -e
trap '/mnt/ebof disconnect-all --force >/dev/null' EXIT
mount -t tmpfs tmpfs /mnt
touch /mnt/ebof
mount --bind "$EBOF" /mnt/ebof
mkdir -p /run/ebof
mount -t tmpfs -o mode=755 tmpfs /run/ebof
other() { echo "== $*"; setpriv --reuid 65534 --regid 65534 --clear-groups /mnt/ebof "$@" 2>&1 || echo "ends with $?"; }
/mnt/ebof connect -t tcp -a 127.0.0.1 -s "$PORT" -n "$NQN" -i 1 --front loop >/dev/null
cd /
for verb in list list-subsys "id-ctrl nvme0" "flush nvme0n1" "disconnect -d nvme0" "disconnect -n $NQN" disconnect-all; do
  other $verb
done
echo "== root"
/mnt/ebof list-subsys 2>&1
"#;

#[test]
fn another_user_sees_connections_of_root() {
    let tools = || std::process::Command::new("unshare").args(["-m", "setpriv", "--version"]).output();
    if !rustix::process::geteuid().is_root() || !can_attach() || !tools().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: no root, no unshare, or no block devices here");
        return;
    }
    let rig = Rig::new();
    let mut script = std::process::Command::new("unshare");
    script.args(["-m", "--propagation", "private", "sh", "-c", TWO_USERS]).env_remove("EBOF_RUNTIME_DIR");
    script.env_remove("XDG_RUNTIME_DIR").env("EBOF", env!("CARGO_BIN_EXE_ebof")).env("NQN", NQN);
    let output = script.env("PORT", rig.address("any").port().to_string()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let said = |verb: &str| text.split("== ").find_map(|part| part.strip_prefix(&format!("{verb}\n"))).unwrap();
    for verb in ["list", "list-subsys"] {
        let said = said(verb);
        assert!(said.starts_with("nvme0: connected by the superuser; commands to it need root"), "{text}");
        assert!(said.contains("nvme0n1") || said.contains(" +- nvme0 tcp traddr=127.0.0.1"), "{text}");
    }
    for (verb, name) in [("id-ctrl nvme0", "nvme0"), ("flush nvme0n1", "nvme0n1"), ("disconnect -d nvme0", "nvme0")] {
        let error =
            format!("error: {name} is connected by the superuser: this needs root (sudo ebof ...)\nends with 1\n");
        assert_eq!(said(verb), error, "{text}");
    }
    for verb in [&format!("disconnect -n {NQN}"), "disconnect-all"] {
        assert!(said(verb).starts_with("nvme0: connected by the superuser; disconnecting needs root"), "{text}");
    }
    assert!(said("root").contains(" +- nvme0 tcp") && said("root").contains(" live"), "{text}");
}
