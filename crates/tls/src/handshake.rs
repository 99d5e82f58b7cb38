//! What both ends' handshakes have in common: how far they are, and what comes of them.

use std::io::Write as _;
use std::net::TcpStream;

use ebof_sockets::Stream;

use crate::alert::Alert;
use crate::error::HandshakeError;
use crate::psk::TlsPsk;
use crate::records::Records;
use crate::s2n::{Established, Session, Step};
use crate::schedule::Suite;

/// How far a handshake is.
#[derive(Debug)]
pub enum Progress {
    /// It goes on when there is something to read.
    Readable,
    /// It goes on when there is room to write.
    Writable,
    /// It is done.
    Done(Secured),
}

/// A connection after its handshake.
#[derive(Debug)]
pub struct Secured {
    /// The stream, encrypted. It may have received something already
    /// ([`Stream::has_received`]).
    pub stream: Stream,
    /// The name of the key.
    pub identity: String,
    /// Which of the keys that were given for this identity is the peer's: an index.
    pub candidate: usize,
    /// The cipher suite.
    pub suite: Suite,
}

/// What a connection may do before it changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Blocks of 16 bytes that are encrypted with one key, with two more for each record. Then the
    /// key is changed (KeyUpdate).
    ///
    /// RFC 8446, 5.5 allows 2^24.5 full records with AES-GCM, which are 2^34.5 blocks. Blocks, not
    /// records, are counted, because Linux (7.3) does not follow a KeyUpdate on connections of NVMe,
    /// and ends them: that is every 256 GiB then, and not after some minutes of small completions.
    pub key_blocks: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { key_blocks: 1 << 34 }
    }
}

/// Goes on with a handshake that s2n-tls carries out with this key.
pub(crate) fn advance(
    session: &mut Session,
    psk: &TlsPsk,
    candidate: usize,
    limits: Limits,
) -> Result<Progress, HandshakeError> {
    match session.advance()? {
        Step::Readable => Ok(Progress::Readable),
        Step::Writable => Ok(Progress::Writable),
        Step::Done => {
            let Established { socket, received, ours, theirs } = session.finish(psk.suite())?;
            let identity = psk.identity().to_owned();
            let records = Records::new(psk.suite(), ours, theirs, received, limits)?;
            let stream = Stream::layered(socket, Box::new(records));
            Ok(Progress::Done(Secured { stream, identity, candidate, suite: psk.suite() }))
        }
    }
}

/// Tells a peer in the clear why there is no connection, if there is room for that.
pub(crate) fn send_alert(mut socket: &TcpStream, alert: Alert) {
    // RFC 8446, 5.1 and 6: alert, legacy version, length; fatal.
    let _ = socket.write(&[21, 3, 3, 0, 2, 2, alert.0]);
}
