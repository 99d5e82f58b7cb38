//! The target's end of a handshake: finds out which of its keys the host means, and has s2n-tls do
//! the rest with that one.

use std::io::{self, Read as _};
use std::net::TcpStream;

use crate::client_hello::{ClientHello, HELLO_BYTES_MAX, Offer};
use crate::error::{HandshakeError, OfferedIdentity};
use crate::first_bytes::{FIRST_BYTES, FirstBytes, first_bytes};
use crate::handshake::{self, Progress, RecordOptions};
use crate::psk::TlsPsk;
use crate::records::{Limits, RecordsBy};
use crate::s2n::{Mode, Session};
use crate::schedule;

/// A handshake with a host. After an error, the connection is closed.
pub struct ServerHandshake {
    state: State,
    wanted: RecordOptions,
}

enum State {
    /// The ClientHello is not complete.
    Hello { socket: TcpStream, received: Vec<u8> },
    /// s2n-tls goes on, with this key.
    Negotiating { session: Box<Session>, chosen: Chosen },
    /// It is done, or failed.
    Over,
}

/// The key that the host means.
struct Chosen {
    psk: TlsPsk,
    /// Its index among those of its identity.
    candidate: usize,
}

impl ServerHandshake {
    /// Of a connection that was accepted, and does not block.
    #[must_use]
    pub fn new(socket: TcpStream) -> Self {
        Self::with_limits(socket, Limits::default())
    }

    /// As [`ServerHandshake::new`], with other limits.
    #[must_use]
    pub fn with_limits(socket: TcpStream, limits: Limits) -> Self {
        let wanted = RecordOptions { limits, ..RecordOptions::default() };
        Self { state: State::Hello { socket, received: Vec::new() }, wanted }
    }

    /// With records of this kind.
    #[must_use]
    pub fn with_records(mut self, records: RecordsBy) -> Self {
        self.wanted.records = records;
        self
    }

    /// Goes on as far as it can without waiting.
    ///
    /// `find` is asked for the keys of an identity, in the order in which the host offers them,
    /// until one has any. There may be several, of two derivations or while keys are changed: the
    /// binder of the ClientHello decides. Identities that are not UTF-8 are not asked for.
    ///
    /// # Errors
    /// Why there will be no connection. The host was told as far as that is possible.
    pub fn advance(&mut self, find: &mut dyn FnMut(&str) -> Vec<TlsPsk>) -> Result<Progress, HandshakeError> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Hello { socket, received } => self.read_hello(socket, received, find),
            State::Negotiating { session, chosen } => self.negotiate(session, chosen),
            State::Over => Err(HandshakeError::Over),
        }
    }

    /// The socket, to wait on; `None` when the handshake is over.
    #[must_use]
    pub fn socket(&self) -> Option<&TcpStream> {
        match &self.state {
            State::Hello { socket, .. } => Some(socket),
            State::Negotiating { session, .. } => session.socket(),
            State::Over => None,
        }
    }

    fn read_hello(
        &mut self,
        socket: TcpStream,
        mut received: Vec<u8>,
        find: &mut dyn FnMut(&str) -> Vec<TlsPsk>,
    ) -> Result<Progress, HandshakeError> {
        let told = |error: HandshakeError| {
            if let Some(alert) = error.alert() {
                alert.send_in_the_clear(&socket);
            }
            error
        };
        let hello = loop {
            match hello(&received).map_err(told)? {
                Some(hello) => break hello,
                None if !receive(&socket, &mut received)? => {
                    self.state = State::Hello { socket, received };
                    return Ok(Progress::Readable);
                }
                None => {}
            }
        };
        let chosen = choose(&hello, find).map_err(told)?;
        let session = Session::new(socket, Mode::Server, &chosen.psk, received, self.wanted.records)?;
        self.negotiate(Box::new(session), chosen)
    }

    /// A host whose key share is of no group of ours gets a HelloRetryRequest from s2n-tls, and
    /// sends a second ClientHello. s2n-tls checks that one's binder, with the key that the first
    /// one's decided on; a host that offers another identity there is refused.
    fn negotiate(&mut self, mut session: Box<Session>, chosen: Chosen) -> Result<Progress, HandshakeError> {
        let progress = handshake::advance(&mut session, &chosen.psk, chosen.candidate, self.wanted)?;
        if !matches!(progress, Progress::Done(_)) {
            self.state = State::Negotiating { session, chosen };
        }
        Ok(progress)
    }
}

impl std::fmt::Debug for ServerHandshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerHandshake").field("socket", &self.socket()).finish_non_exhaustive()
    }
}

/// The ClientHello that these bytes begin with; `None` if there are too few.
fn hello(received: &[u8]) -> Result<Option<ClientHello>, HandshakeError> {
    match first_bytes(received) {
        FirstBytes::ClientHello => {}
        FirstBytes::TooFew => return Ok(None),
        FirstBytes::IcReq => return Err(HandshakeError::Plain),
        FirstBytes::Other => {
            let first = received.iter().copied().take(FIRST_BYTES).collect();
            return Err(HandshakeError::NotTls { first });
        }
    }
    Ok(ClientHello::read(received)?)
}

/// Reads some bytes of the ClientHello. `false`: there are none.
fn receive(mut socket: &TcpStream, received: &mut Vec<u8>) -> Result<bool, HandshakeError> {
    let mut bytes = [0; 2048];
    match socket.read(&mut bytes) {
        Ok(0) => Err(HandshakeError::Closed { received: received.len() as u64 }),
        Ok(count) => {
            received.extend_from_slice(&bytes[..count]);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(HandshakeError::Io(error)),
    }
}

/// The key that the host means.
fn choose(hello: &ClientHello, find: &mut dyn FnMut(&str) -> Vec<TlsPsk>) -> Result<Chosen, HandshakeError> {
    if !hello.is_tls13 {
        return Err(HandshakeError::NotTls13);
    }
    let Some(first) = hello.offers.first() else { return Err(HandshakeError::NoPsk) };
    if !hello.has_psk_dhe_ke {
        return Err(HandshakeError::NoPskDheKe);
    }
    for (index, offer) in hello.offers.iter().enumerate() {
        // s2n-tls finds a key by its identity, the first one's if two are the same.
        if hello.offers[..index].iter().any(|earlier| earlier.identity == offer.identity) {
            continue;
        }
        let Ok(identity) = std::str::from_utf8(&offer.identity) else { continue };
        let candidates = find(identity);
        if !candidates.is_empty() {
            return choose_key(hello, offer, candidates);
        }
    }
    let identity = OfferedIdentity::new(&first.identity);
    Err(HandshakeError::UnknownIdentity { identity, others: hello.offers.len() - 1 })
}

/// The key whose binder this is. All are tried, and each in the same time.
fn choose_key(hello: &ClientHello, offer: &Offer, candidates: Vec<TlsPsk>) -> Result<Chosen, HandshakeError> {
    let identity = || OfferedIdentity::new(&offer.identity);
    let count = candidates.len();
    let fits = |psk: &TlsPsk| {
        if psk.identity().as_bytes() != offer.identity {
            return false;
        }
        // Comparing them takes the same time for all.
        let binder = ebof_authentication::KeyMaterial::new(offer.binder.clone());
        schedule::binder(psk.suite().hash(), psk.key(), hello.truncated()) == binder
    };
    let mut chosen = None;
    for (candidate, psk) in candidates.into_iter().enumerate() {
        if fits(&psk) && chosen.is_none() {
            chosen = Some(Chosen { psk, candidate });
        }
    }
    let chosen = chosen.ok_or_else(|| HandshakeError::WrongKey { identity: identity(), candidates: count })?;
    let suite = chosen.psk.suite();
    if !hello.suites.contains(&suite.id()) {
        return Err(HandshakeError::NoSuite { identity: identity(), suite });
    }
    Ok(chosen)
}

// An identity has to fit into what is read of a ClientHello.
const _: () = assert!(crate::psk::IDENTITY_BYTES_MAX * 2 <= HELLO_BYTES_MAX);

#[cfg(test)]
mod tests {
    use ebof_authentication::{Hash, KeyMaterial};

    use super::*;
    use crate::client_hello::tests::{offering, read};

    fn psk(identity: &str) -> TlsPsk {
        TlsPsk::new(identity.into(), Hash::Sha256, KeyMaterial::new(vec![7; 32])).unwrap()
    }

    /// A ClientHello whose binder is right for the key of these tests.
    fn hello(identity: &[u8], suites: &[u8], modes: &[u8]) -> ClientHello {
        let mut message = offering(identity, suites, modes);
        let truncated = read(&message).unwrap().unwrap().truncated().to_vec();
        let binder = schedule::binder(Hash::Sha256, psk("x").key(), &truncated);
        let at = message.len() - 32;
        message[at..].copy_from_slice(binder.bytes());
        read(&message).unwrap().unwrap()
    }

    const BOTH: [u8; 4] = [0x13, 0x02, 0x13, 0x01];

    #[test]
    fn a_key_is_chosen_where_all_that_it_needs_is_offered() {
        let chosen = choose(&hello(b"name", &BOTH, &[0, 1]), &mut |name| vec![psk("other"), psk(name)]).unwrap();
        assert_eq!((chosen.candidate, chosen.psk.identity()), (1, "name"), "not one of another name");
    }

    #[test]
    fn what_a_key_needs_and_is_not_offered_is_named() {
        let refused = |hello: &ClientHello| choose(hello, &mut |name| vec![psk(name)]).map(|_| ()).unwrap_err();
        let error = refused(&hello(b"name", &BOTH, &[0]));
        assert!(matches!(error, HandshakeError::NoPskDheKe), "{error}");
        let error = refused(&hello(b"name", &BOTH[..2], &[1]));
        assert!(matches!(error, HandshakeError::NoSuite { .. }), "{error}");
        // A name that is no text is not asked for.
        let error = refused(&hello(b"na\xffme\n", &BOTH, &[1]));
        assert!(error.to_string().contains("\"na?me?\""), "{error}");
    }
}
