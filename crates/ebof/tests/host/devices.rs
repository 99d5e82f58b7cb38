//! Connected devices: from connect to disconnect, with a real block device. Where this machine cannot make one, the
//! test says so and ends.

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
fn a_connected_device_takes_every_verb_and_goes_away() {
    if !can_attach() {
        eprintln!("skipped: no /dev/fuse or /dev/loop-control here, or no right to use them");
        return;
    }
    let rig = Rig::new();
    let address = rig.address("any");
    let json = connect(&rig, address, NQN, &["-o", "json"]).json();
    assert_eq!(json["schema"], "ebof/connect/1", "{json}");
    let (controller, name) = (json["device"].as_str().unwrap(), json["namespaces"][0]["name"].as_str().unwrap());
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
fn connect_tells_why_not_as_every_other_verb() {
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
