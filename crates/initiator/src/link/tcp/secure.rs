//! TLS of a connection: the names and derivations of this host's PSK that a target may know, and
//! the handshake.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Once;
use std::time::{Duration, Instant};

use ebof_authentication::response::Names;
use ebof_sockets::Stream;
use ebof_tls::{ClientHandshake, HandshakeError, Progress, TlsPsk};

use super::socket;
use crate::error::connect_error::{ConnectErrorKind as Kind, Step, Tried};
use crate::link::stop::{Stop, await_ready};
use crate::options::Options;
use crate::options::keys::Tls;
use crate::wait::{Cancel, Waiter, Watch};

/// Connects with this host's PSK.
///
/// Deviation: the specification knows one derivation, and hosts are to use version 1 of identities.
/// Keys in the keyring of a Linux target were derived by its nvme-cli, up to 2.x in another way;
/// SPDK knows version 0 only. A target that refuses one is asked again with the next, on another
/// connection, and the one that it knows is used from then on.
pub(super) async fn connect(
    options: &Options,
    tls: &Tls,
    tried: &mut Tried,
    waiter: &Waiter,
    cancel: &Cancel,
) -> Result<(Stream, SocketAddr), Kind> {
    let names = Names { host: options.host_nqn.clone(), subsystem: options.nqn.clone() };
    tried.step = Step::Keys;
    let offers = tls.offers(&names).map_err(Kind::Key)?;
    let mut first_refusal = None;
    let mut is_silent = true;
    for step in 0..offers.len() {
        let which = (tls.known() + step) % offers.len();
        match attempt(options, &offers[which], tried, waiter, cancel).await {
            Ok(secured) => {
                tls.note_known(which);
                return Ok(secured);
            }
            Err(Failure::NotConnected(kind)) => return Err(kind),
            Err(Failure::Stopped(stop)) => return Err(stop.into_kind(options)),
            Err(Failure::Refused(error)) => {
                is_silent &= error.is_silent();
                first_refusal.get_or_insert(error);
            }
        }
    }
    let reason = first_refusal.map(|error| error.to_string()).unwrap_or_default();
    Err(Kind::Tls { reason, tries: offers.len(), is_silent })
}

/// Connects with a PSK that authentication has generated, of which both ends know all.
pub(super) async fn connect_with(
    options: &Options,
    psk: &TlsPsk,
    tried: &mut Tried,
    waiter: &Waiter,
    cancel: &Cancel,
) -> Result<(Stream, SocketAddr), Kind> {
    attempt(options, psk, tried, waiter, cancel).await.map_err(|failure| match failure {
        Failure::NotConnected(kind) => kind,
        Failure::Stopped(stop) => stop.into_kind(options),
        Failure::Refused(error) => Kind::Tls { reason: error.to_string(), tries: 1, is_silent: error.is_silent() },
    })
}

async fn attempt(
    options: &Options,
    psk: &TlsPsk,
    tried: &mut Tried,
    waiter: &Waiter,
    cancel: &Cancel,
) -> Result<(Stream, SocketAddr), Failure> {
    let (socket, peer) = socket::connect(options, tried, &waiter.time, cancel).map_err(Failure::NotConnected)?;
    tried.step = Step::Tls;
    let deadline = waiter.time.now() + Duration::from_millis(u64::from(options.connect_timeout_ms.max(1)));
    let handshake = ClientHandshake::new(socket, psk.clone()).with_records(options.tls_records);
    Ok((secure(handshake, deadline, waiter, cancel).await?, peer))
}

/// What a peer that does not speak TLS speaks; other keys would change nothing about it.
fn failure(error: HandshakeError) -> Failure {
    match error {
        HandshakeError::PlainTarget => Failure::NotConnected(Kind::NoTls),
        HandshakeError::NotTls { first } => Failure::NotConnected(Kind::NotNvme { first_bytes: first }),
        error => Failure::Refused(error),
    }
}

/// Why a connection is not secured.
enum Failure {
    NotConnected(Kind),
    Stopped(Stop),
    Refused(HandshakeError),
}

/// The handshake.
async fn secure(
    mut handshake: ClientHandshake,
    deadline: Instant,
    waiter: &Waiter,
    cancel: &Cancel,
) -> Result<Stream, Failure> {
    loop {
        let blocked = match handshake.advance().map_err(failure)? {
            Progress::Done(secured) => {
                if let Some(reason) = secured.not_in_kernel {
                    static TOLD: Once = Once::new();
                    TOLD.call_once(|| tracing::warn!("TLS records are not the kernel's but own ones: {reason}"));
                }
                return Ok(secured.stream);
            }
            Progress::Readable => false,
            Progress::Writable => true,
        };
        let descriptor = handshake.socket().map(TcpStream::as_fd);
        await_ready(Watch { descriptor, blocked }, deadline, waiter, Some(cancel)).await.map_err(Failure::Stopped)?;
    }
}
