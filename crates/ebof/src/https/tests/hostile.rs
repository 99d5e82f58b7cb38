//! Peers that are slow, loud, or speak something else; and bodies that no client sends.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::Instant;

use super::client::LONG;
use super::*;

fn raw(rig: &Rig) -> TcpStream {
    let stream = TcpStream::connect(rig.https).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Everything until the end, however it comes.
fn rest(mut stream: &TcpStream) -> Vec<u8> {
    let (mut all, mut chunk) = (Vec::new(), [0; 1024]);
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return all,
            Ok(bytes) => all.extend_from_slice(&chunk[..bytes]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("it is not closed"),
            Err(_) => return all,
        }
    }
}

#[test]
fn plain_http_at_the_port_of_https_is_told() {
    use std::io::Write as _;
    let rig = rig();
    for request in ["GET /redfish/v1/ HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc"] {
        let mut stream = raw(&rig);
        stream.write_all(request.as_bytes()).unwrap();
        let text = String::from_utf8(rest(&stream)).unwrap();
        assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n") && text.contains("use https://"), "{text}");
    }
}

#[test]
fn what_is_not_tls_is_let_go_and_others_are_served() {
    use std::io::Write as _;
    let rig = rig();
    let clock = Clock::simulated(7);
    for length in [1, 2, 5, 6, 40, 4096, 100_000] {
        for begin in [&[][..], &[0x16], &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3], &[0x80, 0x2e], &[0; 5]] {
            let mut bytes = begin.to_vec();
            bytes.resize(length.max(begin.len()), 0);
            clock.fill(&mut bytes[begin.len()..]).unwrap();
            let mut stream = raw(&rig);
            // It may be gone already.
            let _sent = stream.write_all(&bytes);
            let _end = stream.shutdown(std::net::Shutdown::Write);
            rest(&stream);
        }
    }
    assert_eq!(rig.get("/healthz", "").status, 200);
}

#[test]
fn silent_peers_are_let_go_at_every_step() {
    use std::io::Write as _;
    let rig = rig();
    let begin = Instant::now();
    let silent = raw(&rig);
    let mut half = raw(&rig);
    half.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
    let mut idle = rig.client();
    let mut head = rig.client();
    head.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ").unwrap();
    let mut body = rig.client();
    let lines = token(&rig.session("operator"));
    let request = format!("POST /ebof/v1/changes HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: 100\r\n\r\n{{");
    body.send(request.as_bytes()).unwrap();
    assert_eq!(rig.get("/healthz", "").status, 200, "meanwhile others are served");
    assert_eq!(body.answer().unwrap().status, 408);
    rest(&silent);
    rest(&half);
    while idle.byte().is_some() {}
    while head.byte().is_some() {}
    assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
}

#[test]
fn a_peer_that_reads_nothing_is_let_go() {
    let rig = rig();
    let mut client = rig.client();
    let lines = token(&rig.session("readonly"));
    let request = format!("GET /ebof/v1/inventory HTTP/1.1\r\nHost: x\r\n{lines}\r\n");
    let begin = Instant::now();
    // Answers fill the buffers of both sockets, until the target reads no more and closes.
    while client.send(request.repeat(100).as_bytes()).is_ok() {
        assert!(begin.elapsed() < LONG);
    }
    assert_eq!(rig.get("/healthz", "").status, 200);
}

#[test]
fn what_is_too_large_is_refused_before_it_is_taken() {
    let rig = rig();
    let lines = token(&rig.session("administrator"));
    let announced = |lines: &str, path: &str, bytes: u64| {
        let mut client = rig.client();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: {bytes}\r\n\r\n");
        client.send(head.as_bytes()).unwrap();
        client.answer().unwrap()
    };
    for (lines, path, bytes) in [
        ("", "/ebof/v1/changes", 17 << 10),
        (&lines, "/ebof/v1/changes", 257 << 10),
        (&lines, "/ebof/v1/configuration/plan", 4 << 20),
        (&lines, "/ebof/v1/changes", 1 << 62),
    ] {
        let answer = announced(lines, path, bytes);
        assert_eq!(answer.status, 413, "{path} {bytes}: {}", answer.body);
        assert!(answer.head.contains("connection: close"), "{}", answer.head);
    }
    let mut client = rig.client();
    let head = format!("POST /ebof/v1/changes HTTP/1.1\r\nHost: x\r\n{lines}Transfer-Encoding: chunked\r\n\r\n");
    client.send(head.as_bytes()).unwrap();
    let chunk = format!("8000\r\n{}\r\n", " ".repeat(0x8000));
    // It is closed on the way.
    let _sent = (0..100).try_for_each(|_| client.send(chunk.as_bytes()));
    assert!(client.answer().is_none_or(|answer| answer.status == 413));
    for lines in ["X-A: b\r\n".repeat(100), format!("X-A: {}\r\n", "b".repeat(100_000))] {
        let mut client = rig.client();
        let _sent = client.send(format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{lines}\r\n").as_bytes());
        assert!(client.answer().is_none_or(|answer| answer.status == 431));
    }
    assert_eq!(rig.get("/healthz", "").status, 200);
}

#[test]
fn many_connections_do_not_keep_others_out() {
    let rig = rig_with(Times::default());
    let mut user = rig.client();
    let lines = token(&rig.session("readonly"));
    assert_eq!(user.request("GET /ebof/v1/status", &lines, "").status, 200);
    let silent: Vec<_> = (0..3 * listener::PER_ADDRESS).map(|_| raw(&rig)).collect();
    assert_eq!(rig.get("/healthz", "").status, 200);
    rest(&silent[0]);
    assert_eq!(user.request("GET /ebof/v1/status", &lines, "").status, 200, "whose user is known");
}

#[test]
fn a_session_that_asks_too_often_is_told_to_wait() {
    let rig = rig();
    let lines = token(&rig.session("readonly"));
    let mut client = rig.client();
    let slowed = (0..3000).find_map(|_| {
        let answer = client.request("GET /ebof/v1", &lines, "");
        if answer.head.contains("connection: close") {
            client = rig.client();
        }
        (answer.status != 200).then_some(answer)
    });
    // A machine may be too slow to ask too often.
    if let Some(answer) = slowed {
        assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")), "{}", answer.body);
    } else {
        println!("SKIPPED: this machine does not ask 200 times in a second");
    }
}

/// Bodies that are almost right: each is refused with what is accepted, and nothing breaks.
#[test]
fn bodies_that_nobody_sends_are_refused_in_words() {
    let rig = rig_with(Times::default());
    let lines = token(&rig.session("administrator"));
    let bodies = [
        (
            "POST /ebof/v1/changes",
            r#"{"changes": [{"change": "weight", "function": "d0/vf1", "weight": 4}], "drain_ms": 5}"#,
        ),
        ("POST /ebof/v1/accounts", r#"{"name": "jo", "password": "a new password", "role": "Operator"}"#),
        ("PATCH /ebof/v1/accounts/operator", r#"{"role": "ReadOnly", "enabled": true, "unlock": false}"#),
        ("POST /ebof/v1/configuration/plan", r#"{"toml": "[target]", "base": "/tmp", "name": "a.toml"}"#),
        ("PUT /ebof/v1/certificate", r#"{"certificate": "-----BEGIN CERTIFICATE-----", "key": null}"#),
        ("POST /ebof/v1/certificate/request", r#"{"common_name": "box", "country": "DE"}"#),
    ];
    let clock = Clock::simulated(11);
    let below = |limit: usize| usize::try_from(clock.jitter() % u64::try_from(limit).unwrap()).unwrap();
    let parts =
        ["{", "}", "[", "]", "\"", ":", ",", "null", "-1", "1e999", "\\u0000", "\u{fffd}", "\"change\"", "99999999999"];
    let mut client = rig.client();
    for round in 0..60 {
        for (head, body) in bodies {
            let mut broken = body.to_owned();
            for _ in 0..=below(3) {
                let at = below(broken.len());
                match below(4) {
                    0 => broken.truncate(at),
                    1 => broken.insert_str(at, parts[below(parts.len())]),
                    2 => broken.insert_str(at, &"[".repeat(1 + below(4000))),
                    _ => broken = broken.replacen(['"', ':', ','], parts[below(parts.len())], 1 + below(2)),
                }
                if broken.is_empty() {
                    break;
                }
            }
            while !broken.is_char_boundary(broken.len()) {
                broken.pop();
            }
            let answer = client.request(head, &lines, &broken);
            if answer.head.contains("connection: close") {
                client = rig.client();
            }
            assert!(answer.status < 500, "{round}: {head} {broken}: {}", answer.body);
            assert!(answer.status < 400 || answer.json()["mistakes"][0]["advice"].is_string(), "{}", answer.body);
        }
    }
    assert_eq!(rig.get("/ebof/v1/status", &lines).status, 200);
}
