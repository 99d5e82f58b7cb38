//! Commands that messages suggest work as printed.

use ebof_nvme::Nqn;

use super::drive::{ALICE, Rig as Drive};
use super::{FRIEND_NQN, NQN, PRIVATE_NQN, Rig, Run};

/// The commands with arguments between backticks in a message.
pub(super) fn advised(message: &str) -> Vec<Vec<String>> {
    let spans = message.split('`').skip(1).step_by(2);
    let commands = spans.filter_map(|span| span.strip_prefix("ebof "));
    let words = commands.map(|command| command.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    words.filter(|words| words.len() > 1).collect()
}

/// Runs a verb that fails, then each command that its message suggests, with these additional
/// arguments.
#[track_caller]
fn follow(run: impl Fn(&[&str]) -> Run, args: &[&str], more: &[&str]) -> Vec<String> {
    let failed = run(args);
    assert!(matches!(failed.code, Some(1 | 2)), "{args:?} ends with {:?}: {}", failed.code, failed.stderr);
    let commands = advised(&failed.stderr);
    assert!(!commands.is_empty(), "{args:?} advises no command: {}", failed.stderr);
    let mut outputs = Vec::new();
    for command in commands {
        let words: Vec<&str> = command.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let followed = run(&words);
        assert_eq!(followed.code, Some(0), "{args:?} advises {words:?}: {}", followed.stderr);
        outputs.push(String::from_utf8_lossy(&followed.stdout).into_owned());
    }
    outputs
}

#[test]
fn hints_for_a_failed_connect_lead_to_a_connection() {
    let rig = Rig::new();
    let run = |args: &[&str]| rig.run(args);
    // A wrong NQN, and a discovery-only port: subsystems that discovery lists can be connected.
    for address in [rig.address("any"), rig.address("discovery")] {
        let lists = follow(run, &["id-ctrl", &format!("nvme+tcp://{address}/nqn.2014-08.org.example:typo")], &[]);
        let [list] = lists.as_slice() else { panic!("{lists:?}") };
        let value = |entry: &str, key: &str| {
            let line = entry.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_else(|| panic!("{entry}"));
            line.trim_start_matches(':').trim().to_owned()
        };
        let entry = list.split("=====Discovery Log Entry").find(|entry| entry.contains("nvme subsystem")).unwrap();
        let traddr = value(entry, "traddr");
        let port = value(entry, "trsvcid");
        let nqn = value(entry, "subnqn");
        rig.run(&["id-ctrl", &format!("nvme+tcp://{traddr}:{port}/{nqn}")]).ok();
    }
    // A host that is not allowed: with the NQN of one that is.
    let private = rig.uri(PRIVATE_NQN, "");
    let refused = rig.run(&["id-ctrl", &private, "--hostnqn", "nqn.2014-08.org.example:stranger"]);
    assert!(refused.failed().contains("or connect with --hostnqn of one that is"), "{}", refused.stderr);
    rig.run(&["id-ctrl", &private, "--hostnqn", FRIEND_NQN]).ok();
    // Discovery of an NQN that is not a discovery service: without the NQN.
    let port = rig.address("any").port().to_string();
    let discover = ["discover", "-a", "127.0.0.1", "-s", &port];
    let refused = rig.run(&[&discover[..], &["-n", NQN]].concat());
    assert!(refused.failed().contains("leave the NQN away"), "{}", refused.stderr);
    rig.run(&discover).ok();
    let named = rig.run(&["read", &rig.uri(Nqn::DISCOVERY, "/1")]);
    assert!(named.failed().contains("is a discovery service"), "{}", named.stderr);
    // Digests that the port refuses: without them, and at a port that accepts them.
    let plain = format!("nvme+tcp://{}/{NQN}", rig.address("plain"));
    let refused = rig.run(&["id-ctrl", &plain, "--hdr-digest", "--data-digest"]);
    assert!(refused.failed().contains("connect without --hdr-digest and --data-digest"), "{}", refused.stderr);
    rig.run(&["id-ctrl", &plain]).ok();
    rig.run(&["id-ctrl", &rig.uri(NQN, ""), "--hdr-digest", "--data-digest"]).ok();
    // An address that does not belong to this machine.
    let refused = rig.run(&["id-ctrl", &rig.uri(NQN, ""), "--host-traddr", "192.0.2.1"]);
    assert!(refused.failed().contains("give --host-traddr an address of this machine"), "{}", refused.stderr);
    rig.run(&["id-ctrl", &rig.uri(NQN, ""), "--host-traddr", "127.0.0.1"]).ok();
}

#[test]
fn commands_in_hints_of_refusals_work() {
    let rig = Rig::new();
    let run = |args: &[&str]| rig.run(args);
    let controller = rig.uri(NQN, "");
    let namespace = rig.uri(NQN, "/1");
    let protected = rig.uri(NQN, "/2");
    let absent = rig.uri(NQN, "/9");
    for args in [
        &["get-log", &controller, "-i", "0x0d", "-l", "512"][..],
        &["read", &absent],
        &["id-ns", &absent],
        &["write-zeroes", &protected],
        &["device-self-test", &controller, "-s", "1"],
        &["sanitize", &controller, "-a", "start-block-erase", "--force"],
        &["format", &namespace, "--force"],
        &["fw-commit", &controller, "-a", "1", "-s", "1"],
        &["attach-ns", &controller, "-n", "1"],
        &["resv-report", &namespace],
        &["subsystem-reset", &controller],
    ] {
        follow(run, args, &[]);
    }
}

#[test]
fn commands_in_hints_of_a_drives_refusals_work() {
    let rig = Drive::new("1G", "");
    let run = |args: &[&str]| rig.run(args);
    let controller = rig.uri("");
    let namespace = rig.uri("/1");
    let alice = ["--hostnqn", ALICE];
    rig.host(ALICE, "create-ns", "", &["-S", "8M", "-m", "1"]).ok();
    rig.host(ALICE, "attach-ns", "", &["-n", "1"]).ok();
    rig.host(ALICE, "create-ns", "", &["-S", "64Mi"]).ok();
    rig.host(ALICE, "attach-ns", "", &["-n", "2"]).ok();
    let large = rig.uri("/2");
    let image = rig.directory.path().join("image");
    std::fs::write(&image, [0; 8192]).unwrap();
    let image = image.to_str().unwrap();
    for args in [
        &["create-ns", &controller, "-s", "10", "-c", "20"][..],
        &["attach-ns", &controller, "-n", "9"],
        &["attach-ns", &controller, "-n", "1"],
        &["delete-ns", &controller, "-n", "9", "--force"],
        &["format", &namespace, "--lbaf", "9", "--force"],
        &["fw-commit", &controller, "-a", "1", "-s", "7"],
        &["persistent-event-log", &controller, "-a", "0", "-l", "512"],
        &["copy", &namespace, "-d", "0", "-s", "100", "-b", "65535"],
        &["read", &namespace, "-s", "0", "--prinfo", "4"],
        &["verify", &large, "-c", "65535"],
        &["write-zeroes", &large, "-c", "65535"],
        &["resv-release", &namespace, "--crkey", "1", "-t", "write-exclusive"],
        &["get-log", &controller, "-i", "0xee", "-l", "512"],
    ] {
        follow(run, &[args, &alice].concat(), &alice);
    }
    // Too much for one command: the message has the limit, which works.
    for verb in ["verify", "write-zeroes"] {
        let refused = rig.host(ALICE, verb, "/2", &["-c", "65535"]);
        assert!(
            refused.failed().contains("65536 blocks are more than one such command may name: at most 32768"),
            "{}",
            refused.stderr
        );
        rig.host(ALICE, verb, "/2", &["-c", "32767"]).ok();
        rig.host(ALICE, verb, "/2", &["-s", "32768", "-c", "32767"]).ok();
    }
    // A damaged image: it is downloaded again.
    rig.host(ALICE, "fw-download", "", &["-f", image]).ok();
    let refused = rig.host(ALICE, "fw-commit", "", &["-a", "1", "-s", "2"]);
    let again = advised(refused.failed());
    assert_eq!(again[0][..1], ["fw-download"], "{}", refused.stderr);
    let again: Vec<&str> = again[0].iter().map(|word| if word == "FILE" { image } else { word }).chain(alice).collect();
    rig.run(&again).ok();
}

#[test]
fn a_protected_namespace_can_be_deleted_as_the_hint_says() {
    let rig = Drive::new("1G", "");
    rig.host(ALICE, "create-ns", "", &["-S", "8M"]).ok();
    rig.host(ALICE, "attach-ns", "", &["-n", "1"]).ok();
    rig.host(ALICE, "set-feature", "", &["-n", "1", "-f", "0x84", "-V", "1"]).ok();
    let delete = ["delete-ns", &rig.uri(""), "-n", "1", "--force", "--hostnqn", ALICE];
    follow(|args| rig.run(args), &delete, &["--hostnqn", ALICE]);
    rig.run(&delete).ok();
}

/// The same where there is space, but not for this host.
// @test output.advice
#[test]
fn a_host_with_a_quota_goes_on_as_the_hints_say() {
    let rig = Drive::new("512M", &format!(",manager={ALICE},quota={ALICE}:64M"));
    let create = |size: &str| rig.host(ALICE, "create-ns", "", &["-S", size]);
    create("40M").ok();
    let refused = create("32M");
    let text = refused.failed();
    assert!(
        text.contains("ask for less; the target may have a quota for this host; or delete a namespace whose data"),
        "{text}"
    );
    create("16M").ok();
    create("32M").failed();
    rig.host(ALICE, "delete-ns", "", &["-n", "1", "--force"]).ok();
    create("32M").ok();
}

/// Advice in words, of which one part destroys: each part leads on, the harmless ones first.
// @test output.destroying-advice
#[test]
fn a_full_drive_is_used_again_as_the_hints_say() {
    let rig = Drive::new("512M", ",namespaces=2");
    let create = |size: &str| rig.host(ALICE, "create-ns", "", &["-S", size]);
    create("300M").ok();
    let refused = create("400M");
    let text = refused.failed();
    assert!(
        text.contains("ask for less; ") && text.ends_with("or delete a namespace whose data may be lost\n"),
        "{text}"
    );
    create("16M").ok();
    let refused = create("8M");
    let text = refused.failed();
    assert!(text.contains("as many namespaces as it can (2): use another drive, or delete one"), "{text}");
    let delete = |nsid: &str| rig.host(ALICE, "delete-ns", "", &["-n", nsid, "--force"]).ok();
    delete("2");
    create("8M").ok();
    delete("1");
    create("400M").ok();
}
