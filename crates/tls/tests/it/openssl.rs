//! Against OpenSSL's programs, where they are installed: another implementation of all that is
//! here.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebof_authentication::{Hash, KeyMaterial};
use ebof_tls::{Alert, ClientHandshake, HandshakeError, Progress, Secured, ServerHandshake, TlsPsk};
use rustix::event::PollFlags;
use tempfile::TempDir;

use crate::support::{receive, send, wait};

/// OpenSSL's name for a session's key without a ticket is empty, and a name without spaces can be
/// an argument of everything.
const IDENTITY: &str = "NVMe0R01.host.subsystem";

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_missing() -> bool {
    let is_missing = Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_err();
    if is_missing {
        println!("skipped: openssl is not installed");
    }
    is_missing
}

fn key(hash: Hash, byte: u8) -> KeyMaterial {
    KeyMaterial::new(vec![byte; hash.bytes()])
}

fn psk(hash: Hash, byte: u8) -> TlsPsk {
    TlsPsk::new(identity(hash).into(), hash, key(hash, byte)).unwrap()
}

/// The programs' `-psk` is for SHA-256. For SHA-384 there is `-psk_session`, and a client offers
/// that one with its default name.
fn identity(hash: Hash) -> &'static str {
    if hash == Hash::Sha256 { IDENTITY } else { "Client_identity" }
}

/// One value of DER.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    let length = if length < 128 { vec![length] } else { vec![0x81, length] };
    [&[tag], &length[..], content].concat()
}

fn integer(value: u32) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let used = bytes.iter().position(|byte| *byte != 0).unwrap_or(3);
    let sign: &[u8] = if bytes[used] >= 128 { &[0] } else { &[] };
    der(2, &[sign, &bytes[used..]].concat())
}

/// `SSL_SESSION` with TLS_AES_256_GCM_SHA384 and a key, as PEM.
fn session(directory: &TempDir, byte: u8) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let content = [
        integer(1),
        integer(0x0304),
        der(4, &[0x13, 0x02]),
        der(4, &[]),
        der(4, key(Hash::Sha384, byte).bytes()),
        der(0xa1, &integer(u32::try_from(now).unwrap())),
        der(0xa2, &integer(7200)),
        der(0xa4, &der(4, &[])),
    ]
    .concat();
    let text = STANDARD.encode(der(0x30, &content));
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    let path = directory.path().join("session.pem");
    let frame = |what| format!("-----{what} SSL SESSION PARAMETERS-----\n");
    fs::write(&path, format!("{}{}\n{}", frame("BEGIN"), lines.join("\n"), frame("END"))).unwrap();
    path.into_os_string().into_string().unwrap()
}

/// Arguments for a key.
fn arguments(directory: &TempDir, hash: Hash, byte: u8) -> Vec<String> {
    let mut arguments: Vec<String> = vec!["-tls1_3".into()];
    if hash == Hash::Sha256 {
        let hex: String = key(hash, byte).bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        arguments.extend(["-psk".into(), hex, "-psk_identity".into(), IDENTITY.into()]);
    } else {
        arguments.extend(["-psk_session".into(), session(directory, byte)]);
    }
    arguments
}

/// A free port; another program may take it, but hardly within a test.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn start(arguments: &[String]) -> Program {
    let mut command = Command::new("openssl");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    Program(command.spawn().unwrap())
}

/// A server, and a connection to it.
fn server(directory: &TempDir, hash: Hash, byte: u8, more: &[&str]) -> (Program, TcpStream) {
    let port = free_port();
    let mut all: Vec<String> = ["s_server", "-accept"].map(String::from).into();
    all.push(format!("127.0.0.1:{port}"));
    all.extend(["-nocert", "-quiet"].map(String::from));
    all.extend(arguments(directory, hash, byte));
    all.extend(more.iter().map(ToString::to_string));
    let mut program = start(&all);
    let started = Instant::now();
    loop {
        if let Ok(socket) = TcpStream::connect(("127.0.0.1", port)) {
            socket.set_nonblocking(true).unwrap();
            return (program, socket);
        }
        assert!(program.0.try_wait().unwrap().is_none(), "openssl s_server has ended");
        assert!(started.elapsed() < Duration::from_secs(20), "openssl s_server does not listen");
        std::thread::yield_now();
    }
}

fn run_client(mut handshake: ClientHandshake) -> Result<Secured, HandshakeError> {
    loop {
        match handshake.advance()? {
            Progress::Readable => wait(&[(handshake.socket().unwrap().as_fd(), PollFlags::IN)]),
            Progress::Writable => wait(&[(handshake.socket().unwrap().as_fd(), PollFlags::OUT)]),
            Progress::Done(secured) => return Ok(secured),
        }
    }
}

fn run_server(socket: TcpStream, keys: &[TlsPsk]) -> Result<Secured, HandshakeError> {
    let mut handshake = ServerHandshake::new(socket);
    let mut find = |identity: &str| {
        assert_eq!(identity, keys[0].identity());
        keys.to_vec()
    };
    loop {
        match handshake.advance(&mut find)? {
            Progress::Readable => wait(&[(handshake.socket().unwrap().as_fd(), PollFlags::IN)]),
            Progress::Writable => wait(&[(handshake.socket().unwrap().as_fd(), PollFlags::OUT)]),
            Progress::Done(secured) => return Ok(secured),
        }
    }
}

/// Both programs copy between the connection and their input and output.
fn converse(program: &mut Program, secured: Secured) {
    let mut stream = secured.stream;
    let large: Vec<u8> =
        (0..200_000_u32).map(|at| if at % 80 == 79 { b'\n' } else { b'a' + u8::try_from(at % 26).unwrap() }).collect();
    let (mut input, output) = (program.0.stdin.take().unwrap(), program.0.stdout.take().unwrap());
    let expected = [b"from here\n", &large[..]].concat();
    let (length, wanted) = (expected.len(), expected.clone());
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; length];
        BufReader::new(output).read_exact(&mut bytes).unwrap();
        assert!(bytes == wanted, "the program's output");
    });
    send(&mut stream, b"from here\n");
    send(&mut stream, &large);
    let writer = std::thread::spawn({
        let large = large.clone();
        move || {
            input.write_all(&large).unwrap();
            input
        }
    });
    assert!(receive(&mut stream, large.len()) == large, "the program's input");
    let input = writer.join().unwrap();
    reader.join().unwrap();
    stream.close();
    drop(input);
}

#[test]
fn openssl_as_the_target() {
    if is_missing() {
        return;
    }
    for hash in [Hash::Sha256, Hash::Sha384] {
        let directory = TempDir::new().unwrap();
        // It sends two tickets behind the handshake.
        let (mut program, socket) = server(&directory, hash, 7, &[]);
        let secured = run_client(ClientHandshake::new(socket, psk(hash, 7))).unwrap();
        assert_eq!(secured.suite.hash(), hash);
        converse(&mut program, secured);
    }
}

#[test]
fn openssl_as_a_target_that_retries_with_another_group() {
    if is_missing() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let (mut program, socket) = server(&directory, Hash::Sha256, 7, &["-groups", "P-384"]);
    let secured = run_client(ClientHandshake::new(socket, psk(Hash::Sha256, 7))).unwrap();
    converse(&mut program, secured);
}

#[test]
fn openssl_as_a_target_with_another_key() {
    if is_missing() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let (_program, socket) = server(&directory, Hash::Sha256, 8, &[]);
    let error = run_client(ClientHandshake::new(socket, psk(Hash::Sha256, 7))).unwrap_err();
    assert!(matches!(error, HandshakeError::Alert { alert: Alert::ILLEGAL_PARAMETER }), "{error}");
    assert!(error.to_string().contains("no key for this identity, or another one"), "{error}");
}

/// A client of OpenSSL, and its connection here.
fn client(directory: &TempDir, hash: Hash, byte: u8, more: &[&str]) -> (Program, TcpStream) {
    let mut all = arguments(directory, hash, byte);
    all.extend(more.iter().map(ToString::to_string));
    connect_client(&all)
}

fn connect_client(arguments: &[String]) -> (Program, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut all: Vec<String> = ["s_client", "-quiet", "-connect"].map(String::from).into();
    all.push(listener.local_addr().unwrap().to_string());
    all.extend_from_slice(arguments);
    let program = start(&all);
    let socket = listener.accept().unwrap().0;
    socket.set_nonblocking(true).unwrap();
    (program, socket)
}

#[test]
fn openssl_as_the_host() {
    if is_missing() {
        return;
    }
    for hash in [Hash::Sha256, Hash::Sha384] {
        let directory = TempDir::new().unwrap();
        let (mut program, socket) = client(&directory, hash, 7, &[]);
        // The key is the second one of its identity.
        let secured = run_server(socket, &[psk(hash, 6), psk(hash, 7)]).unwrap();
        assert_eq!((secured.suite.hash(), secured.candidate), (hash, 1));
        converse(&mut program, secured);
    }
}

#[test]
fn openssl_as_a_host_whose_first_group_is_not_ours() {
    if is_missing() {
        return;
    }
    let directory = TempDir::new().unwrap();
    for groups in ["P-521:P-256", "X448:X25519", "ffdhe2048:P-384"] {
        let (mut program, socket) = client(&directory, Hash::Sha256, 7, &["-groups", groups]);
        let secured = run_server(socket, &[psk(Hash::Sha256, 7)]).unwrap();
        converse(&mut program, secured);
    }
}

#[test]
fn openssl_as_a_host_that_cannot_be_served() {
    if is_missing() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let refused = |arguments: &[String]| {
        let (_program, socket) = connect_client(arguments);
        run_server(socket, &[psk(Hash::Sha256, 8)]).unwrap_err()
    };
    let error = refused(&arguments(&directory, Hash::Sha256, 7));
    assert!(matches!(error, HandshakeError::WrongKey { candidates: 1, .. }), "{error}");
    let error = refused(&["-tls1_2".into()]);
    assert!(matches!(error, HandshakeError::NotTls13), "{error}");
    let error = refused(&["-tls1_3".into()]);
    assert!(matches!(error, HandshakeError::NoPsk), "{error}");
    let no_suite = ["-ciphersuites", "TLS_AES_256_GCM_SHA384"].map(String::from);
    let error = refused(&[arguments(&directory, Hash::Sha256, 8), no_suite.into()].concat());
    assert!(matches!(error, HandshakeError::NoPsk | HandshakeError::NoSuite { .. }), "{error}");
}

/// `K` at the beginning of a line has the program change its key and ask for the same.
#[test]
fn openssl_changes_keys() {
    if is_missing() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let port = free_port();
    let mut all: Vec<String> = ["s_server", "-nocert", "-accept"].map(String::from).into();
    all.push(format!("127.0.0.1:{port}"));
    all.extend(arguments(&directory, Hash::Sha256, 7));
    let mut program = start(&all);
    let mut output = BufReader::new(program.0.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim() != "ACCEPT" {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "openssl s_server has ended");
    }
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let limits = ebof_tls::Limits { key_blocks: 1000 };
    let handshake = ClientHandshake::with_limits(socket, psk(Hash::Sha256, 7), limits);
    let mut stream = run_client(handshake).unwrap().stream;
    let mut input = program.0.stdin.take().unwrap();
    for round in 0..3 {
        // It reads its input at once, and takes a line for a command only if it is alone in there.
        input.write_all(b"K\n").unwrap();
        let text = format!("round {round}\n");
        send(&mut stream, text.as_bytes());
        send(&mut stream, &[b'x'; 20_000]);
        send(&mut stream, b"\n");
        // It tells of what it does between the data.
        let mut data = 0;
        while data < 20_000 {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "openssl s_server has ended");
            data += line.matches('x').count();
        }
        // Only now, so that it was alone.
        input.write_all(b"from there\n").unwrap();
        assert_eq!(receive(&mut stream, 11), b"from there\n");
    }
}
