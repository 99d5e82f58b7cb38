//! Log lines that peers can cause. The log belongs to the process.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebof_manage::Listen;
use ebof_manage::api::{RefusalReason, Target as _};
use ebof_manage::config::Port;
use ebof_nvme::connect::ConnectData;
use ebof_server::{Settings, Target};
use tracing_subscriber::fmt::MakeWriter;
use zerocopy::IntoBytes;

use crate::config::one_subsystem;
use crate::is_alone;
use crate::raw::{Raw, connect, connect_data};
use crate::waiting::until;

/// The log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Lines {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    fn count(&self) -> usize {
        self.text().lines().count()
    }
}

/// Sends bytes that are not NVMe, until the target closes the connection.
fn garbage(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let _answer = stream.read_to_end(&mut Vec::new());
}

/// A Connect for a subsystem that does not exist.
fn stranger(address: SocketAddr) {
    let mut raw = Raw::initialized(address);
    let mut data = connect_data(0xffff);
    data.subnqn = ebof_nvme::Nqn::parse("nqn.none").unwrap().to_field();
    raw.send(connect(0, 32), 1, data.as_bytes());
    assert!(!raw.completion().status().is_success());
}

/// The log of this process.
fn log() -> Lines {
    let lines = Lines::default();
    tracing_subscriber::fmt().with_ansi(false).with_writer(lines.clone()).init();
    lines
}

/// TrueNAS' Python client, SPDK's perf, and a host that takes another one's controller.
// @test wire.unusual-hosts
#[test]
fn deviations_that_are_accepted_are_logged_and_refusals_are_explained() {
    if !is_alone("log::deviations_that_are_accepted_are_logged_and_refusals_are_explained") {
        return;
    }
    let lines = log();
    let settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
    let target = Target::start(one_subsystem(["mem:1Mi"]), settings).unwrap();
    let address = target.addresses()[0].1;
    let (_admin, controller) = Raw::admin_and_controller(address);
    let own = connect_data(controller);
    let nameless = ConnectData { hostnqn: [0; 256], hostid: [9; 16], ..connect_data(0xffff) };
    let thief = ConnectData { hostnqn: ebof_nvme::Nqn::parse("nqn.another").unwrap().to_field(), ..own };
    let connects = [
        (
            1,
            ConnectData { hostid: [9; 16], ..own },
            "accepted although the host identifier is not that of the Admin Queue",
        ),
        (0, nameless, "accepted although the host said no NQN"),
        (2, thief, "the controller belongs to another host"),
    ];
    let mut open = Vec::new();
    for (queue, data, told) in connects {
        let mut host = Raw::initialized(address);
        host.send(connect(queue, 32), 1, data.as_bytes());
        let done = host.completion();
        assert_eq!(done.status().is_success(), queue != 2, "{}", done.status());
        let text = lines.text();
        assert!(text.contains(told), "{told}: {text}");
        open.push(host);
    }
    let refusals = target.refused();
    let reasons: Vec<_> = refusals.iter().map(|refusal| refusal.reason).collect();
    assert_eq!(reasons, [RefusalReason::ControllerOfOtherHost]);
}

// @test hostile.log-lines
#[test]
fn one_peer_cannot_fill_the_log() {
    if !is_alone("log::one_peer_cannot_fill_the_log") {
        return;
    }
    const CONNECTIONS: usize = 300;
    let lines = log();
    let settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
    let target = Target::start(one_subsystem(["mem:1Mi"]), settings).unwrap();
    let address = target.addresses()[0].1;
    for (what, peer) in [("garbage", garbage as fn(SocketAddr)), ("strangers", stranger)] {
        let before = lines.count();
        for _ in 0..CONNECTIONS {
            peer(address);
        }
        let logged = lines.count() - before;
        assert!((1..CONNECTIONS / 4).contains(&logged), "{what}: {logged} lines");
    }
    // What is not logged is still counted, and in the connection log.
    let refused: u64 = ebof_manage::Target::status(&target).ports.iter().map(|port| port.refused).sum();
    assert_eq!(refused, 2 * CONNECTIONS as u64);
}

#[test]
fn clients_of_a_direct_port_cannot_fill_the_log() {
    if !is_alone("log::clients_of_a_direct_port_cannot_fill_the_log") {
        return;
    }
    let log = log();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("direct.sock");
    let mut config = one_subsystem(["mem:1Mi"]);
    let port = Port::new(2, Listen::vfio_user(&socket));
    config.subsystems[0].ports.push(port.name.clone());
    config.ports.push(port);
    let target = Target::start(config, Settings { threads: Some(1), pin: false, ..Settings::default() }).unwrap();
    // Each comes and is gone: two lines without a limit.
    for at in 1..=600 {
        until("the port listens", || UnixStream::connect(&socket).is_ok());
        until("the client is accepted", || target.status().ports[1].accepted >= at);
    }
    until("the last one is gone", || target.status().ports[1].connections == 0);
    let lines = log.text().lines().filter(|line| line.contains("vfio-user")).count();
    assert!((2..=2 * 256 + 2).contains(&lines), "{lines} lines");
}
