//! The handshake by s2n-tls. All unsafe code of the crate is here, and only what its callbacks
//! need.
//!
//! The rule: callbacks get no pointer of ours. While s2n-tls runs, what they work on is in
//! [`CURRENT`], a variable of the thread, and it is taken out when s2n-tls returns: it calls back
//! only from within `s2n_negotiate`, in the same thread. So what is unsafe is to use the memory
//! that it gives. A callback that would panic returns an error instead.
//!
//! s2n-tls gives the secrets of records to nobody but its key log, which is therefore set. Its
//! configurations serve all connections of the process: the key log, too, knows by [`CURRENT`]
//! whose secrets they are.

use std::cell::Cell;
use std::ffi::c_void;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::task::Poll;

use ebof_authentication::KeyMaterial;
use ebof_vault::with_clean_stack;
use nix::errno::Errno;
use s2n_tls::config::Config;
use s2n_tls::connection::Connection;
use s2n_tls::enums::{Blinding, PskHmac, Version};
use s2n_tls::error::{Error, ErrorType};
use s2n_tls::psk::Psk;
use s2n_tls::security;
use s2n_tls_sys::s2n_connection;
use zeroize::Zeroizing;

use crate::alert::Alert;
use crate::error::{HandshakeError, LibraryError};
use crate::first_bytes::{FirstAnswer, first_answer};
use crate::psk::TlsPsk;
use crate::records::RecordsBy;
use crate::schedule::Suite;

/// Which end of a connection.
pub(crate) use s2n_tls::enums::Mode;

/// A handshake in progress.
pub(crate) struct Session {
    mode: Mode,
    connection: Connection,
    /// `None` while s2n-tls runs, and when it is over.
    io: Option<Box<Io>>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeStep {
    Readable,
    Writable,
    Done,
}

/// What comes of a handshake.
pub(crate) struct Established {
    pub(crate) socket: TcpStream,
    /// What was received behind it.
    pub(crate) received: Vec<u8>,
    /// The traffic secret of what this end sends.
    pub(crate) ours: KeyMaterial,
    /// The traffic secret of what the peer sends.
    pub(crate) theirs: KeyMaterial,
}

/// What is offered or accepted. Numbered policies of s2n-tls do not change.
#[derive(Clone, Copy)]
enum Policy {
    /// TLS 1.3; AES-GCM with 128 and then 256 bits, and ChaCha20, which this end never chooses: a
    /// target takes the first suite with its key's hash. P-256, X25519 and P-384.
    All,
    /// TLS 1.3; AES-GCM with 256 bits only. P-384.
    ///
    /// A host offers it with a key for SHA-384: targets that choose the suite first, by the host's
    /// order (OpenSSL, and so SPDK), would choose one that the key is not for.
    Sha384,
}

/// The configuration of all connections with this policy.
fn config(policy: Policy) -> Result<Config, Error> {
    static ALL: OnceLock<Config> = OnceLock::new();
    static SHA384: OnceLock<Config> = OnceLock::new();
    let (shared, name) = match policy {
        Policy::All => (&ALL, "AWS-CRT-SDK-TLSv1.3-2023"),
        Policy::Sha384 => (&SHA384, "20250211"),
    };
    if let Some(config) = shared.get() {
        return Ok(config.clone());
    }
    let mut builder = Config::builder();
    // There are no certificates; loading the system's costs some 30 ms.
    builder.with_system_certs(false)?;
    builder.set_security_policy(&security::Policy::from_version(name)?)?;
    // SAFETY: the callback does not use the pointer, which is null.
    // JUSTIFICATION: s2n-tls has no other way to get at the traffic secrets.
    unsafe { builder.set_key_log_callback(Some(key_log), std::ptr::null_mut())? };
    let config = builder.build()?;
    Ok(shared.get_or_init(|| config).clone())
}

impl Session {
    /// With this key only. `received` was read from the socket before, and is what s2n-tls reads
    /// first.
    ///
    /// Where the kernel is to open what follows, nothing of that is read.
    pub(crate) fn new(
        socket: TcpStream,
        mode: Mode,
        psk: &TlsPsk,
        received: Vec<u8>,
        records: RecordsBy,
    ) -> Result<Self, HandshakeError> {
        let connection = with_clean_stack(|| connection(mode, psk)).map_err(library)?;
        let count = received.len() as u64;
        let reads_ahead = records == RecordsBy::Own;
        let blocked = HandshakeStep::Readable;
        let io = Io {
            socket,
            received,
            taken: 0,
            reads_ahead,
            count,
            sent: 0,
            first: Vec::new(),
            blocked,
            error: None,
            secrets: None,
        };
        Ok(Self { mode, connection, io: Some(Box::new(io)) })
    }

    /// The socket, as long as it is not over.
    pub(crate) fn socket(&self) -> Option<&TcpStream> {
        self.io.as_ref().map(|io| &io.socket)
    }

    /// Goes on as far as it can without waiting.
    pub(crate) fn advance(&mut self) -> Result<HandshakeStep, HandshakeError> {
        CURRENT.set(self.io.take());
        let outcome = with_clean_stack(|| match self.connection.poll_negotiate() {
            Poll::Ready(outcome) => outcome.map(|_connection| HandshakeStep::Done),
            Poll::Pending => Ok(HandshakeStep::Readable),
        });
        let Some(mut io) = CURRENT.take() else { return Err(HandshakeError::Over) };
        if self.mode == Mode::Client
            && let Some(error) = io.not_tls()
        {
            return Err(error);
        }
        let step = match outcome {
            Ok(HandshakeStep::Done) => Ok(HandshakeStep::Done),
            Ok(HandshakeStep::Readable | HandshakeStep::Writable) => Ok(io.blocked),
            Err(error) => Err(self.explain(&mut io, error)),
        };
        self.io = Some(io);
        step
    }

    /// The secrets and all that was received, once it is done.
    pub(crate) fn finish(&mut self, suite: Suite) -> Result<Established, HandshakeError> {
        let io = self.io.take().ok_or(HandshakeError::Over)?;
        let chosen = self.connection.cipher_suite().map_err(library)?;
        if chosen != suite.name() {
            return Err(HandshakeError::OtherSuite { suite, chosen: chosen.into() });
        }
        // Says the policy, and is cheap to check.
        let is_tls13 = self.connection.actual_protocol_version().map_err(library)? == Version::TLS13;
        // Without a key of ours there is nothing that a peer has proved.
        let has_psk = self.connection.negotiated_psk_identity_length().map_err(library)? > 0;
        let Io { socket, mut received, taken, secrets, .. } = *io;
        let bytes = suite.hash().bytes();
        let Some(Secrets { client: Some(client), server: Some(server) }) = secrets else {
            return Err(HandshakeError::NoSecrets);
        };
        if !is_tls13 || !has_psk || client.bytes().len() != bytes || server.bytes().len() != bytes {
            return Err(HandshakeError::NoSecrets);
        }
        let (ours, theirs) = match self.mode {
            Mode::Client => (client, server),
            Mode::Server => (server, client),
        };
        received.drain(..taken);
        Ok(Established { socket, received, ours, theirs })
    }

    /// What an error of s2n-tls means, after the peer was told of it.
    fn explain(&mut self, io: &mut Io, error: Error) -> HandshakeError {
        match error.kind() {
            ErrorType::Alert => match self.connection.alert() {
                Some(alert) => HandshakeError::Alert { alert: Alert(alert) },
                None => library(error),
            },
            ErrorType::ConnectionClosed => HandshakeError::Closed { received: io.count },
            ErrorType::IOError => match io.error.take() {
                Some(error) => HandshakeError::Io(error),
                None => library(error),
            },
            _ => {
                // s2n-tls would send an alert after its blinding delay of 10 to 30 s, for which no
                // connection is kept here. Once it has sent anything, an alert needs its keys.
                if io.sent == 0 && self.mode == Mode::Server {
                    Alert::HANDSHAKE_FAILURE.send_in_the_clear(&io.socket);
                }
                library(error)
            }
        }
    }
}

fn library(error: Error) -> HandshakeError {
    HandshakeError::Library(LibraryError(error))
}

fn connection(mode: Mode, psk: &TlsPsk) -> Result<Connection, Error> {
    let mut connection = Connection::new(mode);
    connection.set_config(config(match (mode, psk.suite()) {
        (Mode::Client, Suite::Aes256GcmSha384) => Policy::Sha384,
        (Mode::Client, Suite::Aes128GcmSha256) | (Mode::Server, _) => Policy::All,
    })?)?;
    // Otherwise it sleeps after errors.
    connection.set_blinding(Blinding::SelfService)?;
    connection.set_receive_callback(Some(receive))?;
    connection.set_send_callback(Some(send))?;
    let mut builder = Psk::builder()?;
    builder.set_identity(psk.identity().as_bytes())?;
    builder.set_secret(psk.key().bytes())?;
    builder.set_hmac(match psk.suite() {
        Suite::Aes128GcmSha256 => PskHmac::SHA256,
        Suite::Aes256GcmSha384 => PskHmac::SHA384,
    })?;
    connection.append_psk(&builder.build()?)?;
    Ok(connection)
}

thread_local! {
    /// What the callbacks work on, while s2n-tls runs in this thread.
    static CURRENT: Cell<Option<Box<Io>>> = const { Cell::new(None) };
}

/// The bytes of a handshake.
struct Io {
    socket: TcpStream,
    /// What was read from the socket, of which s2n-tls has `taken`.
    received: Vec<u8>,
    taken: usize,
    /// More may be read than s2n-tls asks for.
    reads_ahead: bool,
    /// All that was read.
    count: u64,
    sent: u64,
    /// The first bytes that were read, at most [`FIRST_BYTES_MAX`].
    first: Vec<u8>,
    /// What the socket could not do last.
    blocked: HandshakeStep,
    /// The socket's error.
    error: Option<io::Error>,
    secrets: Option<Secrets>,
}

/// The traffic secrets of the two ends.
#[derive(Default)]
struct Secrets {
    client: Option<KeyMaterial>,
    server: Option<KeyMaterial>,
}

/// What is kept of a peer that may not speak TLS, for whoever looks for it.
const FIRST_BYTES_MAX: usize = 64;

/// Bytes that are read at a time. s2n-tls asks for the five of a header first.
const READ_BYTES: usize = 2048;

impl Io {
    /// At most this many bytes, at least one unless it is the end.
    fn receive(&mut self, bytes_max: usize) -> io::Result<&[u8]> {
        if self.taken == self.received.len() {
            self.taken = 0;
            self.received.resize(if self.reads_ahead { READ_BYTES } else { bytes_max.min(READ_BYTES) }, 0);
            let read = self.socket.read(&mut self.received);
            self.received.truncate(*read.as_ref().unwrap_or(&0));
            self.count += read? as u64;
            let room = FIRST_BYTES_MAX - self.first.len();
            self.first.extend_from_slice(&self.received[..self.received.len().min(room)]);
        }
        let rest = &self.received[self.taken..];
        let given = &rest[..rest.len().min(bytes_max)];
        self.taken += given.len();
        Ok(given)
    }

    /// That a target speaks something else than TLS. s2n-tls would wait for the end of a record.
    fn not_tls(&mut self) -> Option<HandshakeError> {
        match first_answer(&self.first) {
            FirstAnswer::Tls | FirstAnswer::TooFew => None,
            FirstAnswer::TermReq => Some(HandshakeError::PlainTarget),
            FirstAnswer::Other => {
                // s2n-tls may have asked for five bytes only.
                let (there, mut rest) = (self.first.len(), [0; FIRST_BYTES_MAX]);
                let more = self.socket.read(&mut rest[there..]).unwrap_or_default();
                self.first.extend_from_slice(&rest[there..there + more]);
                Some(HandshakeError::NotTls { first: std::mem::take(&mut self.first) })
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.socket.write(bytes)?;
        self.sent += sent as u64;
        Ok(sent)
    }

    /// What C expects: a count, or -1 and `errno`.
    fn result(&mut self, result: io::Result<usize>, blocked: HandshakeStep) -> i32 {
        match result {
            Ok(count) => i32::try_from(count).unwrap_or(i32::MAX),
            Err(error) => {
                Errno::set_raw(error.raw_os_error().unwrap_or(Errno::EIO as i32));
                match error.kind() {
                    io::ErrorKind::WouldBlock => self.blocked = blocked,
                    io::ErrorKind::Interrupted => {}
                    _ => self.error = Some(error),
                }
                -1
            }
        }
    }

    /// A line of the key log: label, client's random, secret, the latter two in hexadecimal.
    fn log(&mut self, line: &[u8]) {
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(label), Some(_random), Some(secret)) = (words.next(), words.next(), words.next()) else { return };
        let secrets = self.secrets.get_or_insert_default();
        match label {
            b"CLIENT_TRAFFIC_SECRET_0" => secrets.client = from_hexadecimal(secret),
            b"SERVER_TRAFFIC_SECRET_0" => secrets.server = from_hexadecimal(secret),
            _ => {}
        }
    }
}

fn from_hexadecimal(text: &[u8]) -> Option<KeyMaterial> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() / 2));
    for pair in text.chunks(2) {
        let &[high, low] = pair else { return None };
        bytes.push(digit(high)? * 16 + digit(low)?);
    }
    Some(KeyMaterial::new(std::mem::take(&mut *bytes)))
}

/// Has `work` done with what the thread works on. A panic does not get to C, and is an error of the
/// connection, as is a call at another time.
fn with_current(work: impl FnOnce(&mut Io) -> i32) -> i32 {
    let guarded = || {
        let mut io = CURRENT.take()?;
        let result = catch_unwind(AssertUnwindSafe(|| work(&mut io))).ok();
        CURRENT.set(Some(io));
        result
    };
    guarded().unwrap_or_else(|| {
        Errno::EIO.set();
        -1
    })
}

extern "C" fn receive(_context: *mut c_void, bytes: *mut u8, length: u32) -> i32 {
    let (false, Ok(length)) = (bytes.is_null(), usize::try_from(length)) else { return -1 };
    with_current(|io| {
        let received = io.receive(length).map(|received| {
            // SAFETY: s2n-tls gives `length` bytes of a buffer of its own, and `received` has at
            // most as many. They need not have been written before, so that they are no slice.
            // JUSTIFICATION: the callback's signature is C's.
            unsafe { std::ptr::copy_nonoverlapping(received.as_ptr(), bytes, received.len()) };
            received.len()
        });
        io.result(received, HandshakeStep::Readable)
    })
}

extern "C" fn send(_context: *mut c_void, bytes: *const u8, length: u32) -> i32 {
    let (false, Ok(length)) = (bytes.is_null(), usize::try_from(length)) else { return -1 };
    with_current(|io| {
        // SAFETY: s2n-tls gives `length` bytes that it has written, and does not change them
        // meanwhile.
        // JUSTIFICATION: the callback's signature is C's.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, length) };
        let sent = io.send(bytes);
        io.result(sent, HandshakeStep::Writable)
    })
}

extern "C" fn key_log(_context: *mut c_void, _connection: *mut s2n_connection, line: *mut u8, length: usize) -> i32 {
    if line.is_null() {
        return -1;
    }
    with_current(|io| {
        // SAFETY: s2n-tls gives `length` bytes that it has written, and frees them after this.
        // JUSTIFICATION: the callback's signature is C's.
        let line = unsafe { std::slice::from_raw_parts(line, length) };
        io.log(line);
        0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_read_from_hexadecimal_and_nothing_else() {
        assert_eq!(from_hexadecimal(b"00fFa7").unwrap().bytes(), [0, 0xff, 0xa7]);
        for wrong in [&b"0"[..], b"0g", b"+1", b"\xff\xff"] {
            assert!(from_hexadecimal(wrong).is_none());
        }
    }

    #[test]
    fn callbacks_at_another_time_and_panics_are_errors() {
        let mut byte = 0;
        assert_eq!(receive(std::ptr::null_mut(), &raw mut byte, 1), -1);
        assert_eq!(send(std::ptr::null_mut(), &raw const byte, 1), -1);
        assert_eq!(with_current(|_| 7), -1);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let io = Io {
            socket,
            received: Vec::new(),
            taken: 0,
            reads_ahead: true,
            count: 0,
            sent: 0,
            first: Vec::new(),
            blocked: HandshakeStep::Readable,
            error: None,
            secrets: None,
        };
        CURRENT.set(Some(Box::new(io)));
        assert_eq!(with_current(|_| 7), 7);
        assert_eq!(with_current(|_| panic!("on purpose")), -1);
        assert!(CURRENT.take().is_some(), "what was worked on is still there");
    }
}
