//! Files of nvmetcli, and diagnostics about them.

use crate::config::{BlockSize, Config, PortTls};
use crate::diagnostic::{Diagnostic, Severity};
use crate::load;

const SAVED: &str = include_str!("../../../testdata/nvmet-tcp.json");

fn lines(items: &[Diagnostic]) -> Vec<String> {
    items.iter().map(|item| format!("{}:{}: {}: {}", item.line, item.column, item.severity, item.message)).collect()
}

/// The saved file with `from` replaced, read.
fn with(from: &str, to: &str) -> Result<(Config, Vec<String>), Vec<String>> {
    assert!(SAVED.contains(from), "{from}");
    match load("nvmet.json", &SAVED.replacen(from, to, 1)) {
        Ok(loaded) => Ok((loaded.config, lines(&loaded.remarks.items))),
        Err(all) => Err(lines(&all.items)),
    }
}

// @test output.nvmetcli
#[test]
fn a_saved_file_is_imported_unchanged() {
    let loaded = load("nvmet.json", SAVED).unwrap();
    assert_eq!(
        lines(&loaded.remarks.items),
        ["50:20: note: `version` has no effect: ebof announces the version it implements"]
    );
    let Config { ports, hosts, subsystems, .. } = &loaded.config;
    assert_eq!((ports[0].id, ports[0].listen.to_string()), (1, "tcp://192.168.122.33:4420".to_owned()));
    assert_eq!((ports[0].in_capsule_data_bytes, ports[0].max_queue_size), (16384, 1024));
    let subsystem = &subsystems[0];
    assert_eq!((subsystem.serial.as_str(), subsystem.model.as_str()), ("4b6f5d1c44e08412", "Linux"));
    assert_eq!((subsystem.allow_any_host, &subsystem.allowed_hosts), (false, &vec![hosts[0].nqn.clone()]));
    assert_eq!(subsystem.ports, ["port-1"]);
    let [device, file] = subsystem.namespaces.as_slice() else { panic!("two namespaces") };
    assert_eq!((device.nsid, device.drive.path(), device.block_size), (1, Some("/dev/nvme0n1"), None));
    assert_eq!(device.uuid.expect("it is set").to_string(), "d592cdf3-5d1c-44e0-8412-3fcf7d99df27");
    assert_eq!((device.nguid, device.ana_group), (None, 1));
    assert_eq!((file.nsid, file.drive.path(), file.block_size), (7, Some("/srv/a:1G"), Some(BlockSize::B4096)));
    assert!(file.nguid.is_some());
    // An imported configuration can be written with ebof's own keys.
    let toml = loaded.config.to_toml().unwrap();
    assert_eq!(load("a.toml", &toml).unwrap().config, loaded.config);
}

#[test]
fn referrals_are_imported() {
    let referral = |enable: u8, traddr: &str, more: &str| {
        format!(
            "{{\"addr\": {{\"adrfam\": \"ipv4\", \"portid\": 9, \"traddr\": \"{traddr}\", \"trsvcid\": \"8010\", \
             \"trtype\": \"tcp\"{more}}}, \"enable\": {enable}, \"name\": \"a\"}}"
        )
    };
    let tls = ", \"treq\": \"required\", \"tsas\": \"tls1.3\"";
    let all = [referral(1, "192.0.2.7", ""), referral(0, "192.0.2.8", ""), referral(1, "192.0.2.9", tls)];
    let (config, remarks) = with("\"referrals\": []", &format!("\"referrals\": [{}]", all.join(", "))).unwrap();
    let read: Vec<_> = config.ports[0].referrals.iter().map(|one| (one.address.to_string(), one.tls)).collect();
    let expected = [("tcp://192.0.2.7:8010", PortTls::Off), ("tcp://192.0.2.9:8010", PortTls::Required)];
    assert_eq!(read, expected.map(|(address, tls)| (address.to_owned(), tls)));
    assert!(remarks.iter().any(|line| line.contains("the referral is not enabled: it is left out")), "{remarks:?}");
    let toml = config.to_toml().unwrap();
    assert_eq!(load("a.toml", &toml).unwrap().config.ports, config.ports, "written with ebof's own keys");
}

#[test]
fn states_of_ana_groups_are_imported() {
    let groups = "\"ana_groups\": [{\"ana\": {\"state\": \"inaccessible\"}, \"grpid\": 2}, \
                  {\"ana\": {\"state\": \"optimized\"}, \"grpid\": 3}]";
    let port = |groups: &str| {
        let text = "{\"ports\": [{\"portid\": 1, \"addr\": {\"trtype\": \"tcp\", \"traddr\": \"10.0.0.1\"}, ANA}]}";
        load("a.json", &text.replace("ANA", groups))
    };
    let loaded = port(groups).unwrap();
    assert_eq!(lines(&loaded.remarks.items), [] as [&str; 0]);
    let states: Vec<_> = loaded.config.ports[0].ana.iter().map(|(group, state)| (group, state.name())).collect();
    assert_eq!(states, [(2, "inaccessible")]);
    let toml = loaded.config.to_toml().unwrap();
    assert_eq!(load("a.toml", &toml).unwrap().config.ports, loaded.config.ports, "written with ebof's own keys");
    for (from, to, message) in [("inaccessible", "lost", "`state` is \"lost\""), ("2}", "129}", "`grpid` is 129")] {
        let error = port(&groups.replace(from, to)).unwrap_err();
        assert!(lines(&error.items)[0].contains(message), "{error}");
    }
}

#[test]
fn a_port_over_rdma_is_imported() {
    let (config, _remarks) = with("\"trtype\": \"tcp\"", "\"trtype\": \"rdma\"").unwrap();
    assert_eq!(config.ports[0].listen.to_string(), "rdma://192.168.122.33:4420");
    assert_eq!(config.ports[0].in_capsule_data_bytes, 16384, "as the file says");
    let plain = "{\"ports\": [{\"portid\": 1, \"addr\": {\"trtype\": \"rdma\", \"traddr\": \"10.0.0.1\"}}]}";
    let config = load("a.json", plain).unwrap().config;
    assert_eq!(config.ports[0].in_capsule_data_bytes, 4096);
    let toml = config.to_toml().unwrap();
    assert_eq!(load("a.toml", &toml).unwrap().config.ports, config.ports, "written with ebof's own keys");
}

#[test]
fn other_transports_are_left_out() {
    let fc = with("\"trtype\": \"tcp\"", "\"trtype\": \"fc\"").unwrap_err();
    assert_eq!(
        fc,
        [
            "8:5: error: no port is left that this build can serve",
            "14:19: warning: this build serves tcp and rdma: the fc port is left out",
            "78:14: warning: every port that has this subsystem is left out: no host can reach it",
            "50:20: note: `version` has no effect: ebof announces the version it implements",
        ]
    );
    let two = "{\"ports\": [{\"portid\": 1, \"addr\": {\"trtype\": \"fc\", \"traddr\": \"10.0.0.1\"}},
        {\"portid\": 2, \"addr\": {\"trtype\": \"tcp\", \"traddr\": \"10.0.0.1\"}}]}";
    assert_eq!(load("a.json", two).unwrap().config.ports.len(), 1);
}

#[test]
fn protection_is_never_dropped_silently() {
    let port = |transport: &str, treq: &str, tsas: &str| {
        let addr = format!(
            "\"trtype\": \"{transport}\", \"traddr\": \"10.0.0.1\", \"treq\": \"{treq}\", \"tsas\": \"{tsas}\""
        );
        load("a.json", &format!("{{\"ports\": [{{\"portid\": 1, \"addr\": {{{addr}}}}}]}}"))
    };
    for (treq, tsas, tls) in [
        ("not specified", "none", PortTls::Off),
        ("not required", "none", PortTls::Off),
        ("required", "none", PortTls::Required),
        ("not specified", "tls1.3", PortTls::Required),
        ("not required", "tls1.3", PortTls::Allowed),
    ] {
        assert_eq!(port("tcp", treq, tsas).unwrap().config.ports[0].tls, tls, "{treq}, {tsas}");
    }
    for (transport, treq, tsas, message) in
        [("tcp", "not specified", "tls1.2", "the port wants TLS 1.2"), ("rdma", "required", "none", "none over RDMA")]
    {
        let all = port(transport, treq, tsas).unwrap_err();
        assert!(lines(&all.items).iter().any(|line| line.contains(message)), "{all}");
    }
    let host = "\"nqn\": \"nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427\"";
    let (config, remarks) = with(host, &format!("{host}, \"dhchap_key\": \"DHHC-1:00:abc:\"")).unwrap();
    assert_eq!((config.hosts.len(), config.subsystems[0].allowed_hosts.len()), (0, 0));
    assert!(
        remarks[0].ends_with("this host must authenticate, and its key has to be in a file of its own: it is left out")
    );
    // Without its keys, as the advice says, it may connect.
    let (config, remarks) = with(host, host).unwrap();
    assert_eq!((config.hosts.len(), config.subsystems[0].allowed_hosts.len()), (1, 1));
    assert!(!remarks.iter().any(|line| line.contains("left out")), "{remarks:?}");
}

#[test]
fn settings_without_effect_are_reported() {
    for (from, to, remark) in [
        ("\"enable\": 1", "\"enable\": 0", "61:21: warning: the namespace is not enabled: it is left out"),
        (
            "\"portid\": 1",
            "\"portid\": 1, \"color\": 3",
            "30:20: warning: `color` is not a key of a port: it has no effect",
        ),
        (
            "\"pi_enable\": \"0\"",
            "\"pi_enable\": \"1\"",
            "28:22: warning: protection information is not served: `pi_enable` has no effect",
        ),
    ] {
        let (_, remarks) = with(from, to).unwrap();
        assert_eq!(remarks[0], remark);
        assert_eq!(remarks.len(), 2, "{remarks:?}");
    }
}

#[test]
fn mistakes_have_positions() {
    for (from, to, error) in [
        (
            "\"192.168.122.33\"",
            "\"storage.example\"",
            "11:19: error: `storage.example` is a host name, and a port listens on an IP address",
        ),
        ("\"4420\"", "\"nvme\"", "13:20: error: `nvme` is not a port number"),
        ("\"ipv4\"", "\"ipv6\"", "10:19: error: `adrfam` is \"ipv6\", and 192.168.122.33 is ipv4"),
        ("\"trtype\": \"tcp\"", "\"trtype\": \"quic\"", "14:19: error: `quic` is not a transport"),
        ("\"16384\"", "\"9999999\"", "26:29: error: `inline_data_size` is 9999999"),
        ("\"16384\"", "\"many\"", "26:29: error: `inline_data_size` is \"many\""),
        ("\"cntlid_min\": \"1\"", "\"cntlid_min\": \"0\"", "45:23: error: `cntlid_min` is 0"),
        ("\"nsid\": 7", "\"nsid\": 1", "75:19: error: the NSID 1 is used twice"),
        ("\"nsid\": 7", "\"nsid\": 4294967295", "75:19: error: `nsid` is 4294967295"),
        ("\"/srv/a:1G\"", "\"/dev/nvme0n1\"", "71:21: error: the drive /dev/nvme0n1 is used twice"),
        ("d592cdf3-", "d592cdf3", "59:21: error: `d592cdf35d1c-44e0-8412-3fcf7d99df27` is not a UUID"),
    ] {
        let all = with(from, to).unwrap_err();
        assert!(all.iter().any(|line| line.contains(error)), "{error}\n{all:#?}");
    }
}

#[test]
fn a_missing_value_is_reported_in_json_syntax() {
    let text = "{\"ports\": [{\"portid\": 1}]}";
    let all = load("a.json", text).unwrap_err();
    assert_eq!(
        format!("{:#}", all.items[0]),
        "error: a port has no `addr`\n --> a.json:1:12\n  |\n1 | {\"ports\": [{\"portid\": 1}]}\n  |            ^\n  |\n  \
         = help: add \"addr\": { \"trtype\": \"tcp\", \"traddr\": \"127.0.0.1\" }"
    );
    assert_eq!(lines(&load("a.json", "{}").unwrap_err().items), ["1:1: error: the file describes no port"]);
    assert_eq!(all.items.iter().filter(|item| item.severity == Severity::Error).count(), 1);
}
