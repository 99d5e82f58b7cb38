//! What both ends' handshakes have in common: how far they are, and what comes of them.

use ebof_sockets::Stream;

use crate::error::HandshakeError;
use crate::psk::TlsPsk;
use crate::records::{Limits, Records};
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
