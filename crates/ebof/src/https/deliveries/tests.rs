//! Single deliveries to a listener of the test's own.

use std::io::{BufRead, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;

/// Longer than anything takes that is not meant to, even on a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// Accepts one connection, and does with it what `serve` does.
fn listener<T: Send + 'static>(serve: impl FnOnce(TcpStream) -> T + Send + 'static) -> (u16, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        serve(stream)
    });
    (port, served)
}

/// Reads one request: its head and body.
fn request(stream: &mut impl std::io::Read) -> (String, String) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap()];
    reader.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// What becomes of a delivery.
fn delivery(destination: &str, verify: bool, time: Duration) -> Result<(), String> {
    let post = Post { destination, headers: &[], verify, body: "{\"Events\":[]}" };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(post.send_within(time))
}

fn sent(answer: &'static str) -> (Result<(), String>, String, String) {
    let (port, served) = listener(move |mut stream| {
        let got = request(&mut stream);
        let answer = format!("HTTP/1.1 {answer}\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).unwrap();
        got
    });
    let outcome = delivery(&format!("http://127.0.0.1:{port}/events?a=b"), true, LONG);
    let (head, body) = served.join().unwrap();
    (outcome, head, body)
}

#[test]
fn a_delivery_is_a_post_that_follows_no_redirect() {
    let (outcome, head, body) = sent("204 No Content");
    assert_eq!((outcome, body.as_str()), (Ok(()), "{\"Events\":[]}"));
    assert!(head.starts_with("POST /events?a=b HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json"));
    for answer in ["302 Found", "404 Not Found", "500 Oops"] {
        assert!(sent(answer).0.unwrap_err().starts_with("it answers"), "{answer}");
    }
}

/// What becomes of a delivery whose receiver sends some bytes for an answer, and ends.
fn answered(answer: Vec<u8>) -> Result<(), String> {
    let (port, served) = listener(move |mut stream| {
        request(&mut stream);
        // Who has heard enough is gone before all is sent.
        let _sent = stream.write_all(&answer);
    });
    let outcome = delivery(&format!("http://127.0.0.1:{port}/"), true, LONG);
    served.join().unwrap();
    outcome
}

#[test]
fn a_receiver_that_does_not_answer_as_http_has_not_got_it() {
    answered(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()).unwrap();
    answered(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\nx".to_vec()).unwrap();
    for answer in [&b""[..], b"HTTP/1.1 200 OK\r\n", b"SSH-2.0-x\r\n\r\n", b"\0\0\0\0\0\0\0\0\0\0"] {
        let why = answered(answer.to_vec()).unwrap_err();
        assert!(!why.is_empty() && !why.contains("too long"), "{why}");
    }
    let mut endless = b"HTTP/1.1 200 OK\r\n".to_vec();
    endless.extend(b"a: b\r\n".repeat(1 << 20));
    assert!(!answered(endless).unwrap_err().contains("too long"), "a head has an end");
}

#[test]
fn a_receiver_that_takes_long_has_not_got_it() {
    const SHORT: Duration = Duration::from_millis(300);
    // Nothing comes, or a byte each moment.
    for is_dribbling in [false, true] {
        let (port, served) = listener(move |mut stream| {
            request(&mut stream);
            let begin = Instant::now();
            while is_dribbling && begin.elapsed() < LONG && stream.write_all(b"H").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
            // Until the other end is closed.
            let _end = stream.read(&mut [0; 64]);
        });
        let why = delivery(&format!("http://127.0.0.1:{port}/"), true, SHORT).unwrap_err();
        // A head that is nonsense may be noticed before.
        assert!(why.contains("too long") || is_dribbling, "{why}");
        served.join().unwrap();
    }
    // It is accepted by the system, and by nobody else.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    assert!(delivery(&format!("https://{address}/"), false, SHORT).unwrap_err().contains("too long"));
    drop(silent);
    assert!(delivery(&format!("http://{address}/"), true, LONG).unwrap_err().contains("refused"));
}

#[test]
fn a_certificate_has_to_be_trusted_unless_the_subscription_says_otherwise() {
    let serve = |mut stream: TcpStream| {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = parameters.self_signed(&key).unwrap().der().clone();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
        let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
        while connection.is_handshaking() {
            if connection.complete_io(&mut stream).is_err() {
                return None;
            }
        }
        let mut stream = StreamOwned::new(connection, stream);
        let got = request(&mut stream);
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        stream.flush().unwrap();
        Some(got.1)
    };
    let (port, served) = listener(serve);
    delivery(&format!("https://127.0.0.1:{port}/"), false, LONG).unwrap();
    assert_eq!(served.join().unwrap().as_deref(), Some("{\"Events\":[]}"));
    let (port, served) = listener(serve);
    let why = delivery(&format!("https://127.0.0.1:{port}/"), true, LONG).unwrap_err();
    assert!(why.contains("certificate"), "{why}");
    assert_eq!(served.join().unwrap(), None, "nothing was sent to it");
    let (port, served) = listener(|mut stream: TcpStream| {
        let mut first = [0; 5];
        stream.read_exact(&mut first).unwrap();
        let _sent = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        (first[0], stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind()))
    });
    delivery(&format!("https://127.0.0.1:{port}/"), false, LONG).unwrap_err();
    let (first, end) = served.join().unwrap();
    assert!(first == 22 && end != Err(ErrorKind::WouldBlock), "a handshake, and its end: {end:?}");
}

#[test]
fn what_the_machine_trusts_is_read_again_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let (file, new) = (directory.path().join("ca.crt"), directory.path().join("new"));
    let authority = || {
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem()
    };
    let trusted = Trusted::new();
    assert!(trusted.config(&[file.as_path()]).unwrap_err().contains("trusts no certificate"));
    std::fs::write(&file, authority()).unwrap();
    let first = trusted.config(&[file.as_path()]).unwrap();
    assert!(Arc::ptr_eq(&first, &trusted.config(&[file.as_path()]).unwrap()));
    // As update-ca-certificates does when an authority is withdrawn.
    std::fs::write(&new, authority()).unwrap();
    std::fs::rename(&new, &file).unwrap();
    assert!(!Arc::ptr_eq(&first, &trusted.config(&[file.as_path()]).unwrap()));
}
