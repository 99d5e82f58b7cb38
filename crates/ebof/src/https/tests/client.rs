//! A client that takes any certificate, and sends whatever a test wants.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use ebof_cli::Proven;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Longer than any answer takes, even on a busy machine.
pub(super) const LONG: Duration = Duration::from_secs(20);

pub(super) struct Client(Stream);

enum Stream {
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Plain(TcpStream),
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Client {
    pub(super) fn tls(address: SocketAddr) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let config = config.unwrap().dangerous().with_custom_certificate_verifier(Proven::by(&provider));
        let connection =
            ClientConnection::new(Arc::new(config.with_no_client_auth()), ServerName::IpAddress(address.ip().into()));
        let mut stream = StreamOwned::new(connection.unwrap(), connect(address));
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).unwrap();
        }
        Self(Stream::Tls(Box::new(stream)))
    }

    pub(super) fn plain(address: SocketAddr) -> Self {
        Self(Stream::Plain(connect(address)))
    }

    /// Of the certificate that the target shows.
    pub(super) fn fingerprint(&self) -> String {
        let Stream::Tls(stream) = &self.0 else { panic!("without TLS there is none") };
        let certificate = &stream.conn.peer_certificates().unwrap()[0];
        let bytes: Vec<_> = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02X}")).collect();
        bytes.join(":")
    }

    /// Sends a request for the host `x` and reads its answer; the connection stays open.
    pub(super) fn request(&mut self, head: &str, lines: &str, body: &str) -> Answer {
        self.raw_request(head, &format!("Host: x\r\n{lines}"), body)
    }

    pub(super) fn raw_request(&mut self, head: &str, lines: &str, body: &str) -> Answer {
        let length = body.len();
        let head = format!("{head} HTTP/1.1\r\n{lines}Content-Length: {length}\r\n\r\n");
        // Before all is sent, it may be refused.
        let _sent = self.send(head.as_bytes()).and_then(|()| self.send(body.as_bytes()));
        self.answer().unwrap_or_else(|| panic!("no answer to {head}"))
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut self.0 {
            Stream::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
            Stream::Plain(stream) => stream.write_all(bytes),
        }
    }

    /// Reads an answer; `None` at the end of the connection.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.byte()?);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.parse().unwrap());
        let body: Vec<u8> = (0..length).map_while(|_| self.byte()).collect();
        assert_eq!(body.len(), length);
        Some(Answer { status: head[9..12].parse().unwrap(), head, body: String::from_utf8(body).unwrap() })
    }

    /// The next byte; `None` at the end, however it comes.
    pub(super) fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        let read = match &mut self.0 {
            Stream::Tls(stream) => stream.read(&mut byte),
            Stream::Plain(stream) => stream.read(&mut byte),
        };
        match read {
            Ok(1) => Some(byte[0]),
            Ok(_) => None,
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the target is silent"),
            Err(_) => None,
        }
    }
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}
