//! The metrics endpoint and silent peers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use ebof_initiator::{Controller, Options};
use ebof_manage::Listen;
use ebof_manage::config::{Config, Namespace, Port, Subsystem};
use ebof_nvme::{Nqn, Nsid};
use ebof_server::Settings;

use super::*;

/// Longer than any response takes, even on a busy machine.
const LONG: Duration = Duration::from_secs(20);

fn target() -> Arc<Target> {
    let nqn = Nqn::parse("nqn.2014-08.org.example:drive0").unwrap();
    let port = Port::new(1, Listen::new([127, 0, 0, 1].into(), 0));
    let mut subsystem = Subsystem::new(nqn.clone());
    subsystem.namespaces.push(Namespace::new(1, "mem:1Mi".parse().unwrap()));
    let config = Config { ports: vec![port], subsystems: vec![subsystem], ..Config::default() };
    Arc::new(Target::start(config, Settings { threads: Some(1), pin: false, ..Settings::default() }).unwrap())
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Head and body of the response.
fn get(address: SocketAddr, path: &str, accept: &str) -> (String, String) {
    let mut stream = connect(address);
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

// @test hostile.metrics-endpoint
#[test]
fn half_open_connections_do_not_block_the_metrics() {
    let address = serve_for("127.0.0.1:0".parse().unwrap(), target(), Duration::from_secs(3600)).unwrap();
    let mut silent: Vec<TcpStream> = Vec::new();
    for at in 0..200 {
        let mut stream = connect(address);
        if at % 2 == 0 {
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost:").unwrap();
        }
        silent.push(stream);
        if at % 40 == 0 {
            assert!(get(address, "/metrics", "*/*").0.starts_with("HTTP/1.1 200"));
        }
    }
    assert!(get(address, "/metrics", "*/*").0.starts_with("HTTP/1.1 200"));
    // The oldest were closed before their time limit.
    for stream in &mut silent[..200 - listener::PER_ADDRESS] {
        let mut rest = Vec::new();
        // Closed with or without a response: not waited for.
        let end = stream.read_to_end(&mut rest);
        assert!(!matches!(end, Err(ref error) if error.kind() == std::io::ErrorKind::WouldBlock), "still open");
    }
}

#[test]
fn a_metrics_connection_has_a_time_limit() {
    let address = serve_for("127.0.0.1:0".parse().unwrap(), target(), Duration::from_millis(50)).unwrap();
    let mut stream = connect(address);
    let mut rest = Vec::new();
    assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0);
}

#[test]
fn the_requested_format_is_used() {
    let address = serve("127.0.0.1:0".parse().unwrap(), target()).unwrap();
    let (head, body) = get(address, "/metrics", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    for accept in ["*/*", "text/plain"] {
        let (head, body) = get(address, "/metrics", accept);
        assert!(head.contains("text/plain; version=0.0.4"), "{head}");
        assert!(body.contains("\nebof_build_info{version=") && !body.contains("# EOF"), "{body}");
    }
    assert!(get(address, "/status", "*/*").1.contains("\"schema\""));
}

#[test]
fn addresses_that_other_machines_reach_are_public() {
    for (address, public) in [
        ("127.0.0.1:1", false),
        ("127.9.0.1:1", false),
        ("[::1]:1", false),
        ("[::ffff:127.0.0.1]:1", false),
        ("0.0.0.0:1", true),
        ("[::]:1", true),
        ("192.168.1.1:1", true),
    ] {
        assert_eq!(is_public(address.parse().unwrap()), public, "{address}");
    }
}

/// A target with a drive, a plain namespace and a host with a successful and a failed read.
fn busy_target() -> Arc<Target> {
    let text = "[[ports]]\nlisten = \"tcp://127.0.0.1:0\"\n[[drives]]\nname = \"d0\"\nbacking = \"mem:64Mi\"\n\
                [[subsystems]]\nnqn = \"nqn.2014-08.org.example:drive0\"\nallow_any_host = true\nnamespaces = [\"mem:1Mi\"]\n\
                [[subsystems]]\nnqn = \"nqn.2014-08.org.example:\\\"d\\\\0\"\nallow_any_host = true\ndrive = \"d0\"\n";
    let config = ebof_manage::load("a.toml", text).unwrap().config;
    let settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
    let target = Arc::new(Target::start(config, settings).unwrap());
    let (_, address) = &target.addresses()[0];
    let nqn = Nqn::parse("nqn.2014-08.org.example:drive0").unwrap();
    let options = Options::new(address.ip().to_string(), address.port(), nqn);
    let controller = Controller::connect(&options).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    namespace.read(0, &mut [0; 4096]).unwrap();
    assert!(namespace.read(1 << 40, &mut [0; 512]).is_err());
    controller.disconnect();
    target
}

#[test]
fn promtool_accepts_the_metrics() {
    let address = serve("127.0.0.1:0".parse().unwrap(), busy_target()).unwrap();
    for path in ["/metrics", "/metrics?detail=queue"] {
        let (_, body) = get(address, path, "*/*");
        assert!(
            body.contains("\nebof_drive_capacity_bytes{") && body.contains("\nebof_command_errors_total{"),
            "{body}"
        );
        let mut promtool = Command::new("promtool");
        promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut promtool = match promtool.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                println!("SKIPPED: there is no promtool (Debian's package prometheus)");
                return;
            }
            other => other.unwrap(),
        };
        promtool.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
        let output = promtool.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.is_empty(), "{path}: {told}\n{body}");
    }
}

#[test]
fn queues_are_a_label_only_on_request() {
    let address = serve("127.0.0.1:0".parse().unwrap(), busy_target()).unwrap();
    for accept in ["*/*", "application/openmetrics-text"] {
        for path in ["/metrics", "/metrics?"] {
            let (_, body) = get(address, path, accept);
            assert!(body.contains("\nebof_commands_total{") && !body.contains("queue="), "{path}: {body}");
        }
        assert!(get(address, "/metrics?detail=queue", accept).1.contains(",queue=\"1\","));
    }
    let (head, body) = get(address, "/metrics?detail=all", "*/*");
    assert!(head.starts_with("HTTP/1.1 400") && body.contains("accepted: /metrics, /metrics?detail=queue"), "{head}");
}

#[test]
fn health_and_readiness_are_told() {
    let target = target();
    let address = serve("127.0.0.1:0".parse().unwrap(), Arc::clone(&target)).unwrap();
    let ask = |path: &str| {
        let (head, body) = get(address, path, "*/*");
        (head[9..12].to_owned(), serde_json::from_str::<serde_json::Value>(&body).unwrap())
    };
    let (status, health) = ask("/healthz");
    assert_eq!((status.as_str(), &health["healthy"]), ("200", &true.into()), "{health}");
    // The control thread may not have come to the port yet.
    let end = std::time::Instant::now() + LONG;
    while ask("/readyz").0 != "200" {
        assert!(std::time::Instant::now() < end, "{:?}", ask("/readyz"));
    }
    target.stop(LONG);
    let (status, ready) = ask("/readyz");
    assert_eq!((status.as_str(), &ready["ready"]), ("503", &false.into()), "{ready}");
    assert!(ready["reasons"][0].as_str().unwrap().contains("being stopped"), "{ready}");
}
