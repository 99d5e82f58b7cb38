//! Several discovery services, and logs with ports that want TLS: `discover` and `connect-all`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use ebof_manage::config::{ManagedDrive, Port, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::Nqn;
use ebof_server::{Settings, Target};

use super::{NQN, Rig, Run};

/// The time-out of each service, milliseconds, and how many of them there are that hang.
const TIMEOUT_MS: u64 = 1500;
const SILENT: usize = 5;

impl Rig {
    /// A drive without namespaces, for which no block device is made, behind two ports.
    fn of_two_ports() -> Self {
        let drive = ManagedDrive::new("d0", "mem:64M".parse().unwrap());
        let mut subsystem = Subsystem::of_drive(Nqn::parse(NQN).unwrap(), &drive);
        subsystem.allow_any_host = true;
        subsystem.ports = vec!["any".to_owned(), "plain".to_owned()];
        let ports = [(1, "any"), (2, "plain")].map(|(id, name)| {
            let mut port = Port::new(id, Listen::new([127, 0, 0, 1].into(), 0));
            name.clone_into(&mut port.name);
            port
        });
        let config =
            Config { ports: ports.into(), drives: vec![drive], subsystems: vec![subsystem], ..Config::default() };
        let settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
        Self { target: Target::start(config, settings).unwrap(), state: tempfile::tempdir().unwrap() }
    }

    /// Runs the program where /etc/nvme/discovery.conf has this text.
    fn run_with_conf(&self, text: &str, args: &[&str]) -> (Run, Duration) {
        self.run_with_files(&[("discovery.conf", text)], args)
    }

    /// Runs the program where /etc/nvme has these files.
    fn run_with_files(&self, files: &[(&str, &str)], args: &[&str]) -> (Run, Duration) {
        const SCRIPT: &str = "set -e; mount -t tmpfs tmpfs /mnt; cp -a /etc /mnt/etc; rm -rf /mnt/etc/nvme; \
                              cp -r \"$CONF\" /mnt/etc/nvme; mount --bind /mnt/etc /etc; \
                              echo ready; read go; exec \"$EBOF\" \"$@\"";
        let conf = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = conf.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", SCRIPT, "sh"]).args(args);
        command
            .env("CONF", conf.path())
            .env("EBOF", env!("CARGO_BIN_EXE_ebof"))
            .env("EBOF_RUNTIME_DIR", self.state.path());
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        let began = Instant::now();
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        (child.wait_with_output().unwrap().into(), began.elapsed())
    }
}

fn can_have_own_mounts() -> bool {
    let tool = Command::new("unshare").args(["-m", "true"]).output();
    tool.is_ok_and(|output| output.status.success())
}

/// Sockets that accept by the kernel only (programs that hang), and a port at which nothing is.
fn dead() -> (Vec<TcpListener>, u16) {
    let silent = (0..SILENT).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    (silent, TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port())
}

// @test host.discovery-conf
#[test]
fn services_of_discovery_conf_are_asked_side_by_side() {
    if !can_have_own_mounts() {
        println!("SKIPPED: no right to make a mount namespace");
        return;
    }
    let rig = Rig::of_two_ports();
    let (silent, closed) = dead();
    let line = |port: u16| format!("-t tcp -a 127.0.0.1 -s {port}\n");
    let mut text = "# services\n".to_owned();
    for socket in &silent {
        text += &line(socket.local_addr().unwrap().port());
    }
    // Line 7 refuses, 8 answers, 9 is that of line 2 again, 10 is wrong, 11 is that of line 8 in
    // another spelling.
    let live = rig.address("any").port();
    text += &(line(closed) + &line(live) + &line(silent[0].local_addr().unwrap().port()) + "--nonsense\n");
    text += &line(live).replace("127.0.0.1", "::ffff:127.0.0.1");
    let timeout = TIMEOUT_MS.to_string();
    let one_time_out = Duration::from_millis(TIMEOUT_MS * 2);

    let (run, took) = rig.run_with_conf(&text, &["discover", "--timeout", &timeout]);
    assert!(took < one_time_out, "{took:?}: {}", run.stderr);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let told = lines_told(&run.stderr);
    assert_eq!(told, [10, 2, 3, 4, 5, 6, 7], "{}", run.stderr);
    assert!(
        run.stderr.contains("--> /etc/nvme/discovery.conf:10:1\n") && run.stderr.contains("10 | --nonsense"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("Connection refused") && run.stderr.contains("to do:"), "{}", run.stderr);
    let stdout = String::from_utf8(run.stdout).unwrap();
    assert_eq!(stdout.matches("current discovery subsystem").count(), 1, "{stdout}");

    let args = ["connect-all", "-o", "json", "--timeout", &timeout];
    let (run, took) = rig.run_with_conf(&text, &args);
    assert!(took < one_time_out, "{took:?}: {}", run.stderr);
    let json = run.json();
    // By each of its ports.
    assert_eq!((run.code, json["connected"].as_array().unwrap().len()), (Some(1), 2), "{json}");
    assert_eq!(json["wrong"][0]["diagnostics"][0]["line"], 10, "{json}");
    let failed: Vec<u32> = json["failed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|failed| lines_told(failed["error"]["message"].as_str().unwrap())[0])
        .collect();
    assert_eq!(failed, [2, 3, 4, 5, 6, 7], "{json}");

    // A line that is wrong is one that was not done.
    rig.run(&["disconnect-all"]).ok();
    let (run, _) = rig.run_with_conf(&format!("{}--nonsense\n", line(live)), &["connect-all", "-o", "json"]);
    let json = run.json();
    let counts = ["connected", "failed", "wrong"].map(|key| json[key].as_array().unwrap().len());
    assert_eq!((run.code, counts), (Some(1), [2, 0, 1]), "{json}");

    // The only service of a file, too.
    let (run, _) = rig.run_with_conf(&format!("\n{}", line(closed)), &["discover"]);
    assert_eq!((run.code, lines_told(&run.stderr)), (Some(1), vec![2]), "{}", run.stderr);
}

/// The lines of discovery.conf that a text is about.
fn lines_told(text: &str) -> Vec<u32> {
    let after = text.split("/etc/nvme/discovery.conf:").skip(1);
    after.map(|rest| rest.split(':').next().unwrap().parse().unwrap()).collect()
}

// @test host.discovery-conf
#[test]
fn a_service_that_answers_at_another_of_its_ports_is_none_that_is_missing() {
    if !can_have_own_mounts() {
        println!("SKIPPED: no right to make a mount namespace");
        return;
    }
    let rig = Rig::of_two_ports();
    let (silent, _) = dead();
    let dead = silent[0].local_addr().unwrap().port();
    // The log says that the discovery service has a port there, too.
    let proxy =
        Proxy::new(rig.address("any"), Change { port: rig.address("plain").port(), to: Change::OWN_PORT, dead });
    let text = format!("-t tcp -a 127.0.0.1 -s {dead}\n-t tcp -a 127.0.0.1 -s {}\n", proxy.0.port());
    let timeout = TIMEOUT_MS.to_string();
    let (run, _) = rig.run_with_conf(&text, &["connect-all", "-o", "json", "--timeout", &timeout]);
    let json = run.json();
    assert_eq!((run.code, &json["failed"]), (Some(0), &serde_json::json!([])), "{json}");
    let skipped = json["skipped"][0]["reason"].as_str().unwrap();
    assert!(skipped.contains("answered at another of its ports") && lines_told(skipped) == [1], "{json}");
    let (run, _) = rig.run_with_conf(&text, &["discover", "--timeout", &timeout]);
    assert_eq!((run.code, lines_told(&run.stderr)), (Some(0), vec![1]), "{}", run.stderr);
}

// @test host.fabrics-conf
// @test host.exclusions
#[test]
fn files_of_nvme_cli_3_name_what_is_connected_and_what_is_not() {
    if !can_have_own_mounts() {
        println!("SKIPPED: no right to make a mount namespace");
        return;
    }
    let rig = Rig::of_two_ports();
    let [any, plain] = ["any", "plain"].map(|name| rig.address(name).port());
    let service = format!("[Discovery Controller]\ncontroller = transport=tcp;traddr=127.0.0.1;trsvcid={any}\n");
    let subsystem = format!("[Subsystem]\nnqn = {NQN}\ncontroller = transport=tcp;traddr=127.0.0.1;trsvcid={plain}\n");
    let text = format!("{service}{subsystem}[Subsystem]\nnqn = {NQN}\ncontroller = traddr=127.0.0.1\n");
    let names = |json: &serde_json::Value, key: &str| json[key].as_array().unwrap().len();
    let all = |files: &[(&str, &str)], more: &[&str]| {
        let (run, _) = rig.run_with_files(files, &[&["connect-all", "-o", "json"], more].concat());
        (run.code, run.json())
    };
    // The one by the file is one of those that the service lists; the third entry is wrong.
    let (code, json) = all(&[("nvme-fabrics.conf", &text)], &[]);
    assert_eq!((code, names(&json, "connected"), names(&json, "failed")), (Some(1), 2, 0), "{json}");
    let wrong = &json["wrong"][0]["diagnostics"][0];
    assert_eq!((&wrong["file"], &wrong["line"]), (&"/etc/nvme/nvme-fabrics.conf".into(), &8.into()), "{json}");
    // nvme-cli 3 has taken what was in discovery.conf.
    let converted = [("discovery.conf", "--nonsense\n"), ("discovery.conf.converted", "")];
    let (code, json) = all(&[&converted[..], &[("nvme-fabrics.conf", &service)]].concat(), &[]);
    assert_eq!((code, names(&json, "skipped")), (Some(0), 2), "they are connected already: {json}");
    rig.run(&["disconnect-all"]).ok();

    let excluded = format!("[exclusions]\nexclusion = trsvcid={plain};nqn={NQN}\nexclusion = port=4420\n");
    let files = [("nvme-fabrics.conf", service.as_str()), ("exclusions.conf.d/a.conf", &excluded)];
    let (code, json) = all(&files, &[]);
    assert_eq!((code, names(&json, "connected"), names(&json, "skipped")), (Some(1), 1, 1), "{json}");
    let reason = json["skipped"][0]["reason"].as_str().unwrap();
    assert_eq!(reason, "left alone: /etc/nvme/exclusions.conf.d/a.conf:2 excludes it");
    assert_eq!(json["wrong"][0]["diagnostics"][0]["line"], 3, "{json}");
    rig.run(&["disconnect-all"]).ok();

    // A file that is named, and none.
    let other = rig.path("mine.conf");
    std::fs::write(&other, &subsystem).unwrap();
    let (code, json) = all(&[("nvme-fabrics.conf", &service)], &["--config", &other]);
    assert_eq!((code, names(&json, "connected")), (Some(0), 1), "{json}");
    let (run, _) = rig.run_with_files(&[("nvme-fabrics.conf", &service)], &["discover", "--config", "none"]);
    assert!(run.misused().starts_with("no discovery service is named"), "{}", run.stderr);
    assert!(rig.run(&["connect", "--config", &other]).failed().contains("connect-all --config"));
}

/// A discovery service that refers to itself, and to another that refers back.
// @test host.discovery-entries
#[test]
fn referrals_that_form_a_circle_are_followed_once() {
    let rig = Rig::of_two_ports();
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
    // The first refers to the second, which refers to the first.
    let refer = |to: u16| Change { port: 0, to: Change::REFERRAL, dead: to };
    for (listener, to) in listeners.into_iter().zip([ports[1], ports[0]]) {
        Proxy::at(listener, rig.address("any"), refer(to));
    }
    let alone = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = alone.local_addr().unwrap().port();
    Proxy::at(alone, rig.address("any"), refer(own));
    for port in [ports[0], own] {
        let run = rig.run(&["connect-all", "-t", "tcp", "-a", "127.0.0.1", "-s", &port.to_string()]);
        assert_eq!(run.ok(), "nothing to connect\n");
        let told = format!("referrals lead back to 127.0.0.1 port {port}, which was asked already");
        assert_eq!(run.stderr.matches(&told).count(), 1, "{}", run.stderr);
    }
}

// @test host.discovery-entries
#[test]
fn entries_that_a_service_offers_can_be_asked_for() {
    let rig = Rig::of_two_ports();
    let port = rig.address("any").port().to_string();
    let of = |more: &[&str]| rig.run(&[&["discover", "-t", "tcp", "-a", "127.0.0.1", "-s", &port], more].concat());
    let run = of(&["--port-local", "--all-subsystems"]);
    assert!(run.ok().contains(NQN));
    assert!(run.stderr.contains("has no ALLSUBE") && !run.stderr.contains("PLEO"), "{}", run.stderr);
}

// @test host.tls-ports
#[test]
fn ports_that_have_tls_only_are_told_by_the_discovery_log() {
    let rig = Rig::of_two_ports();
    let tls = rig.address("plain").port();
    let of = |port: u16, verb: &str, more: &[&str]| {
        let proxy = Proxy::new(rig.address("any"), Change { port, to: Change::TLS, dead: 0 });
        let port = proxy.0.port().to_string();
        rig.run(&[&[verb, "-t", "tcp", "-a", "127.0.0.1", "-s", &port], more].concat())
    };
    let text = of(tls, "discover", &[]).ok();
    assert!(text.contains("sectype: tls13") && text.contains("treq:    required"), "{text}");
    // The other port has the subsystem: nothing is missing.
    let run = of(tls, "connect-all", &["-o", "json"]);
    let json = run.json();
    assert_eq!((run.code, json["connected"].as_array().unwrap().len()), (Some(0), 1), "{json}");
    let told = format!("port {tls} wants TLS 1.3 (the discovery log: sectype tls13)");
    assert!(json["skipped"].to_string().contains(&told), "{json}");
    rig.run(&["disconnect-all"]).ok();
    // Without it, something is.
    let run = of(0, "connect-all", &[]);
    let text = String::from_utf8(run.stdout).unwrap();
    assert_eq!(run.code, Some(1), "{text}");
    assert!(text.contains(&told) && text.contains("connect with --tls and --tls-key-file"), "{text}");
    assert_eq!(rig.run(&["list", "-o", "json"]).json()["Devices"], serde_json::json!([]));
}

/// What a proxy changes in a discovery log.
#[derive(Clone, Copy)]
struct Change {
    /// Only in records of this port; 0 for all.
    port: u16,
    to: u8,
    /// The port that a changed record has then.
    dead: u16,
}

impl Change {
    /// The record has TLS 1.3 only.
    const TLS: u8 = 0;
    /// The record is another port of the discovery service itself.
    const OWN_PORT: u8 = 1;
    /// The record refers to another discovery service.
    const REFERRAL: u8 = 2;

    /// Changes the records of [`NQN`] in a PDU.
    fn apply(self, pdu: &mut [u8]) {
        // Discovery Log Page Entry: SUBTYPE, TREQ, TRSVCID, SUBNQN, TSAS (SECTYPE).
        let (subtype, treq, trsvcid, subnqn, tsas, bytes) = (2, 3, 32, 256, 768, 1024);
        let found: Vec<usize> = (subnqn..pdu.len()).filter(|&at| pdu[at..].starts_with(NQN.as_bytes())).collect();
        for at in found {
            let record = &mut pdu[at - subnqn..][..bytes];
            let port = format!("{:<32}", self.port);
            if self.port != 0 && record[trsvcid..][..32] != *port.as_bytes() {
                continue;
            }
            if self.to == Self::TLS {
                (record[treq], record[tsas]) = (1, 2);
            } else {
                record[subtype] = if self.to == Self::REFERRAL { 1 } else { 3 };
                record[trsvcid..][..32].copy_from_slice(format!("{:<32}", self.dead).as_bytes());
            }
            if self.to == Self::REFERRAL {
                record[subnqn..][..256].fill(0);
                let nqn = Nqn::discovery();
                record[subnqn..][..nqn.as_str().len()].copy_from_slice(nqn.as_str().as_bytes());
            }
        }
    }
}

/// A target's discovery service with another log.
struct Proxy(SocketAddr);

impl Proxy {
    fn new(target: SocketAddr, change: Change) -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").unwrap(), target, change)
    }

    fn at(listener: TcpListener, target: SocketAddr, change: Change) -> Self {
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for host in listener.incoming().map_while(Result::ok) {
                let target = TcpStream::connect(target).unwrap();
                let (mut from_host, mut to_target) = (host.try_clone().unwrap(), target.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ended = std::io::copy(&mut from_host, &mut to_target);
                    let _gone = to_target.shutdown(std::net::Shutdown::Write);
                });
                std::thread::spawn(move || relay(target, host, change));
            }
        });
        Self(address)
    }
}

/// Sends PDUs on, one by one.
fn relay(mut target: TcpStream, mut host: TcpStream, change: Change) {
    let mut header = [0; 8];
    while target.read_exact(&mut header).is_ok() {
        let length = u32::from_le_bytes(header[4..].try_into().unwrap());
        let mut pdu = header.to_vec();
        pdu.resize(length.try_into().unwrap(), 0);
        if target.read_exact(&mut pdu[8..]).is_err() {
            return;
        }
        change.apply(&mut pdu);
        if host.write_all(&pdu).is_err() {
            return;
        }
    }
    let _gone = host.shutdown(std::net::Shutdown::Write);
}
