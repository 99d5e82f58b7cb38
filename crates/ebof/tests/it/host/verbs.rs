//! Every verb, over a URI.

use std::path::Path;
use std::process::Stdio;

use super::{BLOCKS, FRIEND_NQN, NQN, PRIVATE_NQN, Rig, write};

#[test]
fn inspecting_verbs_print_nvme_clis_fields() {
    let rig = Rig::new();
    let controller = rig.uri(NQN, "");
    let namespace = rig.uri(NQN, "/1");
    for (args, lines) in [
        (
            vec!["id-ctrl", &controller],
            vec!["NVME Identify Controller:", "cntrltype : 1", &format!("subnqn    : {NQN}")],
        ),
        (vec!["id-ctrl", &controller, "-H"], vec!["  I/O controller", "Keep Alive in steps of"]),
        (vec!["id-ns", &namespace], vec!["NVME Identify Namespace 1:", "nsze    : 0x4000", "lbads:9  rp:0 (in use)"]),
        (vec!["id-ns", &controller, "-n", "2"], vec!["NVME Identify Namespace 2:", "nsze    : 0x1000", "nsattr  : 1"]),
        (vec!["list-ns", &controller], vec!["[   0]:0x1\n[   1]:0x2\n"]),
        (vec!["list-ns", &controller, "-n", "0x2"], vec!["[   0]:0x2\n"]),
        (vec!["list-ctrl", &controller], vec!["num of ctrls present: 1\n[   0]:0x"]),
        (vec!["ns-descs", &namespace], vec!["uuid    : ", "csi     : 0\n"]),
        (vec!["show-regs", &controller], vec!["cap     : 0x", "version : 0x2", "cc      : 0x460001", "csts    : 0x1"]),
        (vec!["show-regs", &controller, "-v"], vec!["Ready (RDY)", "Maximum Queue Entries Supported (MQES)"]),
        (vec!["smart-log", &controller], vec!["namespace-id:ffffffff", "critical_warning ", "power_on_hours "]),
        (vec!["error-log", &controller, "-e", "2"], vec!["entries:2\n", "Entry[ 1]"]),
        (vec!["fw-log", &controller], vec!["afi  : 0x1", "frs1 : 0x"]),
        (vec!["effects-log", &controller, "-v"], vec!["ACS6     [Identify", "IOCS1    [Write", "LBCC+"]),
        (vec!["supported-log-pages", &controller], vec!["LID 0x2 - SMART / Health Information", "LID 0 - Supported"]),
        (vec!["changed-ns-list-log", &controller], vec!["no ns changed"]),
        (vec!["get-log", &controller, "-i", "2", "-l", "512"], vec!["log-id:2 (SMART", "01f0:"]),
        (
            vec!["get-feature", &controller, "-f", "7", "-H"],
            vec!["get-feature:0x07 (Number of Queues), Current", "NCQA"],
        ),
        (vec!["get-feature", &controller, "-f", "0x0b", "-s", "3"], vec!["Feature is changeable"]),
        (vec!["get-feature", &namespace, "-f", "0x84", "-H"], vec!["No Write Protect"]),
    ] {
        let text = rig.run(&args).ok();
        for line in lines {
            assert!(text.contains(line), "{args:?} has no {line:?}:\n{text}");
        }
    }
}

#[test]
fn binary_output_is_the_controllers_data() {
    let rig = Rig::new();
    let controller = rig.uri(NQN, "");
    let raw = rig.run(&["id-ctrl", &controller, "-b"]);
    assert_eq!((raw.code, raw.stdout.len()), (Some(0), 4096));
    assert_eq!(&raw.stdout[768..768 + NQN.len()], NQN.as_bytes());
    let by_log = rig.run(&["get-log", &controller, "-i", "2", "-l", "512", "--raw-binary"]);
    let by_verb = rig.run(&["smart-log", &controller, "-o", "binary"]);
    assert_eq!((by_log.stdout.len(), by_log.stdout.len()), (512, by_verb.stdout.len()));
}

#[test]
fn discovery_lists_the_subsystems_that_the_host_may_use() {
    let rig = Rig::new();
    let port = rig.address("any").port().to_string();
    let ask = |more: &[&str]| rig.run(&[&["discover", "-t", "tcp", "-a", "127.0.0.1", "-s", &port], more].concat());
    let text = ask(&[]).ok();
    assert!(text.starts_with("\nDiscovery Log Number of Records "), "{text}");
    assert!(text.contains(&format!("subnqn:  {NQN}\ntraddr:  127.0.0.1\n")) && !text.contains(PRIVATE_NQN), "{text}");
    assert!(ask(&["-q", FRIEND_NQN]).ok().contains(PRIVATE_NQN));
    let json = ask(&["-o", "json"]).json();
    assert_eq!(json["schema"], "ebof/discover/1");
    assert!(json["records"].as_array().unwrap().iter().any(|record| record["subnqn"] == NQN));
    let file = rig.path("log");
    ask(&["--raw", &file]).ok();
    let bytes = std::fs::read(file).unwrap();
    assert_eq!(bytes.len(), 1024 * (1 + json["records"].as_array().unwrap().len()));
}

#[test]
fn blocks_are_written_read_and_compared() {
    let rig = Rig::new();
    let namespace = rig.uri(NQN, "/1");
    let data: Vec<u8> = (0..4096_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let file = rig.path("data");
    write(&file, &data);
    let run = rig.run(&["write", &namespace, "-s", "8", "-c", "7", "-z", "4096", "-d", &file, "-f"]);
    assert_eq!(run.ok(), "write: Success\n");
    assert_eq!(rig.run(&["flush", &namespace]).ok(), "flush: Success\n");
    // Data by standard output, by file, and the length by either count.
    let run = rig.run(&["read", &namespace, "-s", "0x8", "-c", "7"]);
    assert_eq!((run.code, run.stdout == data, run.stderr.as_str()), (Some(0), true, "read: Success\n"));
    let copy = rig.path("copy");
    rig.run(&["read", &namespace, "-s", "8", "-z", "4Ki", "-d", &copy]).ok();
    assert!(std::fs::read(&copy).unwrap() == data);
    // nvme-cli truncates the output at --data-size.
    assert_eq!(rig.run(&["read", &namespace, "-s", "8", "-z", "100"]).stdout, data[..100]);
    let compare = |start: &str| rig.run_with_input(&["compare", &namespace, "-s", start, "-c", "7"], &data);
    assert_eq!(compare("8").ok(), "compare: Success\n");
    let run = compare("9");
    assert!(
        run.failed().starts_with("Compare: the controller answered Compare Failure (SCT 2h, SC 85h"),
        "{}",
        run.stderr
    );
    assert!(run.failed().contains("blocks 9 to 16 of namespace 1 differ"), "{}", run.stderr);
    assert_eq!(rig.run(&["verify", &namespace, "-s", "8", "-c", "7"]).ok(), "verify: Success\n");
    assert_eq!(rig.run(&["dsm", &namespace, "-d", "-s", "8,12", "-b", "2,1"]).ok(), "dsm: Success\n");
    assert_eq!(rig.run(&["write-zeroes", &namespace, "-s", "10", "-c", "1", "--deac"]).ok(), "write-zeroes: Success\n");
    let run = rig.run(&["read", &namespace, "-s", "8", "-c", "7"]);
    // Blocks 8 and 9 and block 12 deallocated, 10 and 11 zeroed.
    let expected = [&[0; 5 * 512][..], &data[5 * 512..]].concat();
    assert!(run.stdout == expected, "deallocated and zeroed blocks read as zeros, the others as they were");
}

#[test]
fn short_data_are_padded_and_a_dry_run_sends_nothing() {
    let rig = Rig::new();
    let namespace = rig.uri(NQN, "/1");
    let run = rig.run_with_input(&["write", &namespace, "-w"], b"never");
    assert!(run.stderr.contains("nothing was sent"), "{}", run.stderr);
    let run = rig.run_with_input(&["write", &namespace], b"hello");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), "write: 5 bytes of data are filled up with zeros to 512\n"));
    let block = rig.run(&["read", &namespace]).stdout;
    assert!(block.starts_with(b"hello\0\0") && block.len() == 512);
}

#[test]
fn a_feature_is_set_and_cleared() {
    let rig = Rig::new();
    let controller = rig.uri(NQN, "");
    let json = rig.run(&["set-feature", &controller, "-f", "0x84", "-n", "1", "-V", "1", "-o", "json"]).json();
    assert_eq!((&json["schema"], &json["value"]), (&"ebof/set-feature/1".into(), &1.into()));
    let run = rig.run_with_input(&["write", &rig.uri(NQN, "/1")], b"x");
    assert!(run.stderr.contains("Namespace is Write Protected (SCT 0h, SC 20h"), "{}", run.stderr);
    assert!(run.stderr.contains("-n 1 -f 0x84 -H` shows its protection"), "{}", run.stderr);
    rig.run(&["set-feature", &controller, "-f", "0x84", "-n", "1", "-V", "0"]).ok();
    rig.run_with_input(&["write", &rig.uri(NQN, "/1")], b"x").ok();
}

#[test]
fn a_controller_returns_after_a_reset() {
    let rig = Rig::new();
    assert_eq!(rig.run(&["reset", &rig.uri(NQN, "")]).ok(), "reset: Success\n");
}

#[test]
fn digests_and_host_identity_apply_to_a_uri() {
    let rig = Rig::new();
    rig.run(&["id-ns", &rig.uri(NQN, "/1"), "--hdr-digest", "--data-digest"]).ok();
    rig.run(&["id-ctrl", &rig.uri(PRIVATE_NQN, ""), "--hostnqn", FRIEND_NQN]).ok();
}

#[test]
fn refusals_are_explained() {
    let rig = Rig::new();
    let controller = rig.uri(NQN, "");
    let namespace = rig.uri(NQN, "/1");
    let last = (BLOCKS - 1).to_string();
    for (code, args, expected) in [
        (
            1,
            vec!["read", &namespace, "-s", &last, "-c", "1"],
            vec![
                "Read: the controller answered LBA Out of Range (SCT 0h, SC 80h",
                "namespace 1 has 16384 blocks, 0 to 16383",
            ],
        ),
        (1, vec!["id-ns", &controller, "-n", "7"], vec!["no namespace 7", "`ebof list-ns "]),
        (2, vec!["id-ns", &controller], vec!["names a controller, and this is about a namespace", "--namespace-id"]),
        (1, vec!["get-log", &controller, "-i", "0xd", "-l", "512"], vec!["log page 0x0d (Persistent Event Log)"]),
        (1, vec!["get-feature", &controller, "-f", "0x10"], vec!["feature 0x10 (Host Controlled Thermal Management)"]),
        (2, vec!["read", &namespace, "-c", "0", "-z", "1024"], vec!["2 blocks of 512 bytes hold the data", "one less"]),
        (2, vec!["ns-rescan", &controller], vec!["is a URI", "`ebof connect`"]),
        (1, vec!["id-ctrl", "nvme77"], vec!["nvme77 is not connected; `ebof list`"]),
        (
            2,
            vec!["id-ctrl", "nvme+tcp://h:0/x"],
            vec!["the port must be a number from 1 to 65535", "nvme+tcp://HOST[:PORT]/NQN[/NSID]"],
        ),
        (
            2,
            vec!["id-ctrl", "nvme+rdma://h/x", "--hdr-digest"],
            vec!["--hdr-digest is an option of TCP", "nvme+tcp://"],
        ),
        (
            1,
            vec!["connect", "-t", "fc", "-a", "h", "-n", "x"],
            vec!["transport fc is not supported by this version", "-t rdma"],
        ),
        (2, vec!["connect", "-a", "h", "-n", "x", "--keyring", "k"], vec!["--tls"]),
        (2, vec!["connect", "-a", "h", "-n", "x", "--concat", "--tls"], vec!["--concat", "--tls"]),
        (2, vec!["connect", "-a", "h", "-n", "x", "--concat"], vec!["--concat needs this host's secret"]),
        (2, vec!["id-ctrl", "nvme+tcp://h/x", "--concat"], vec!["--dhchap-secret-file"]),
        (
            2,
            vec!["connect", "-a", "h", "-n", "x", "-S", "DHHC-1:x", "--concat", "--tls-key-file", "k"],
            vec!["'--concat' cannot be used with '--tls-key-file"],
        ),
        (
            2,
            vec!["connect", "-t", "rdma", "-a", "h", "-n", "x", "--tls", "--tls-key-file", "k"],
            vec!["--tls is an option of TCP"],
        ),
        (2, vec!["connect", "-a", "h", "-n", "x", "-S", "DHHC-1:x"], vec!["--dhchap-secret is no secret"]),
        (2, vec!["connect", "-a", "h"], vec!["--nqn (-n) is missing"]),
        (
            2,
            vec!["discover", "-a", "h", "-p"],
            vec!["--persistent and --vanished are for what connects", "connect-all"],
        ),
        (1, vec!["read", &namespace, "-M", "x"], vec!["over a fabric metadata has no buffer of its own"]),
    ] {
        let run = rig.run(&args);
        for text in expected {
            assert!(run.ended_with(code).contains(text), "{args:?} does not say {text:?}:\n{}", run.stderr);
        }
    }
}

#[test]
fn a_pipe_that_is_closed_early_is_not_an_error() {
    let rig = Rig::new();
    let mut command = rig.command(&["id-ctrl", &rig.uri(NQN, ""), "-v"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), b"".as_slice()));
}

#[test]
fn without_connections_the_list_is_empty() {
    let rig = Rig::new();
    assert!(rig.run(&["list"]).ok().starts_with("Node                  Generic "));
    assert_eq!(rig.run(&["list", "-o", "json"]).json()["Devices"], serde_json::json!([]));
    assert_eq!(rig.run(&["list-subsys"]).ok(), "");
    assert_eq!(rig.run(&["disconnect", "-n", NQN]).ok(), format!("NQN:{NQN} disconnected 0 controller(s)\n"));
    assert_eq!(rig.run(&["disconnect-all"]).ok(), "");
    assert!(rig.run(&["disconnect", "-d", "nvme0"]).failed().contains("nvme0 is not connected"));
}

#[test]
fn help_completions_and_man_pages_are_generated() {
    let rig = Rig::new();
    let help = rig.run(&["--help"]).ok();
    for text in ["Connect:\n  discover ", "Inspect:\n  id-ctrl ", "I/O:\n  read ", "Examples:\n"] {
        assert!(help.contains(text), "{help}");
    }
    for shell in ["bash", "zsh", "fish"] {
        // The shell asks: see `completion`.
        assert!(rig.run(&["completions", shell]).ok().contains("COMPLETE"));
    }
    assert!(rig.run(&["completions", "elvish"]).ok().contains("smart-log"));
    let directory = rig.path("man");
    rig.run(&["man", &directory]).ok();
    let page = std::fs::read_to_string(format!("{directory}/ebof-id-ctrl.1")).unwrap();
    assert!(page.contains("Show Identify Controller") && page.contains("ebof id\\-ctrl nvme0"), "{page}");
    for page in ["ebof.1", "ebof-target-show.1", "ebof.toml.5", "ebof-connections.toml.5", "ebof.service.8"] {
        assert!(Path::new(&directory).join(page).exists(), "{page}");
    }
    assert!(rig.run(&["man", "ebof.toml"]).ok().contains(".SH NAME\nebof.toml \\- "));
    assert!(rig.run(&["--version"]).ok().starts_with("ebof "));
}

#[test]
fn host_nqns_are_generated_and_shown() {
    let rig = Rig::new();
    let make = || rig.run(&["gen-hostnqn"]).ok();
    assert!(make().starts_with("nqn.2014-08.org.nvmexpress:uuid:") && make() != make());
    assert_eq!(rig.run(&["show-hostnqn"]).ok(), rig.run(&["show-hostnqn"]).ok());
}

#[test]
fn a_target_without_a_drive_refuses_commands_of_drives() {
    let rig = Rig::new();
    let controller = rig.uri(NQN, "");
    let namespace = rig.uri(NQN, "/1");
    let image = rig.path("image");
    write(&image, &[0; 64]);
    for (args, texts) in [
        (vec!["create-ns", &controller, "-s", "8"], ["Namespace Management: the controller answered", "bit 3 of oacs"]),
        (vec!["attach-ns", &controller, "-n", "1"], ["Namespace Attachment: the controller answered", "bit 3 of oacs"]),
        (vec!["format", &namespace, "--force"], ["Format NVM: the controller answered", "bit 1 of oacs"]),
        (vec!["sanitize", &controller, "-a", "2", "--force"], ["Sanitize: the controller answered", "sanicap"]),
        (vec!["device-self-test", &controller], ["does not test itself", "bit 4 of oacs"]),
        (
            vec!["device-self-test", &controller, "-s", "short", "--wait"],
            ["Device Self-test: the controller answered Invalid Command Opcode", "read with `ebof verify`"],
        ),
        (vec!["fw-download", &controller, "-f", &image], ["Firmware Image Download: the controller", "bit 2 of oacs"]),
        (vec!["security-recv", &controller, "-x", "8"], ["Security Receive: the controller answered", "bit 0 of oacs"]),
        (vec!["get-lba-status", &namespace, "-a", "2"], ["Get LBA Status: the controller answered", "bit 9 of oacs"]),
        (vec!["persistent-event-log", &controller], ["0x0d (Persistent Event Log)", "supported-log-pages"]),
    ] {
        let run = rig.run(&args);
        let text = run.failed();
        for expected in texts {
            assert!(text.contains(expected), "{args:?} does not say {expected:?}:\n{text}");
        }
    }
}

#[test]
fn destructive_verbs_need_confirmation() {
    let rig = Rig::new();
    let namespace = rig.uri(NQN, "/1");
    let run = rig.run(&["format", &namespace, "-o", "json"]);
    assert_eq!((run.code, &run.json()["error"]["kind"]), (Some(1), &"not-confirmed".into()));
    let run = rig.run_with_input(&["sanitize", &rig.uri(NQN, ""), "-a", "start-block-erase"], b"yes\n");
    assert!(run.failed().contains("say --force where it is meant"), "{}", run.stderr);
}
