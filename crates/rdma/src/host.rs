//! The host's end of a connection.
//!
//! The owner of the queue pair gives it what the adapter reports:
//! ```text
//! accepted or rejected         connection.on_accepted(private_data)?, ConnectReject::decode(private_data)
//! a command is to be sent      length = connection.send_command(&mut sqe, transfer, slot)
//! its message was sent         connection.on_sent(cid)                     -> FinishedCommand
//! a capsule was received       connection.receive(bytes, invalidated)?     -> FinishedCommand
//! ```
//! A command is over when its response has come and its message was sent: until then an adapter may
//! still read the capsule, and the places of both queues are taken. The two come in any order.

mod outstanding;

use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cid, ControllerId, Cqe, QueueId, Sgl, Sqe};
use zerocopy::IntoBytes;

use self::outstanding::{HostCommand, OutstandingCommands};
use crate::capsule::{self, KEYED_LENGTH_MAX, RESPONSE_BYTES};
use crate::error::FatalError;
use crate::private_data::{ConnectAccept, ConnectRequest, Malformed};
use crate::segments::Remote;

/// What this end asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// The queue.
    pub queue: QueueId,
    /// Entries of its Submission Queue, at least 2; Asynchronous Event Requests take entries, too.
    pub entries: u16,
    /// The controller, of an I/O queue.
    pub cntlid: ControllerId,
}

/// What the controller has agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Commands that may be outstanding.
    pub commands: u16,
}

/// Which data a command moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandData<'a> {
    /// None.
    None,
    /// Data to the controller inside the capsule.
    InCapsule {
        /// The data.
        payload: &'a [u8],
    },
    /// Data in either direction, which the controller reads and writes itself.
    Keyed {
        /// Where they are.
        remote: Remote,
        /// Bytes, at most [`KEYED_LENGTH_MAX`].
        length: u32,
        /// Whether the key is for this command only, and the controller may invalidate it.
        invalidate: bool,
    },
}

/// A command that is over: its CID is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedCommand {
    /// The completion.
    pub cqe: Cqe,
    /// The command's own key, if the controller has not invalidated it: that is left to this end,
    /// before the memory is used for something else.
    pub valid_key: Option<u32>,
}

/// The host's end of one connection, and of one queue.
#[derive(Debug)]
pub struct Connection {
    config: ConnectionConfig,
    outstanding: OutstandingCommands,
}

impl Connection {
    /// Bytes of each receive.
    pub const RECEIVE_BYTES: u32 = RESPONSE_BYTES;

    /// A connection that is still to be requested, with room for `config.entries` outstanding
    /// commands, rounded up to a power of two: their CIDs must differ modulo that power, the bits
    /// above are free (a generation, for example).
    #[must_use]
    pub fn new(config: ConnectionConfig) -> Self {
        Self { config, outstanding: OutstandingCommands::new(config.entries.into()) }
    }

    /// The private data of the request.
    #[must_use]
    pub fn request(&self) -> [u8; ConnectRequest::BYTES] {
        let ConnectionConfig { queue, entries, cntlid } = self.config;
        ConnectRequest { qid: queue, host_receives: entries, entries: entries.into(), cntlid }.encode()
    }

    /// Receives to be posted before the request is sent: one for each command, which is posted
    /// again before the command's completion is passed on.
    #[must_use]
    pub const fn receives(&self) -> u32 {
        self.config.entries as u32
    }

    /// The controller has accepted, with this private data.
    ///
    /// # Errors
    /// It is no answer of an NVMe/RDMA controller: disconnect.
    pub fn on_accepted(&mut self, private_data: &[u8]) -> Result<Accepted, Malformed> {
        let ConnectAccept { controller_receives } = ConnectAccept::decode(private_data)?;
        let commands = match controller_receives {
            // It says nothing, as no controller can do without.
            0 => self.config.entries,
            receives => receives.min(self.config.entries),
        };
        Ok(Accepted { commands })
    }

    /// Writes the command capsule into `out` and returns its length. Fills in the SGL.
    ///
    /// # Panics
    /// When the CID's place is taken, `out` is too short or the length of a keyed transfer too
    /// large: a fault of the caller.
    #[inline]
    pub fn send_command(&mut self, sqe: &mut Sqe, transfer: CommandData<'_>, out: &mut [u8]) -> usize {
        let (sgl, payload, key): (Sgl, &[u8], _) = match transfer {
            // Linux' target (6.12) refuses everything that is neither keyed nor in the capsule.
            CommandData::None => (Sgl::Keyed { address: 0, length: 0, key: 0, invalidate: false }, &[], None),
            CommandData::InCapsule { payload } => {
                let length = u32::try_from(payload.len()).expect("in-capsule data are at most 1 MiB");
                (Sgl::InCapsule { offset: 0, length }, payload, None)
            }
            CommandData::Keyed { remote: Remote { address, key }, length, invalidate } => {
                assert!(length <= KEYED_LENGTH_MAX, "a keyed descriptor has 24 bits for the length");
                (Sgl::Keyed { address, length, key, invalidate }, &[], invalidate.then_some(key))
            }
        };
        sqe.dptr = SglDescriptor::encode(sgl);
        self.outstanding.begin(HostCommand { cid: sqe.cid(), key, is_sent: false, response: None });
        let (command, behind) = out.split_at_mut(size_of::<Sqe>());
        command.copy_from_slice(sqe.as_bytes());
        behind[..payload.len()].copy_from_slice(payload);
        command.len() + payload.len()
    }

    /// Whether a command with this CID, or one that shares its place, is outstanding.
    #[must_use]
    pub fn is_outstanding(&self, cid: Cid) -> bool {
        self.outstanding.is_taken(cid)
    }

    /// The message with the command of this CID was sent.
    #[inline]
    pub fn on_sent(&mut self, cid: Cid) -> Option<FinishedCommand> {
        let command = self.outstanding.find(cid)?;
        command.is_sent = true;
        command.response?;
        self.finish(cid)
    }

    /// Reads a response capsule, with which the key `invalidated` was invalidated. `None`: its
    /// command's message is still to be sent.
    ///
    /// # Errors
    /// The controller broke the transport: disconnect.
    #[inline]
    pub fn receive(&mut self, capsule: &[u8], invalidated: Option<u32>) -> Result<Option<FinishedCommand>, FatalError> {
        let cqe = capsule::response(capsule)?;
        let cid = cqe.cid();
        let unknown = FatalError::UnknownCommand { cid };
        let command = self.outstanding.find(cid).filter(|command| command.response.is_none()).ok_or(unknown)?;
        if let Some(key) = invalidated {
            if command.key != Some(key) {
                return Err(FatalError::WrongKey { cid, key });
            }
            command.key = None;
        }
        command.response = Some(cqe);
        if command.is_sent { Ok(self.finish(cid)) } else { Ok(None) }
    }

    #[inline]
    fn finish(&mut self, cid: Cid) -> Option<FinishedCommand> {
        let HostCommand { key, response, .. } = self.outstanding.finish(cid)?;
        Some(FinishedCommand { cqe: response?, valid_key: key })
    }
}
