//! Error messages of failed connects: what was tried, the response, what to do; as text and as
//! JSON.

use std::io::Write as _;
use std::net::TcpListener;

use ebof_initiator::{Controller, Options};
use ebof_nvme::Nqn;

use super::{NQN, PRIVATE_NQN, Rig, SINGLE_NQN, write};

/// Runs a verb that cannot connect; checks that text and JSON agree, and returns the text.
fn told(rig: &Rig, args: &[&str], kind: &str) -> String {
    let text = rig.run(args).failed().to_owned();
    for part in ["\n  tried:  ", "\n  answer: ", "\n  to do:  "] {
        assert!(text.contains(part), "{text}");
    }
    let run = rig.run(&[args, &["-o", "json"]].concat());
    assert_eq!(run.code, Some(1));
    let json = run.json();
    assert_eq!((&json["schema"], &json["error"]["kind"]), (&"ebof/error/1".into(), &kind.into()), "{text}");
    for key in ["message", "tried", "answer", "advice"] {
        assert!(text.contains(json["error"][key].as_str().unwrap()), "{key} of {json} is not in {text}");
    }
    text
}

fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

// @test output.connect-errors
#[test]
fn wrong_address() {
    let rig = Rig::new();
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = told(&rig, &["id-ctrl", &format!("nvme+tcp://127.0.0.1:{port}/{NQN}")], "refused");
    assert_says(&text, &[&format!("127.0.0.1:{port}"), "nobody listens there", "ECONNREFUSED", "ss -ltn"]);
    let text = told(&rig, &["discover", "-a", "127.0.0.1", "-s", &port.to_string()], "refused");
    assert_says(&text, &["nobody listens there"]);
    let text = told(&rig, &["id-ctrl", "nvme+tcp://no-such-host.invalid/x"], "name-not-resolved");
    assert_says(&text, &["no-such-host.invalid", "check the spelling"]);
}

// @test output.connect-errors
#[test]
fn wrong_nqn() {
    let rig = Rig::new();
    let text = told(&rig, &["id-ctrl", &rig.uri("nqn.2014-08.org.example:drive9", "")], "wrong-nqn");
    let answer = "Connect Invalid Parameters (SCT 1h, SC 82h), field NVM Subsystem NQN (SUBNQN) at offset 256";
    assert_says(
        &text,
        &["knows no subsystem nqn.2014-08.org.example:drive9", answer, "ebof discover -t tcp -a 127.0.0.1"],
    );
}

// @test output.connect-errors
#[test]
fn host_not_allowed() {
    let rig = Rig::new();
    let host = "nqn.2014-08.org.example:stranger";
    let text = told(&rig, &["id-ctrl", &rig.uri(PRIVATE_NQN, ""), "--hostnqn", host], "host-not-allowed");
    assert_says(&text, &[&format!("subsystem {PRIVATE_NQN} does not admit this host"), "Connect Invalid Host"]);
    assert_says(&text, &[&format!("add host {host} to the subsystem's allowed hosts")]);
}

// @test output.connect-errors
#[test]
fn wrong_port_type() {
    let rig = Rig::new();
    let discovery = rig.address("discovery");
    let text = told(&rig, &["id-ctrl", &format!("nvme+tcp://{discovery}/{NQN}")], "wrong-nqn");
    assert_says(&text, &[&format!("ebof discover -t tcp -a 127.0.0.1 -s {}", discovery.port())]);
    let port = rig.address("any").port().to_string();
    let text = told(&rig, &["discover", "-a", "127.0.0.1", "-s", &port, "-n", NQN], "not-discovery");
    assert_says(&text, &["is a subsystem with namespaces, not a discovery service", "ebof connect"]);
    let run = rig.run(&["connect", "-a", "127.0.0.1", "-s", &port, "-n", Nqn::DISCOVERY]);
    assert_says(run.misused(), &["the discovery service has no namespaces", "ebof connect-all"]);
}

// @test output.connect-errors
#[test]
fn a_peer_that_is_not_nvme() {
    let rig = Rig::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // The peer may close before it has read everything.
            let _unread = stream.unwrap().write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n");
        }
    });
    let uri = format!("nvme+tcp://{address}/{NQN}");
    let text = told(&rig, &["id-ctrl", &uri], "not-nvme");
    assert_says(
        &text,
        &["not an NVMe/TCP target but an SSH server", "\"SSH-2.0-OpenSSH_9.2p1 Debian-2\"", "check the port"],
    );
}

#[test]
fn a_peer_that_is_silent() {
    let rig = Rig::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("nvme+tcp://{}/{NQN}", listener.local_addr().unwrap());
    let text = told(&rig, &["id-ctrl", &uri, "--timeout", "200"], "timed-out");
    assert_says(&text, &["no answer", "none within 200 ms", "accepts connections there but does not speak"]);
}

// @test output.connect-errors
#[test]
fn digest_refused() {
    let rig = Rig::new();
    let uri = format!("nvme+tcp://{}/{NQN}", rig.address("plain"));
    rig.run(&["id-ctrl", &uri]).ok();
    let text = told(&rig, &["id-ctrl", &uri, "--data-digest"], "digest-refused");
    assert_says(&text, &["the target refuses the data digest", "connect without --data-digest"]);
}

// @test output.connect-errors
#[test]
fn no_free_controller() {
    let rig = Rig::new();
    let address = rig.address("any");
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(SINGLE_NQN).unwrap());
    options.nr_io_queues = 0;
    let first = Controller::connect(&options).unwrap();
    let text = told(&rig, &["id-ctrl", &rig.uri(SINGLE_NQN, "")], "controller-busy");
    assert_says(&text, &["has no free controller", "Connect Controller Busy", "disconnect a host that is not needed"]);
    first.disconnect();
}

// @test output.configuration-errors
#[test]
fn unreadable_config() {
    let rig = Rig::new();
    let file = rig.path("ebof.toml");
    write(&file, b"[[ports]]\nlisten = \"tcp://127.0.0.1:4420\"\nheader_digset = \"off\"\n");
    let run = rig.run(&["config", "check", &file]);
    assert_eq!(run.code, Some(1));
    assert_says(&run.stderr, &["`header_digset`", &format!("--> {file}:3:1"), "^^^^", "did you mean `header_digest`?"]);
    let starts = run.stderr.starts_with("error: `header_digset`");
    assert!(starts && run.stderr.matches("error: ").count() == 1, "the word is there once: {}", run.stderr);
    let json = rig.run(&["config", "check", &file, "-o", "json"]).json();
    assert_eq!(json["error"]["kind"], "config");
    assert_eq!(
        (&json["error"]["diagnostics"][0]["line"], &json["error"]["diagnostics"][0]["column"]),
        (&3.into(), &1.into())
    );
    let missing = rig.path("missing.toml");
    assert_says(
        rig.run(&["config", "check", &missing]).failed(),
        &["reading the configuration", "missing.toml", "No such file"],
    );
    write(&file, b"[[ports]]\nlisten = \"tcp://127.0.0.1:4420\"\n");
    assert!(rig.run(&["config", "check", &file]).ok().contains("ok (1 port, 0 hosts, 0 subsystems, 0 namespaces)"));
}

#[test]
fn mistakes_on_the_command_line_have_exit_status_2() {
    let rig = Rig::new();
    let run = rig.run(&["id-ctrl", "nvme0", "--no-such-option"]);
    assert_eq!(run.code, Some(2));
    assert_says(&run.stderr, &["unexpected argument '--no-such-option'"]);
    let run = rig.run(&["id-ctrl", "nvme0", "--no-such-option", "-o", "json"]);
    assert_eq!((run.code, &run.json()["error"]["kind"]), (Some(2), &"usage".into()));
}
