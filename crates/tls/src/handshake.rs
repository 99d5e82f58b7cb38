//! What both ends' handshakes have in common: how far they are, and what comes of them.

use ebof_sockets::Stream;

use crate::error::HandshakeError;
use crate::kernel::NotInKernel;
use crate::psk::TlsPsk;
use crate::records::{KernelRecords, Limits, Records, RecordsBy};
use crate::s2n::{Established, HandshakeStep, Session};
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
    /// Who makes and opens the records.
    pub records: RecordsBy,
    /// Why that is not the kernel, where it was to be.
    pub not_in_kernel: Option<NotInKernel>,
}

/// What the records of a connection are to be like.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecordOptions {
    pub(crate) limits: Limits,
    pub(crate) records: RecordsBy,
}

/// Goes on with a handshake that s2n-tls carries out with this key.
pub(crate) fn advance(
    session: &mut Session,
    psk: &TlsPsk,
    candidate: usize,
    wanted: RecordOptions,
) -> Result<Progress, HandshakeError> {
    match session.advance()? {
        HandshakeStep::Readable => Ok(Progress::Readable),
        HandshakeStep::Writable => Ok(Progress::Writable),
        HandshakeStep::Done => {
            let established = session.finish(psk.suite())?;
            secure(established, psk, candidate, wanted).map(Progress::Done)
        }
    }
}

fn secure(
    established: Established,
    psk: &TlsPsk,
    candidate: usize,
    wanted: RecordOptions,
) -> Result<Secured, HandshakeError> {
    let (identity, suite) = (psk.identity().to_owned(), psk.suite());
    let done = |stream, records, not_in_kernel| Secured { stream, identity, candidate, suite, records, not_in_kernel };
    let not_in_kernel = match wanted.records {
        RecordsBy::Own => None,
        RecordsBy::Kernel if !established.received.is_empty() => Some(NotInKernel::Early),
        RecordsBy::Kernel => {
            let Established { socket, ours, theirs, .. } = &established;
            match KernelRecords::install(socket, suite, ours, theirs, wanted.limits) {
                Ok(installed) => {
                    let layer = Box::new(installed.map_err(HandshakeError::Io)?);
                    return Ok(done(Stream::layered(established.socket, layer), RecordsBy::Kernel, None));
                }
                Err(reason) => Some(reason),
            }
        }
    };
    let Established { socket, received, ours, theirs } = established;
    let records = Records::new(suite, ours, theirs, received, wanted.limits)?;
    Ok(done(Stream::layered(socket, Box::new(records)), RecordsBy::Own, not_in_kernel))
}
