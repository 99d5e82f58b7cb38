//! Accepted configurations and their values, and diagnostics of others.

use super::*;
use crate::config::*;
use crate::diagnostic::Severity;
use crate::{Drive, Listen};
use ebof_nvme::Nqn;
use proptest::prelude::*;

mod advice;
mod keys;

const EXAMPLE: &str = include_str!("../../examples/ebof.toml");
const EXAMPLE_DIR: &str = "/etc/ebof";

fn good(text: &str) -> Config {
    match load("a.toml", text) {
        Ok(loaded) => loaded.config,
        Err(all) => panic!("{all}"),
    }
}

fn bad(text: &str) -> String {
    format!("{:#}", load("a.toml", text).expect_err("this text has a mistake"))
}

fn first_line(text: &str) -> String {
    load("a.toml", text).expect_err("this text has a mistake").items[0].to_string()
}

/// The keys of a written configuration, except for the host NQNs and the numbers of groups that are
/// keys of a table.
fn keys_of(written: &str) -> impl Iterator<Item = &str> {
    let keys = written.lines().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key);
    keys.filter(|key| !key.starts_with(|first: char| first == '"' || first.is_ascii_digit()))
}

/// A subsystem with one additional key.
fn in_subsystem(line: &str) -> String {
    format!("[[subsystems]]\nnqn = \"n\"\nallow_any_host = true\n{line}\n")
}

#[test]
fn the_example_has_every_key_and_no_diagnostics() {
    let loaded = load("examples/ebof.toml", EXAMPLE).unwrap();
    assert_eq!(loaded.remarks.to_string(), "");
    let Config { target, ports, hosts, drives, subsystems } = &loaded.config;
    assert_eq!(target.metrics, Some("127.0.0.1:9464".parse().unwrap()));
    assert_eq!((ports[0].id, ports[1].id, ports[1].discovery_only), (1, 2, true));
    assert_eq!(subsystems[0].allowed_hosts, [hosts[0].nqn.clone()]);
    assert_eq!(
        ((ports[2].srq_size, ports[2].busy_poll_us), subsystems[1].ports.as_slice()),
        ((Some(1024), Some(200)), ["storage".into(), "rdma".into()].as_slice())
    );
    let numbers = |subsystem: &Subsystem| subsystem.namespaces.iter().map(|ns| ns.nsid).collect::<Vec<_>>();
    assert_eq!((numbers(&subsystems[0]), numbers(&subsystems[1])), (vec![1, 2], vec![1, 2, 3]));
    assert_eq!((subsystems[2].drive.as_deref(), subsystems[2].cntlid_min), (Some("d0"), 128));
    assert_eq!((&subsystems[2].serial, &subsystems[2].model), (&"S3RIAL0002".into(), &"ebof drive".into()));
    assert_eq!((drives[0].size_bytes, drives[0].endurance_bytes), (Some(100_000_000_000), Some(600_000_000_000_000)));
    assert_eq!(drives[0].quotas[hosts[0].nqn.as_str()], 10_000_000_000_u64);
    assert!(subsystems[0].namespaces[1].write_protect, "a read-only drive is write-protected");
    // The example has every key of a written configuration.
    let written = loaded.config.to_toml().unwrap();
    for key in keys_of(&written) {
        assert!(EXAMPLE.contains(key), "the example does not show `{key}`");
    }
}

#[test]
fn the_smallest_configuration_is_one_line() {
    let config = good("subsystems = [{ nqn = \"n\", allow_any_host = true, namespaces = [\"disk.img\"] }]");
    assert_eq!(config.ports, [Port::new(1, Listen::loopback())]);
    assert_eq!(config.subsystems[0].ports, ["tcp://127.0.0.1:4420"]);
    assert_eq!(config.subsystems[0].namespaces[0].drive, Drive::file("disk.img"));
    assert_eq!(config.target, TargetOptions::default());
}

// @test output.derived-identifiers
#[test]
fn derived_identifiers_never_change() {
    let nqn = Nqn::parse("nqn.2014-08.org.example:drive0").unwrap();
    // Hosts remember these: a new version of ebof must derive the same.
    assert_eq!(default_serial(&nqn), "EBOFF7F8258C2BD15288");
    assert_eq!(default_uuid(&nqn, 1).to_string(), "d2c4d902-95e2-5fe7-bd0d-8635c44c1b9b");
    assert_ne!(default_uuid(&nqn, 1), default_uuid(&nqn, 2));
}

#[test]
fn unused_numbers_are_assigned_in_order() {
    let config = good(&in_subsystem("namespaces = [\"mem:1Mi\", { nsid = 2, drive = \"mem:2Mi\" }, \"mem:3Mi\"]"));
    let drives: Vec<_> = config.subsystems[0].namespaces.iter().map(|ns| (ns.nsid, ns.drive.to_string())).collect();
    assert_eq!(drives, [(1, "mem:1Mi".into()), (2, "mem:2Mi".into()), (3, "mem:3Mi".into())]);
}

#[test]
fn a_configuration_round_trips() {
    let few = "[target]\ndhchap_hashes = [\"sha256\"]\ndhchap_groups = [\"null\", \"ffdhe8192\"]";
    for config in [good(EXAMPLE), good(""), good(few), good(&in_subsystem("ports = []"))] {
        assert_eq!(good(&config.to_toml().unwrap()), config);
        let json = serde_json::to_string_pretty(&config).unwrap();
        assert_eq!(load("a.json", &json).unwrap().config, config, "as JSON");
        assert_eq!(check("the command line", &config).unwrap().config, config);
    }
}

#[test]
fn relative_paths_are_relative_to_the_file() {
    let mut config = good(EXAMPLE);
    config.rebase(Path::new(EXAMPLE_DIR));
    let path = |at: usize| config.subsystems[0].namespaces[at].drive.path();
    assert_eq!((path(0), path(1)), (Some("/etc/ebof/disk.img"), Some("/dev/nvme0n1")));
    assert_eq!(config.drives[0].backing.path(), Some("/etc/ebof/disk3.img"));
    assert_eq!(config.drives[0].key_file.as_deref(), Some("/etc/ebof/disk3.key"));
}

#[test]
fn the_format_is_detected_by_name_then_by_content() {
    assert_eq!(FileFormat::detect("a.TOML", "{"), FileFormat::Toml);
    assert_eq!(FileFormat::detect("a.json", ""), FileFormat::Json);
    assert_eq!(FileFormat::detect("nvmet.conf", " \n{}"), FileFormat::Json);
    assert_eq!(FileFormat::detect("-", "[target]"), FileFormat::Toml);
}

#[test]
fn a_message_shows_the_position_and_what_is_accepted() {
    assert_eq!(
        bad("[[subsystems]]\nnqn = \"n\"\nallow_any_host = true\n\n[[subsystems.namespaces]]\n\
             drive = \"disk.img\"\nblock_size = 1024\n"),
        "error: `block_size` is 1024\n \
         --> a.toml:7:14\n  \
           |\n\
         7 | block_size = 1024\n  \
           |              ^^^^\n  \
           |\n  \
           = help: accepted: 512 or 4096"
    );
    assert_eq!(
        bad("[[ports]]\nlisten = \"tcp://127.0.0.1:4420\"\nheader_digset = \"off\"\n"),
        "error: `header_digset` is not a key of a port\n \
         --> a.toml:3:1\n  \
           |\n\
         3 | header_digset = \"off\"\n  \
           | ^^^^^^^^^^^^^\n  \
           |\n  \
           = help: did you mean `header_digest`?"
    );
    assert_eq!(
        bad("[target]\nmax_connections = \n"),
        "error: string values must be quoted, expected literal string\n \
         --> a.toml:2:19\n  \
           |\n\
         2 | max_connections = \n  \
           |                   ^\n  \
           |\n  \
           = help: this is not TOML (https://toml.io): strings need quotes, tables are [NAME], lists of tables [[NAME]]"
    );
}

// @test limits.configuration-values
#[test]
fn each_mistake_is_reported() {
    let same_port = "[[ports]]\nlisten = \"tcp://[::1]:1\"\n[[ports]]\nlisten = \"tcp://[::1]:1\"";
    for (text, expected) in [
        ("port = 1", "1:1: error: `port` is not a key of a configuration"),
        ("[target]\nthreads = 0", "2:11: error: `threads` is 0"),
        ("[target]\nthreads = \"2\"", "2:11: error: `threads` is a string"),
        ("[target]\nhandshake_timeout = 30", "2:21: error: `handshake_timeout` has no unit"),
        ("[target]\nhandshake_timeout = \"1ms\"", "2:21: error: `handshake_timeout` is 1ms"),
        ("[target]\nhandshake_timeout = \"soon\"", "2:21: error: `soon` has no number"),
        ("[target]\nmetrics = \"9464\"", "2:11: error: `9464` is not an address and a port"),
        ("[target]\ndiscovery_nqn = \"a b\"", "2:17: error: the NQN has a control character or white space at byte 1"),
        ("[target]\ndhchap_hashes = []", "2:17: error: `dhchap_hashes` is empty: nothing would be accepted"),
        ("[target]\ndhchap_hashes = \"sha256\"", "2:17: error: `dhchap_hashes` is a string"),
        ("[target]\ndhchap_groups = [\"null\", 2048]", "2:26: error: `dhchap_groups` is an integer"),
        ("[target]\ndhchap_groups = [\"ffdhe1024\"]", "2:18: error: `dhchap_groups` is \"ffdhe1024\""),
        ("[target]\ndhchap_groups = [\"null\", \"null\"]", "2:26: error: `dhchap_groups` has \"null\" twice"),
        ("[ports]\nlisten = \"tcp://[::1]\"", "1:1: error: `ports` is a table, and there can be several"),
        ("[[ports]]\nname = \"a\"", "1:1: error: a port has no `listen`"),
        (
            "[[ports]]\nlisten = \"unix://10.0.0.1\"",
            "2:10: error: `unix` is a transport that this build does not serve",
        ),
        ("[[ports]]\nlisten = \"tcp://nas\"", "2:10: error: `nas` is a host name, and a port listens on an IP address"),
        (same_port, "4:10: error: the address tcp://[::1]:1 is used twice"),
        ("[[ports]]\nlisten = \"tcp://[::1]\"\nid = 65536", "3:6: error: `id` is 65536"),
        ("[[ports]]\nlisten = \"tcp://[::1]\"\nin_capsule_data = \"8X\"", "3:19: error: `8X` has an unknown unit"),
        ("[[ports]]\nlisten = \"tcp://[::1]\"\ntos = 256", "3:7: error: `tos` is 256"),
        ("[[ports]]\nlisten = \"tcp://[::1]\"\nbusy_poll_us = -1", "3:16: error: `busy_poll_us` is -1"),
        ("[[ports]]\nlisten = \"rdma://[::1]\"\nsrq_size = 8", "3:12: error: `srq_size` is 8"),
        (
            "[[ports]]\nlisten = \"tcp://[::1]\"\nsrq_size = 1024",
            "3:1: error: `srq_size` is for ports over RDMA, and this one is over TCP",
        ),
        ("[[ports]]\nlisten = \"tcp://[::1]\"\nzerocopy_send = \"2Ki\"", "3:17: error: `zerocopy_send` is 2Ki"),
        ("[[ports]]\nlisten = \"tcp://[::1]\"\nin_capsule_data = 100", "3:19: error: `in_capsule_data` is 100"),
        ("[[ports]]\nlisten = \"tcp://[::1]\"\ndata_digest = true", "3:15: error: `data_digest` is a boolean"),
        ("[[ports]]\nlisten = \"tcp://[::1]\"\ndata_digest = \"on\"", "3:15: error: `data_digest` is \"on\""),
        (
            "[[ports]]\nlisten = \"tcp://[::1]\"\nadvertise = \"0.0.0.0\"",
            "3:13: error: `0.0.0.0` is not an address to advertise",
        ),
        ("[[hosts]]\nnqn = \"h\"\n[[hosts]]\nnqn = \"h\"", "4:7: error: the host NQN h is used twice"),
        ("[[subsystems]]\nserial = \"1\"", "1:1: error: a subsystem has no `nqn`"),
        (
            "[[subsystems]]\nnqn = \"nqn.2014-08.org.nvmexpress:uuid:1\"",
            "2:7: error: the UUID in the NQN is malformed (want 8-4-4-4-12 or 32 hexadecimal digits)",
        ),
        (
            "[[subsystems]]\nnqn = \"nqn.2014-08.org.nvmexpress.discovery\"",
            "2:7: error: the well-known discovery NQN cannot name a subsystem",
        ),
        ("subsystems = [{ nqn = \"n\" }, { nqn = \"n\" }]", "1:38: error: the subsystem NQN n is used twice"),
    ] {
        assert_eq!(first_line(text), format!("a.toml:{expected}"), "{text}");
    }
}

#[test]
fn each_mistake_in_states_and_referrals_of_a_port_is_reported() {
    for (text, expected) in [
        (
            "[[ports]]\nlisten = \"tcp://[::1]\"\nreferrals = [\"tcp://0.0.0.0:1\"]",
            "3:14: error: no host can be referred to this address",
        ),
        (
            "[[ports]]\nlisten = \"tcp://[::1]\"\nreferrals = [\"host\"]",
            "3:14: error: `host` has no transport in front",
        ),
        (
            "[[ports]]\nlisten = \"tcp://[::1]\"\nreferrals = [{ tls = \"off\" }]",
            "3:14: error: a referral has no `address`",
        ),
        (
            "[[ports]]\nlisten = \"tcp://[::1]\"\nreferrals = [\"tcp://[::2]\", \"tcp://[::2]:8009\"]",
            "3:29: error: the referral is there twice",
        ),
        (
            "[[ports]]\nlisten = \"vfio-user:/a\"\nreferrals = [\"tcp://[::2]\"]",
            "3:1: error: `referrals` is for ports over TCP, and this one is over vfio-user",
        ),
        ("[[ports]]\nlisten = \"tcp://[::1]\"\nana = 2", "3:7: error: `ana` is an integer"),
        ("[[ports]]\nlisten = \"tcp://[::1]\"\nana.129 = \"change\"", "3:5: error: `129` is not an ANA group"),
        ("[[ports]]\nlisten = \"tcp://[::1]\"\nana.0 = \"change\"", "3:5: error: `0` is not an ANA group"),
        ("[[ports]]\nlisten = \"tcp://[::1]\"\nana.01 = \"change\"", "3:5: error: `01` is not an ANA group"),
        ("[[ports]]\nlisten = \"tcp://[::1]\"\nana.1 = \"lost\"", "3:9: error: `the state` is \"lost\""),
    ] {
        assert_eq!(first_line(text), format!("a.toml:{expected}"), "{text}");
    }
}

// @test limits.configuration-values
#[test]
fn each_mistake_in_a_subsystem_is_reported() {
    for (line, expected) in [
        ("serial = \"123456789012345678901\"", "4:10: error: `serial` has 21 characters"),
        ("model = \"Größe\"", "4:9: error: `model` has the character 'ö'"),
        ("allowed_hosts = [\"h\"]", "4:18: error: the host is not described"),
        ("ports = [\"b\"]", "4:10: error: there is no port `b`"),
        ("cntlid_min = 0", "4:14: error: `cntlid_min` is 0"),
        ("cntlid_min = 9\ncntlid_max = 8", "5:14: error: cntlid_min 9 is above cntlid_max 8"),
        ("namespaces = [{ nsid = 0, drive = \"a\" }]", "4:24: error: `nsid` is 0"),
        ("namespaces = [{ nsid = 4294967295, drive = \"a\" }]", "4:24: error: `nsid` is 4294967295"),
        ("namespaces = [{ nsid = 1 }]", "4:15: error: a namespace has no `drive`"),
        (
            "namespaces = [{ nsid = 1, drive = \"a\" }, { nsid = 1, drive = \"b\" }]",
            "4:51: error: the NSID 1 is used twice",
        ),
        ("namespaces = [\"a\", \"a\"]", "4:20: error: the drive a is used twice"),
        ("namespaces = [\"mem\"]", "4:15: error: `mem` needs a size"),
        ("namespaces = [{ drive = 1 }]", "4:25: error: `drive` is an integer"),
        ("namespaces = [{ drive = { path = \"a\", sise = 1 } }]", "4:39: error: `sise` is not a key of a drive"),
        (
            "namespaces = [{ drive = { path = \"a\", read_only = true }, write_protect = false }]",
            "4:75: error: the drive is read-only",
        ),
        (
            "namespaces = [{ drive = \"a\", uuid = \"00000000-0000-0000-0000-000000000000\" }]",
            "4:37: error: `00000000-0000-0000-0000-000000000000` is not a UUID",
        ),
        ("namespaces = [{ drive = \"a\", eui64 = \"12\" }]", "4:38: error: `12` is not an EUI-64"),
        ("namespaces = [{ drive = \"a\", nguid = \"12\" }]", "4:38: error: `12` is not an NGUID"),
        ("namespaces = [{ drive = \"a\", ana_group = 0 }]", "4:42: error: `ana_group` is 0"),
        ("namespaces = [1]", "4:15: error: a namespace is described by a table, and this is an integer"),
    ] {
        assert_eq!(first_line(&in_subsystem(line)), format!("a.toml:{expected}"), "{line}");
    }
    let many = format!("namespaces = [{}]", "\"mem:1Mi\",".repeat(1025));
    assert_eq!(first_line(&in_subsystem(&many)), "a.toml:4:10255: error: there are 1025 namespaces");
    let full = format!("namespaces = [{}]", "\"mem:1Mi\",".repeat(1024));
    assert_eq!(good(&in_subsystem(&full)).subsystems[0].namespaces[1023].nsid, 1024);
}

// @test output.configuration-errors
#[test]
fn all_mistakes_are_reported_at_once() {
    let text = "[target]\nthreads = 0\n[[ports]]\nname = \"a\"\nlisten = \"tcp://10.0.0\"\ndata_digest = \"on\"\n\
                [[subsystems]]\nnqn = \"\"\nports = [\"a\", \"b\"]\nnamespaces = [{ nsid = 0, drive = \"mem\" }]\n";
    let all = load("a.toml", text).unwrap_err();
    let places: Vec<_> = all.items.iter().filter(|item| item.severity == Severity::Error).map(|i| i.line).collect();
    // The port has an error, so a reference to it is not a second error.
    assert_eq!(places, [2, 5, 6, 8, 9, 10, 10], "{all}");
}

/// Functions, ports and namespaces that contradict each other.
const CONTRADICTIONS: &str = r#"
[[ports]]
name = "fabric0"
listen = "tcp://127.0.0.1:4420"
[[ports]]
name = "direct1"
listen = "vfio-user:/run/ebof/1.sock"
[[ports]]
name = "direct2"
listen = "vfio-user:/run/ebof/1.sock"
[[ports]]
name = "direct3"
listen = "vfio-user:/run/ebof/3.sock"
discovery_only = true
[[drives]]
name = "d0"
backing = "d0.img"
functions = 128
[[drives]]
name = "d1"
backing = "d0.img"
functions = 2
[[drives]]
name = "d2"
backing = "d2.img"
functions = 2
[[subsystems]]
nqn = "nqn.2014-08.org.example:d1"
drive = "d1"
ports = ["direct1", "fabric9"]
allow_any_host = true
cntlid_min = 5
[[subsystems]]
nqn = "nqn.2014-08.org.example:d1:vf2"
namespaces = ["mem:1G"]
ports = ["direct1", "fabric0", "fabric0"]
allow_any_host = true
[[subsystems]]
nqn = "nqn.2014-08.org.example:again"
drive = "d1"
namespaces = ["mem:1G"]
allow_any_host = true
[[subsystems]]
nqn = "nqn.2014-08.org.nvmexpress:uuid:6f3a1f1e-8f0b-4a57-9d0e-0d8f5b2f8c11"
drive = "d2"
allow_any_host = true
"#;

#[test]
fn a_box_that_contradicts_itself_is_reported_whole_with_places() {
    insta::assert_snapshot!(bad(CONTRADICTIONS));
}

#[test]
fn hints_name_existing_things() {
    let ports = "[[ports]]\nname = \"front\"\nlisten = \"tcp://[::1]\"\n[[ports]]\nname = \"disc\"\n\
                 listen = \"tcp://[::1]:8009\"\ndiscovery_only = true\n[[hosts]]\nnqn = \"nqn.host-a\"\n[[subsystems]]\n\
                 nqn = \"n\"\n";
    for (line, help) in [
        ("ports = [\"frond\"]", "did you mean \"front\"?"),
        ("ports = [\"xyz\"]", "accepted here: \"front\", \"disc\""),
        ("ports = [\"disc\"]", "leave it out here, or remove discovery_only there"),
        ("allowed_hosts = [\"nqn.host-b\"]", "did you mean \"nqn.host-a\"? Otherwise describe it in `hosts`"),
        ("allowed_hosts = [\"other\"]", "describe it in `hosts`: nqn = \"other\""),
        ("allow_any_hosts = true", "did you mean `allow_any_host`?"),
    ] {
        let all = load("a.toml", &format!("{ports}{line}\n")).unwrap_err();
        let error = all.items.iter().find(|item| item.severity == Severity::Error).unwrap();
        assert_eq!(error.help.as_deref(), Some(help), "{line}");
    }
}

#[test]
fn doubtful_configurations_cause_warnings() {
    let remarks = |text: &str| load("a.toml", text).unwrap().remarks.items;
    let message = |text: &str| remarks(text).first().map(|item| (item.severity, item.message.clone()));
    let warning = |text: &str| Some((Severity::Warning, text.to_owned()));
    assert_eq!(message(""), warning("the configuration describes no subsystem"));
    assert_eq!(message("[[subsystems]]\nnqn = \"n\""), warning("no host may connect to this subsystem"));
    assert_eq!(message(&in_subsystem("ports = []")), warning("this subsystem is reached through no port"));
    let both = format!("[[hosts]]\nnqn = \"h\"\n{}", in_subsystem("allowed_hosts = [\"h\"]"));
    assert_eq!(message(&both), warning("`allowed_hosts` has no effect: allow_any_host lets every host in"));
    assert_eq!(message(&in_subsystem("namespaces = [\"mem:1Gi\"]")), None);
    let ports =
        "[[ports]]\nname = \"t\"\nlisten = \"tcp://[::1]:0\"\n[[ports]]\nname = \"d\"\nlisten = \"vfio-user:d\"\n";
    let unused = warning("no subsystem has the direct port d: no controller can be enabled there");
    assert_eq!(message(&format!("{ports}{}", in_subsystem("ports = [\"t\"]"))), unused);
    assert_eq!(message(&format!("{ports}{}", in_subsystem("ports = [\"t\", \"d\"]"))), None);
}

/// Secure channel concatenation needs a hash with a cipher suite, and an exchange.
#[test]
fn a_port_for_which_no_host_can_get_a_key_causes_a_warning() {
    let remarks = |target: &str, tls: &str, host: &str| {
        let text = format!(
            "[target]\n{target}\n[[ports]]\nname = \"t\"\nlisten = \"tcp://[::1]:0\"\ntls = \"{tls}\"\n\
             [[hosts]]\nnqn = \"h\"\ndhchap_key = {{ file = \"/k\" }}\n{host}\n{}",
            in_subsystem("")
        );
        let items = load("a.toml", &text).unwrap().remarks.items;
        items.into_iter().map(|item| item.message).collect::<Vec<_>>()
    };
    let none = vec!["port t has TLS, and no host can get a key for it by authentication".to_owned()];
    for (target, expected) in [
        ("", &Vec::new()),
        ("dhchap_groups = [\"null\"]", &none),
        ("dhchap_groups = [\"null\", \"ffdhe2048\"]", &Vec::new()),
        ("dhchap_hashes = [\"sha512\"]", &none),
        ("dhchap_hashes = [\"sha512\", \"sha384\"]", &Vec::new()),
    ] {
        assert_eq!(remarks(target, "allowed", ""), *expected, "{target}");
        assert!(remarks(target, "allowed", "tls_psk = { file = \"/p\" }").is_empty(), "{target}");
    }
    let records = "\"\ntls_records = \"kernel";
    assert_eq!(remarks("", &format!("off{records}"), ""), ["port t has `tls_records`, and no TLS"]);
    assert!(remarks("", &format!("allowed{records}"), "").is_empty());
}

#[test]
fn readers_may_share_a_drive() {
    let drive = "{ drive = { path = \"a\", read_only = true } }";
    good(&in_subsystem(&format!("namespaces = [{drive}, {drive}]")));
    let mixed = in_subsystem(&format!("namespaces = [{drive}, \"a\"]"));
    assert_eq!(first_line(&mixed), "a.toml:4:61: error: the drive a is used twice");
}

#[test]
fn ports_chosen_by_the_system_do_not_conflict() {
    let text =
        "[[ports]]\nname = \"a\"\nlisten = \"tcp://[::1]:0\"\n[[ports]]\nname = \"b\"\nlisten = \"tcp://[::1]:0\"\n";
    assert_eq!(good(text).ports.iter().map(|port| port.id).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn hints_have_the_syntax_of_the_text() {
    let all = load("a.json", "{\"target\": {}, \"ports\": [{\"name\": \"a\"}]}").unwrap_err();
    assert_eq!(all.items[0].help.as_deref(), Some("add \"listen\": \"tcp://127.0.0.1:4420\""));
}

#[test]
fn a_text_beyond_the_size_limit_is_refused() {
    let text = "#".repeat(limits::TEXT_BYTES_MAX + 1);
    assert_eq!(first_line(&text), "a.toml:1:1: error: the configuration has 16777217 bytes");
}

#[test]
fn every_key_has_a_row_and_the_manual_the_limits_of_lists() {
    let document = include_str!("../../../../docs/config.md");
    let written = good(EXAMPLE).to_toml().unwrap();
    for key in keys_of(&written).chain(["quotas"]) {
        assert!(document.contains(&format!("| `{key}` ")), "docs/config.md does not describe `{key}`");
    }
    for (key, limit) in [
        ("cntlid_max", usize::from(limits::CNTLID_MAX)),
        ("managers", limits::DRIVE_HOSTS_MAX),
        ("quotas", limits::DRIVE_HOSTS_MAX),
        ("namespaces", limits::NAMESPACES_MAX as usize),
    ] {
        let row = document.lines().find(|line| line.starts_with(&format!("| `{key}` "))).unwrap();
        assert!(row.contains(&limit.to_string()), "docs/config.md: {row} does not say {limit}");
    }
}

proptest! {
    /// Any text is either a configuration or has diagnostics, in bounded time and without panic.
    #[test]
    fn no_text_panics(cut in 0..EXAMPLE.len(), put in "[\\[\\]={}\", 0-9a-zé\n]{0,12}", take in 0_usize..40) {
        let (start, end) = (cut, (cut + take).min(EXAMPLE.len()));
        let text = format!("{}{put}{}", &EXAMPLE[..start], &EXAMPLE[end..]);
        match load("a.toml", &text) {
            Ok(loaded) => prop_assert_eq!(&good(&loaded.config.to_toml().unwrap()), &loaded.config),
            Err(all) => prop_assert!(all.errors() > 0 && !all.to_string().is_empty()),
        }
    }
}
