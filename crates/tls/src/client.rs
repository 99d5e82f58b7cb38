//! The host's end of a handshake: offers one key.

use std::net::TcpStream;

use crate::error::HandshakeError;
use crate::handshake::{self, Progress, RecordOptions};
use crate::psk::TlsPsk;
use crate::records::{Limits, RecordsBy};
use crate::s2n::{Mode, Session};

/// A handshake with a target. After an error, the connection is closed.
pub struct ClientHandshake {
    state: State,
    wanted: RecordOptions,
}

enum State {
    /// Nothing is sent.
    New { socket: TcpStream, psk: TlsPsk },
    /// s2n-tls goes on.
    Negotiating { session: Box<Session>, psk: TlsPsk },
    /// It is done, or failed.
    Over,
}

impl ClientHandshake {
    /// Over a socket that is connected and does not block, with this key.
    #[must_use]
    pub fn new(socket: TcpStream, psk: TlsPsk) -> Self {
        Self::with_limits(socket, psk, Limits::default())
    }

    /// As [`ClientHandshake::new`], with other limits.
    #[must_use]
    pub fn with_limits(socket: TcpStream, psk: TlsPsk, limits: Limits) -> Self {
        let wanted = RecordOptions { limits, ..RecordOptions::default() };
        Self { state: State::New { socket, psk }, wanted }
    }

    /// With records of this kind.
    #[must_use]
    pub fn with_records(mut self, records: RecordsBy) -> Self {
        self.wanted.records = records;
        self
    }

    /// Goes on as far as it can without waiting.
    ///
    /// # Errors
    /// Why there will be no connection.
    pub fn advance(&mut self) -> Result<Progress, HandshakeError> {
        let (mut session, psk) = match std::mem::replace(&mut self.state, State::Over) {
            State::New { socket, psk } => {
                (Box::new(Session::new(socket, Mode::Client, &psk, Vec::new(), self.wanted.records)?), psk)
            }
            State::Negotiating { session, psk } => (session, psk),
            State::Over => return Err(HandshakeError::Over),
        };
        let progress = handshake::advance(&mut session, &psk, 0, self.wanted)?;
        if !matches!(progress, Progress::Done(_)) {
            self.state = State::Negotiating { session, psk };
        }
        Ok(progress)
    }

    /// The socket, to wait on; `None` when the handshake is over.
    #[must_use]
    pub fn socket(&self) -> Option<&TcpStream> {
        match &self.state {
            State::New { socket, .. } => Some(socket),
            State::Negotiating { session, .. } => session.socket(),
            State::Over => None,
        }
    }
}

impl std::fmt::Debug for ClientHandshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientHandshake").field("socket", &self.socket()).finish_non_exhaustive()
    }
}
