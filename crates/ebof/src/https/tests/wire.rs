//! Requests whose ends two readers could see at different places, and other bytes that are no
//! request: none is answered as two, and none ends the service.

use std::io::Read as _;
use std::net::TcpStream;

use super::client::LONG;
use super::*;

/// All answers to some bytes on one connection, until it ends; the client sends no more.
fn answers(rig: &Rig, bytes: &[u8]) -> String {
    let mut client = Client::tls(rig.https);
    // It may be closed on the way.
    let _sent = client.send(bytes);
    let mut text = Vec::new();
    while let Some(byte) = client.byte() {
        text.push(byte);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The statuses of some answers, whose bodies may name the protocol, too.
fn statuses(answers: &str) -> Vec<u16> {
    let after = answers.split("HTTP/1.1 ").skip(1);
    after.filter_map(|answer| answer.get(..4)?.strip_suffix(' ')?.parse().ok()).collect()
}

/// What an attacker would have a reader in front of the target take for a part of the body.
fn hidden(admin: &str) -> String {
    format!("DELETE /ebof/v1/accounts/readonly HTTP/1.1\r\nHost: x\r\n{admin}Content-Length: 0\r\n\r\n")
}

#[test]
fn a_request_whose_end_is_not_clear_is_not_answered_as_two() {
    let rig = rig();
    let admin = token(&rig.session("administrator"));
    let hidden = hidden(&admin);
    let accounts = rig.remote.access.accounts();
    for lines in [
        "Content-Length: 4\r\nContent-Length: 0\r\n",
        "Content-Length: 0, 4\r\n",
        "Content-Length: +0\r\n",
        "Content-Length: -0\r\n",
        "Content-Length: 0x0\r\n",
        "Content-Length: 0 0\r\n",
        "Content-Length: 99999999999999999999999\r\n",
        "Content-Length: \r\n",
        "Content-Length: 0;\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Content-Length : 0\r\n",
        "X: y\r\n Content-Length: 0\r\n",
        "X: y\0z\r\nContent-Length: 0\r\n",
        "X\0: y\r\nContent-Length: 0\r\n",
        "no colon\r\nContent-Length: 0\r\n",
        ": empty\r\nContent-Length: 0\r\n",
    ] {
        let bytes = format!("POST /redfish/v1/SessionService/Sessions HTTP/1.1\r\nHost: x\r\n{lines}\r\n{hidden}");
        let told = answers(&rig, bytes.as_bytes());
        assert!(statuses(&told).iter().all(|status| *status >= 400 && *status < 500), "{lines}: {told}");
        assert!(statuses(&told).len() <= 1, "{lines}: {told}");
        assert_eq!(rig.remote.access.accounts(), accounts, "{lines}");
    }
    assert_eq!(rig.get("/healthz", "").status, 200);
}

#[test]
fn chunks_that_are_none_end_the_connection() {
    let rig = rig();
    let admin = token(&rig.session("administrator"));
    let accounts = rig.remote.access.accounts();
    for body in [
        "zz\r\n\r\n",
        "-1\r\n\r\n",
        "ffffffffffffffff0\r\nx",
        "fffffffffffffffe\r\nx",
        "1\r\nxy\r\n0\r\n\r\n",
        "1;\r\nx\r\nz\r\n",
        "0\r\nX: y",
        "\r\n0\r\n\r\n",
        "0x1\r\nx\r\n0\r\n\r\n",
    ] {
        let head = format!("POST /ebof/v1/changes HTTP/1.1\r\nHost: x\r\n{admin}Transfer-Encoding: chunked\r\n\r\n");
        let told = answers(&rig, format!("{head}{body}{}", hidden(&admin)).as_bytes());
        assert!(statuses(&told).iter().all(|status| *status >= 400 && *status < 500), "{body:?}: {told}");
        assert!(statuses(&told).len() <= 1, "{body:?}: {told}");
        assert_eq!(rig.remote.access.accounts(), accounts, "{body:?}");
    }
    // Lines and extensions without end, and more of them than a body may have.
    for endless in [
        format!("1;{}", "x".repeat(200_000)),
        "1;x\r\ny\r\n".repeat(60_000),
        "0\r\n".to_owned() + &"X: y\r\n".repeat(60_000),
    ] {
        let head = format!("POST /ebof/v1/changes HTTP/1.1\r\nHost: x\r\n{admin}Transfer-Encoding: chunked\r\n\r\n");
        let told = answers(&rig, format!("{head}{endless}").as_bytes());
        assert!(statuses(&told).iter().all(|status| *status >= 400 && *status < 500), "{told}");
    }
    assert_eq!(rig.get("/healthz", "").status, 200);
}

#[test]
fn with_both_lengths_the_connection_has_one_request() {
    let rig = rig();
    let admin = token(&rig.session("administrator"));
    let accounts = rig.remote.access.accounts();
    // RFC 9112, Message Body Length: such a request ends its connection.
    for lines in
        ["Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 300\r\n"]
    {
        let head = format!("POST /ebof/v1/changes HTTP/1.1\r\nHost: x\r\n{admin}{lines}\r\n");
        let told = answers(&rig, format!("{head}0\r\n\r\n{}", hidden(&admin)).as_bytes());
        assert!(statuses(&told).len() <= 1 && statuses(&told).iter().all(|status| *status == 400), "{lines}: {told}");
        assert_eq!(rig.remote.access.accounts(), accounts, "{lines}");
    }
}

#[test]
fn many_requests_at_once_are_answered_in_turn() {
    let rig = rig();
    let reader = token(&rig.session("readonly"));
    let one = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n{reader}\r\n");
    let last = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{reader}\r\n");
    let bytes =
        (one("/ebof/v1") + &one("/ebof/v1/nothing") + &one("/redfish/v1/")).repeat(30) + &last + &one("/ebof/v1");
    let told = answers(&rig, bytes.as_bytes());
    let mut expected = [200, 404, 200].repeat(30);
    expected.push(200);
    assert_eq!(statuses(&told), expected);
}

#[test]
fn what_is_no_request_is_refused() {
    let rig = rig();
    let reader = token(&rig.session("readonly"));
    let accounts = rig.remote.access.accounts();
    for first in [
        "GET /redfish/v1/ HTTP/1.0",
        "GET /redfish/v1/ HTTP/0.9",
        "GET /redfish/v1/ HTTP/9.9",
        "GET /redfish/v1/",
        "GET  /redfish/v1/  HTTP/1.1",
        "get /redfish/v1/ HTTP/1.1",
        "GET https://evil.example/redfish/v1/ HTTP/1.1",
        "GET //evil.example/redfish/v1/ HTTP/1.1",
        "CONNECT evil.example:443 HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "PRI * HTTP/2.0",
        "GET /redfish/v1/\0 HTTP/1.1",
        "GET /redfish/v1/\u{e9} HTTP/1.1",
        "GET /redfish/v1/Chassis/../AccountService HTTP/1.1",
        "GET /redfish/v1/%2e%2e/%2e%2e/ebof/v1/accounts HTTP/1.1",
        "GET /ebof/v1/%zz HTTP/1.1",
        "GET /redfish/v1/Chassis?$filter=%zz%ff%00 HTTP/1.1",
        &format!("GET /redfish/v1/{} HTTP/1.1", "a".repeat(20_000)),
        &format!("GET /redfish/v1/?$select={} HTTP/1.1", "a,".repeat(10_000)),
        &format!("{} /redfish/v1/ HTTP/1.1", "A".repeat(20_000)),
        "",
        "\r\n\r\n\r\n",
    ] {
        for lines in
            ["Host: x\r\n", "", "Host: x\r\nHost: y\r\n", "Host: x\r\nUpgrade: h2c\r\nConnection: Upgrade, close\r\n"]
        {
            let bytes = format!("{first}\r\n{lines}{reader}Connection: close\r\n\r\n");
            let told = answers(&rig, bytes.as_bytes());
            assert!(statuses(&told).iter().all(|status| *status < 500), "{first} {lines}: {told}");
            assert!(!told.contains("101 Switching"), "{told}");
            let hosts = lines.matches("Host: ").count();
            let is_clear = hosts == 1 || hosts == 0 && first.ends_with("HTTP/1.0");
            assert!(is_clear || statuses(&told).iter().all(|status| *status >= 400), "{first} {lines}: {told}");
        }
    }
    assert_eq!(rig.remote.access.accounts(), accounts);
    assert_eq!(rig.get("/healthz", "").status, 200);
}

#[test]
fn handshakes_that_stop_keep_nobody_out() {
    use std::io::Write as _;
    let rig = rig();
    // A real ClientHello, cut everywhere.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let config = config.unwrap().dangerous().with_custom_certificate_verifier(ebof_cli::Proven::by(&provider));
    let name = rustls::pki_types::ServerName::IpAddress(rig.https.ip().into());
    let mut hello = Vec::new();
    let mut connection = rustls::ClientConnection::new(Arc::new(config.with_no_client_auth()), name).unwrap();
    connection.write_tls(&mut hello).unwrap();
    let begin = std::time::Instant::now();
    let stopped: Vec<TcpStream> = (0..40)
        .map(|at| {
            let mut stream = TcpStream::connect(rig.https).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream.write_all(&hello[..1 + at * (hello.len() - 1) / 39]).unwrap();
            stream
        })
        .collect();
    assert_eq!(rig.get("/healthz", "").status, 200);
    for mut stream in stopped {
        let mut rest = Vec::new();
        // Those that are whole get an answer to it, and then nothing.
        let _end = stream.read_to_end(&mut rest);
    }
    assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
    assert_eq!(rig.get("/healthz", "").status, 200);
}
