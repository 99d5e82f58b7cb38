//! TLS of a connection: the names and derivations of this host's PSK that a target may know, and
//! the handshake.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use ebof_authentication::psk::IdentityVersion;
use ebof_authentication::response::Names;
use ebof_authentication::{ConfiguredPsk, Derivation};
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
    let psk = tls.load().map_err(Kind::Key)?;
    let offers = offers(&psk, &Names { host: options.host_nqn.clone(), subsystem: options.nqn.clone() });
    let mut first_refusal = None;
    for step in 0..offers.len() {
        let which = (tls.known() + step) % offers.len();
        let (socket, peer) = socket::connect(options, tried, &waiter.time, cancel)?;
        tried.step = Step::Tls;
        let deadline = waiter.time.now() + Duration::from_millis(u64::from(options.connect_timeout_ms.max(1)));
        match secure(socket, offers[which].clone(), deadline, waiter, cancel).await {
            Ok(stream) => {
                tls.note_known(which);
                return Ok((stream, peer));
            }
            Err(Failure::Stopped(stop)) => return Err(stop.into_kind(options)),
            Err(Failure::Refused(error)) => _ = first_refusal.get_or_insert(error),
        }
    }
    let reason = first_refusal.map(|error| error.to_string()).unwrap_or_default();
    Err(Kind::Tls { reason, tries: offers.len() })
}

/// Why a connection is not secured.
enum Failure {
    Stopped(Stop),
    Refused(HandshakeError),
}

/// The handshake.
async fn secure(
    socket: TcpStream,
    psk: TlsPsk,
    deadline: Instant,
    waiter: &Waiter,
    cancel: &Cancel,
) -> Result<Stream, Failure> {
    let mut handshake = ClientHandshake::new(socket, psk);
    loop {
        let blocked = match handshake.advance().map_err(Failure::Refused)? {
            Progress::Done(secured) => return Ok(secured.stream),
            Progress::Readable => false,
            Progress::Writable => true,
        };
        let descriptor = handshake.socket().map(TcpStream::as_fd);
        await_ready(Watch { descriptor, blocked }, deadline, waiter, Some(cancel)).await.map_err(Failure::Stopped)?;
    }
}

/// What a target may know the PSK by, the likeliest first.
fn offers(psk: &ConfiguredPsk, names: &Names) -> Vec<TlsPsk> {
    let mut offers: Vec<TlsPsk> = Vec::new();
    for version in [IdentityVersion::V1, IdentityVersion::V0] {
        for derivation in [Derivation::Specification, Derivation::Libnvme1] {
            let retained = psk.retained(&names.host, derivation);
            let identity = retained.identity(names, version).to_string();
            // With version 0, names may be too long for one of them.
            let key = retained.for_tls(names, version, derivation).ok();
            let offer = key.and_then(|key| TlsPsk::new(identity, retained.hash(), key).ok());
            offers.extend(offer);
        }
    }
    offers
}

#[cfg(test)]
mod tests {
    use ebof_authentication::KeyMaterial;
    use ebof_nvme::Nqn;

    use super::*;

    #[test]
    fn a_psk_is_offered_by_both_versions_and_derivations() {
        let names = |long: usize| {
            let nqn = |end: &str| Nqn::parse(&format!("nqn.2014-08.org.example:{}{end}", "x".repeat(long))).unwrap();
            Names { host: nqn("a"), subsystem: nqn("b") }
        };
        let psk = ConfiguredPsk::new(KeyMaterial::new(vec![9; 32]), None).unwrap();
        let versions =
            |offers: &[TlsPsk]| offers.iter().map(|offer| offer.identity()[..5].to_owned()).collect::<Vec<_>>();
        assert_eq!(versions(&offers(&psk, &names(0))), ["NVMe1", "NVMe1", "NVMe0", "NVMe0"]);
        // Version 0 has the names in what is derived from, which has at most 255 bytes but with
        // libnvme 1.x.
        assert_eq!(versions(&offers(&psk, &names(120))), ["NVMe1", "NVMe1", "NVMe0"]);
    }
}
