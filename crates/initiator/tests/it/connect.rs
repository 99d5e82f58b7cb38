//! Every way in which connecting fails, and the exact error messages.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::peer::{NQN, Peer, options};
use ebof_authentication::{ConfiguredPsk, KeyMaterial};
use ebof_initiator::{
    ConnectError, ConnectErrorKind, Controller, KeySource, Options, PskSource, RecordsBy, Tls, discover,
};
use ebof_nvme::connect::{Connect, ConnectData, ConnectResult};
use ebof_nvme::identify::ControllerType;
use ebof_nvme::log::{DiscoveryEntry, TrType};
use ebof_nvme::{Nqn, Status};
use ebof_tcp::Digest;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};

fn fail(options: &Options) -> ConnectError {
    Controller::connect(options).expect_err("this must not connect")
}

/// The text with the port, which is another at every run, replaced.
fn text(error: &ConnectError, address: SocketAddr) -> String {
    format!("{error:#}").replace(&address.port().to_string(), "PORT")
}

/// A peer that does `act` with the one connection it accepts.
fn stranger(act: impl FnOnce(TcpStream) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (address, std::thread::spawn(move || act(listener.accept().unwrap().0)))
}

/// Sends `bytes` and waits until the other end closes.
fn says(bytes: &'static [u8]) -> (SocketAddr, JoinHandle<()>) {
    stranger(move |mut stream| {
        stream.write_all(bytes).unwrap();
        while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {}
    })
}

#[test]
fn nobody_listens() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = fail(&options(address));
    assert_eq!(error.kind(), &ConnectErrorKind::Refused);
    assert_eq!(
        text(&error, address),
        "cannot connect to 127.0.0.1:PORT: the connection was refused, nobody listens there
  tried:  TCP connect of the Admin Queue, address 127.0.0.1:PORT, subsystem nqn.2014-08.org.example:drive0, as host nqn.2014-08.org.example:host
  answer: ECONNREFUSED (Connection refused)
  to do:  see whether the target runs and listens on port PORT: on its machine `ss -ltn`; NVMe/TCP subsystems are usually on port 4420, discovery services on 8009 or 4420"
    );
}

#[test]
fn the_name_cannot_be_resolved() {
    let mut options = options("127.0.0.1:4420".parse().unwrap());
    options.traddr = "no-such-host.invalid".to_owned();
    let error = fail(&options);
    assert_eq!(error.kind().name(), "name-not-resolved");
    assert_eq!(error.summary(), "cannot connect: \"no-such-host.invalid\" is not a known host name or address");
}

#[test]
fn the_local_address_is_not_local() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.host_traddr = Some("192.0.2.1".to_owned());
    let error = fail(&options);
    assert_eq!(
        text(&error, peer.address).lines().next(),
        Some("cannot connect to 127.0.0.1:PORT: --host-traddr 192.0.2.1 cannot be used on this machine")
    );
    assert_eq!(error.answer(), "EADDRNOTAVAIL (Cannot assign requested address)");
    options.host_traddr = Some("localhost?".to_owned());
    assert_eq!(fail(&options).answer(), "EINVAL (Invalid argument)");
}

#[test]
fn the_peer_is_silent() {
    let (address, thread) = says(b"");
    let mut options = options(address);
    options.connect_timeout_ms = 100;
    let error = fail(&options);
    assert_eq!(
        text(&error, address),
        "cannot connect to 127.0.0.1:PORT: no answer (NVMe/TCP handshake (ICReq))
  tried:  NVMe/TCP handshake (ICReq) of the Admin Queue, address 127.0.0.1:PORT, subsystem nqn.2014-08.org.example:drive0, as host nqn.2014-08.org.example:host
  answer: none within 100 ms
  to do:  something accepts connections there but does not speak: check that the port is an NVMe/TCP port, and that the target is not stopped or overloaded"
    );
    thread.join().unwrap();
}

#[test]
fn the_peer_accepts_no_connection() {
    // A full listen queue: the kernel drops further attempts, as a firewall does.
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&socket, 0).unwrap();
    let address: SocketAddr = getsockname(&socket).unwrap().try_into().unwrap();
    let soon = Duration::from_millis(50);
    let waiting: Vec<_> = std::iter::from_fn(|| TcpStream::connect_timeout(&address, soon).ok()).take(64).collect();
    assert!(waiting.len() < 64);
    let mut options = options(address);
    options.connect_timeout_ms = 100;
    let error = fail(&options);
    assert_eq!(error.kind(), &ConnectErrorKind::TimedOut { after_ms: 100 });
    assert!(text(&error, address).contains("\n  answer: none within 100 ms\n  to do:  check the address"), "{error:#}");
}

#[test]
fn the_peer_closes_immediately() {
    let (address, thread) = stranger(|mut stream| drop(stream.read_exact(&mut [0; 128])));
    let error = fail(&options(address));
    assert_eq!(error.kind(), &ConnectErrorKind::ClosedDuringInit { reset: false });
    assert_eq!(
        text(&error, address),
        "cannot connect to 127.0.0.1:PORT: the peer closed the connection before it said a word of NVMe/TCP
  tried:  NVMe/TCP handshake (ICReq) of the Admin Queue, address 127.0.0.1:PORT, subsystem nqn.2014-08.org.example:drive0, as host nqn.2014-08.org.example:host
  answer: end of stream where ICResp was expected
  to do:  the target may have reached its limit of connections, may demand TLS on this port (--tls), may be behind a proxy that has nobody behind it, or is not NVMe/TCP: see its log, and check the port"
    );
    thread.join().unwrap();
}

#[test]
fn the_peer_is_something_else() {
    let strangers: [(&[u8], &str, &str); 4] = [
        (
            b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
            "cannot connect to 127.0.0.1:PORT: that is not an NVMe/TCP target but an SSH server",
            "the first bytes are \"SSH-2.0-OpenSSH_9.2p1 Debian-2\"",
        ),
        (
            b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n",
            "cannot connect to 127.0.0.1:PORT: that is not an NVMe/TCP target but an HTTP server",
            "the first bytes are \"HTTP/1.1 400 Bad Request\"",
        ),
        (
            b"\x00\x01\x1b[31mgarbage",
            "cannot connect to 127.0.0.1:PORT: that is not an NVMe/TCP target",
            "the first bytes are 00 01 1b 5b 33 31 6d 67 61 72 62 61 67 65",
        ),
        (
            b"login: ",
            "cannot connect to 127.0.0.1:PORT: that is not an NVMe/TCP target",
            "the first bytes are \"login: \"",
        ),
    ];
    for (bytes, summary, answer) in strangers {
        let (address, thread) = says(bytes);
        let mut options = options(address);
        options.connect_timeout_ms = 200;
        let error = fail(&options);
        assert_eq!(error.kind(), &ConnectErrorKind::NotNvme { first_bytes: bytes.to_vec() });
        assert_eq!(text(&error, address).lines().next(), Some(summary));
        assert_eq!(error.answer(), answer);
        thread.join().unwrap();
    }
}

#[test]
fn the_peer_sends_a_few_bytes_and_closes() {
    let (address, thread) = stranger(|mut stream| {
        stream.read_exact(&mut [0; 128]).unwrap();
        stream.write_all(b"\x15\x03\x01").unwrap();
    });
    let error = fail(&options(address));
    assert_eq!(error.kind(), &ConnectErrorKind::TlsRequired { alert: None, concat: false });
    assert_eq!(error.answer(), "a TLS alert where ICResp was expected");
    thread.join().unwrap();
}

// @test output.connect-errors
#[test]
fn the_port_demands_tls() {
    let (address, thread) = says(b"\x15\x03\x03\x00\x02\x02\x0a");
    let error = fail(&options(address));
    assert_eq!(
        text(&error, address),
        "cannot connect to 127.0.0.1:PORT: this port demands TLS
  tried:  NVMe/TCP handshake (ICReq) of the Admin Queue, address 127.0.0.1:PORT, subsystem nqn.2014-08.org.example:drive0, as host nqn.2014-08.org.example:host
  answer: a TLS alert where ICResp was expected: unexpected_message (alert 10)
  to do:  connect with --tls and the key that the target has of this host: --tls --tls-key-file FILE (an ebof target gives it one by `ebof target add key nqn.2014-08.org.example:host --kind tls`)"
    );
    thread.join().unwrap();
    // Secure channel concatenation begins without TLS.
    let (address, thread) = says(b"\x15\x03\x01\x00\x02\x02\x46");
    let mut options = options(address);
    options.concat = true;
    options.dhchap_key = Some(KeySource::Text("DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:".into()));
    let error = fail(&options);
    assert_eq!(error.kind(), &ConnectErrorKind::TlsRequired { alert: Some(70), concat: true });
    assert_eq!(
        error.to_do(),
        "--concat begins without TLS: allow that at the port, too (`tls = \"allowed\"` of an ebof target), or connect with a key for TLS: --tls --tls-key-file FILE"
    );
    thread.join().unwrap();
}

/// What a target without TLS answers a ClientHello with.
const TERM_REQ: &[u8] =
    b"\x03\x00\x18\x00\x98\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";

fn with_tls(address: SocketAddr) -> Options {
    let psk = ConfiguredPsk::new(KeyMaterial::new(vec![7; 32]), None).unwrap();
    let mut options = options(address);
    options.tls = Some(Tls::new(PskSource::Psk(psk)));
    options
}

// @test output.connect-errors
#[test]
fn the_port_has_no_tls() {
    for records in [RecordsBy::Own, RecordsBy::Kernel] {
        // The one connection that is accepted stays open: what it has said decides.
        let (address, thread) = says(TERM_REQ);
        let mut options = with_tls(address);
        options.tls_records = records;
        let error = fail(&options);
        assert_eq!(error.kind(), &ConnectErrorKind::NoTls);
        assert_eq!(
            text(&error, address),
            "cannot connect to 127.0.0.1:PORT: this port speaks NVMe/TCP without TLS
  tried:  TLS handshake of the Admin Queue, address 127.0.0.1:PORT, subsystem nqn.2014-08.org.example:drive0, as host nqn.2014-08.org.example:host
  answer: C2HTermReq, which is NVMe/TCP, where TLS was expected
  to do:  have TLS at the port (`tls = \"allowed\"` or \"required\" of an ebof target), or name a port that has it; without --tls, everybody on the way can read and change what travels"
        );
        thread.join().unwrap();
    }
}

#[test]
fn something_else_answers_a_client_hello() {
    let (address, thread) = says(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n");
    let error = fail(&with_tls(address));
    assert_eq!(
        error.summary(),
        "cannot connect to 127.0.0.1:PORT: that is not an NVMe/TCP target but an SSH server"
            .replace("PORT", &address.port().to_string())
    );
    thread.join().unwrap();
}

/// A port without TLS, or a target that does not say why it refuses a key.
#[test]
fn the_peer_closes_without_a_word_of_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut bytes = [0; 4096];
            if stream.unwrap().read(&mut bytes).unwrap() == 1 {
                break;
            }
        }
    });
    let error = fail(&with_tls(address));
    assert_eq!(error.kind().name(), "tls");
    assert!(
        error.to_do().starts_with("see whether the port has TLS: one without closes like this, too; and "),
        "{error:#}"
    );
    TcpStream::connect(address).unwrap().write_all(b"x").unwrap();
    thread.join().unwrap();
}

#[test]
fn the_subsystem_is_not_known() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.nqn = Nqn::parse("nqn.2014-08.org.example:other").unwrap();
    let error = fail(&options);
    assert_eq!(error.kind(), &ConnectErrorKind::WrongNqn);
    assert_eq!(
        text(&error, peer.address),
        "cannot connect to 127.0.0.1:PORT: the target knows no subsystem nqn.2014-08.org.example:other for this host
  tried:  Connect command of the Admin Queue, address 127.0.0.1:PORT, subsystem nqn.2014-08.org.example:other, as host nqn.2014-08.org.example:host
  answer: Connect Invalid Parameters (SCT 1h, SC 82h), field NVM Subsystem NQN (SUBNQN) at offset 256 of the Connect data
  to do:  compare the name with what `ebof discover -t tcp -a 127.0.0.1 -s PORT` lists; a subsystem that does not admit host nqn.2014-08.org.example:host may be hidden from it"
    );
}

// @test output.connect-errors
#[test]
fn connect_is_refused() {
    let invalid = |in_data, offset| ConnectResult::Invalid { in_data, offset }.encode();
    let cases = [
        (
            Status::CONNECT_INVALID_HOST.dnr(),
            0,
            "host-not-allowed",
            "subsystem nqn.2014-08.org.example:drive0 does not admit this host",
            "Connect Invalid Host (SCT 1h, SC 84h)",
            "add host nqn.2014-08.org.example:host to the subsystem's allowed hosts on the target, or connect with --hostnqn of one that is; a subsystem that wants a proof or TLS refuses in the same way: give the host a key there (`ebof target add key HOST`), and name it here (--dhchap-secret-file FILE, --tls --tls-key-file FILE)",
        ),
        (
            Status::CONNECT_CONTROLLER_BUSY,
            0,
            "controller-busy",
            "subsystem nqn.2014-08.org.example:drive0 has no free controller",
            "Connect Controller Busy (SCT 1h, SC 81h)",
            "disconnect a host that is not needed, raise the target's limit, or try again in a while: a target frees the controllers of a host that vanished only after its keep-alive time-out",
        ),
        (
            Status::CONNECT_INVALID_PARAMETERS.dnr(),
            invalid(false, Connect::SQSIZE_OFFSET),
            "invalid-parameter",
            "the target refuses Submission Queue Size (SQSIZE) at offset 44 of the Connect command",
            "Connect Invalid Parameters (SCT 1h, SC 82h, DNR), field Submission Queue Size (SQSIZE) at offset 44 of the Connect command",
            "ask for shorter queues (--queue-size)",
        ),
        (
            Status::CONNECT_INVALID_PARAMETERS,
            invalid(true, ConnectData::HOSTID_OFFSET),
            "invalid-parameter",
            "the target refuses Host Identifier (HOSTID) at offset 0 of the Connect data",
            "Connect Invalid Parameters (SCT 1h, SC 82h), field Host Identifier (HOSTID) at offset 0 of the Connect data",
            "check --hostid: it must not be zero, and always go with the same --hostnqn",
        ),
        (
            Status::SUCCESS,
            7 | 2 << 16,
            "authentication-required",
            "the target wants this host to authenticate",
            "Connect asks for authentication before anything else",
            "name a file with the secret that the target has of host nqn.2014-08.org.example:host: \
             --dhchap-secret-file FILE (`ebof gen-dhchap-key` makes a new one, for both ends)",
        ),
        (
            Status::CONNECT_RESTART_DISCOVERY,
            0,
            "restart-discovery",
            "the target's discovery log has changed",
            "Connect Restart Discovery (SCT 1h, SC 83h)",
            "run discovery again and connect to what it lists now",
        ),
        (
            Status::INTERNAL_ERROR.dnr(),
            0,
            "status",
            "the target refused Connect",
            "Internal Error (SCT 0h, SC 06h, DNR)",
            "see the target's log: it says that trying again would not help",
        ),
    ];
    for (status, result, kind, what, answer, to_do) in cases {
        let peer = Peer::new();
        peer.state().connect = Some((status, result));
        let error = fail(&peer.options());
        assert_eq!(error.kind().name(), kind);
        assert_eq!(error.summary(), format!("cannot connect to {}: {what}", peer.address));
        assert_eq!(error.answer(), answer);
        assert_eq!(error.to_do(), to_do);
    }
}

#[test]
fn digests_are_refused() {
    let peer = Peer::new();
    peer.state().config.data_digest = Digest::Refused;
    let mut options = peer.options();
    options.hdr_digest = true;
    options.data_digest = true;
    let error = fail(&options);
    assert_eq!(error.kind(), &ConnectErrorKind::DigestRefused { header: false, data: true });
    assert_eq!(
        text(&error, peer.address),
        "cannot connect to 127.0.0.1:PORT: the target refuses the data digest
  tried:  NVMe/TCP handshake (ICReq) of the Admin Queue, address 127.0.0.1:PORT, subsystem nqn.2014-08.org.example:drive0, as host nqn.2014-08.org.example:host
  answer: ICResp without the data digest
  to do:  connect without --data-digest, or allow digests on the target's port"
    );
}

#[test]
fn the_target_sends_a_term_request() {
    // C2HTermReq: Unsupported Parameter, the field at offset 11 (DGST).
    let (address, thread) =
        says(b"\x03\x00\x18\x00\x18\x00\x00\x00\x06\x00\x0b\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00");
    let error = fail(&options(address));
    assert_eq!(error.kind().name(), "terminated");
    assert_eq!(error.answer(), "C2HTermReq: Unsupported Parameter (byte 11), FES 06h");
    thread.join().unwrap();
}

// @test hostile.target
#[test]
fn the_target_breaks_the_protocol() {
    // An ICResp with a PDU format version that does not exist.
    let mut response = [0; 128];
    response[..8].copy_from_slice(&[1, 0, 128, 0, 128, 0, 0, 0]);
    response[8] = 9;
    let (address, thread) = stranger(move |mut stream| {
        stream.write_all(&response).unwrap();
        while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {}
    });
    let error = fail(&options(address));
    assert_eq!(error.kind().name(), "protocol-violation");
    assert_eq!(error.answer(), "Unsupported Parameter at byte 8: the PDU format version is not 0");
    thread.join().unwrap();
}

#[test]
fn the_controller_never_becomes_ready() {
    let peer = Peer::new();
    peer.state().ready = false;
    let error = fail(&peer.options());
    let ConnectErrorKind::NotReady { csts: 0, after_ms } = *error.kind() else { panic!("{error}") };
    // CAP.TO of the peer is half a second.
    assert!((500..5000).contains(&after_ms));
    assert_eq!(error.answer(), format!("CSTS 0x0 (not ready) after {after_ms} ms"));
    assert!(error.summary().ends_with("the controller does not become ready"));
}

#[test]
fn a_discovery_service_is_not_a_subsystem_and_vice_versa() {
    let peer = Peer::new();
    peer.state().kind = ControllerType::Discovery;
    let mut options = peer.options();
    options.nqn = Nqn::discovery();
    let error = fail(&options);
    assert_eq!(error.kind(), &ConnectErrorKind::IsDiscovery);
    assert!(error.to_do().starts_with("list what it offers with `ebof discover -t tcp -a 127.0.0.1"), "{error}");

    peer.state().kind = ControllerType::Io;
    let error = discover(&peer.options()).unwrap_err();
    assert_eq!(error.kind(), &ConnectErrorKind::NotDiscovery);
    assert_eq!(
        error.summary(),
        format!("cannot discover at {}: {NQN} is a subsystem with namespaces, not a discovery service", peer.address)
    );
}

#[test]
fn the_discovery_log_is_read() {
    let peer = Peer::new();
    {
        let mut state = peer.state();
        state.kind = ControllerType::Discovery;
        // MDTS of 4 KiB: the log comes in pieces.
        state.mdts = 1;
        for port in 0..20u16 {
            let mut entry = DiscoveryEntry { trtype: TrType::TCP.0, ..DiscoveryEntry::default() };
            entry.portid.set(port);
            entry.set_address("192.168.13.147");
            state.log.push(entry);
        }
    }
    let mut options = peer.options();
    options.nqn = Nqn::discovery();
    let log = discover(&options).unwrap();
    assert_eq!((log.generation, log.entries.len(), log.peer), (9, 20, peer.address));
    assert_eq!(log.entries[19].portid.get(), 19);
    assert_eq!(peer.state().connects, [(0, 32)], "no I/O queue for discovery");
    options.nr_io_queues = 0;
    let controller = Controller::connect(&options).unwrap();
    assert_eq!(controller.discovery_log().unwrap().entries.len(), 20);
}

#[test]
fn a_target_that_closes_at_connect_is_distinguished_from_one_that_closes_before() {
    let (address, thread) = stranger(|mut stream| {
        let mut response = [0; 128];
        response[..8].copy_from_slice(&[1, 0, 128, 0, 128, 0, 0, 0]);
        response[12..16].copy_from_slice(&4096u32.to_le_bytes());
        stream.read_exact(&mut [0; 128]).unwrap();
        stream.write_all(&response).unwrap();
        // 72 bytes of capsule and 1024 of Connect data; then the end.
        stream.read_exact(&mut [0; 1096]).unwrap();
    });
    let error = fail(&options(address));
    assert_eq!(error.kind(), &ConnectErrorKind::Closed { errno: None });
    assert_eq!(
        text(&error, address).lines().next(),
        Some("cannot connect to 127.0.0.1:PORT: the target closed the connection (Connect command)")
    );
    thread.join().unwrap();
}
