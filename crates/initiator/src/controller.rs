//! A connected controller: its identity, admin commands, namespaces, events and queue pairs.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use ebof_nvme::identify::{IdentifyController, IdentifyNamespace};
use ebof_nvme::property::Cap;
use ebof_nvme::{ControllerId, Cqe, Nsid, Sqe};

use crate::connect_error::ConnectError;
use crate::error::Error;
use crate::event::Event;
use crate::namespace::Namespace;
use crate::options::Options;
use crate::queue::{Buffer, QueuePair};

/// Borrowed data of a command that is waited for.
#[derive(Debug)]
pub enum AdminData<'a> {
    /// The command has no data.
    None,
    /// The controller fills the buffer.
    ToHost(&'a mut [u8]),
    /// The controller takes the bytes.
    FromHost(&'a [u8]),
}

/// How a controller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Connected.
    Live,
    /// The connection is lost and being re-established.
    Reconnecting,
    /// Disconnected on request.
    Disconnected,
    /// Given up after `ctrl_loss_tmo`.
    Dead,
}

impl State {
    /// The word that nvme-cli shows for it, where it has one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Reconnecting => "connecting",
            Self::Disconnected => "deleting",
            Self::Dead => "dead",
        }
    }
}

/// A connected controller. Cheap to clone; all clones are the same controller. When the last one and the last queue pair and namespace are
/// dropped, it disconnects.
#[derive(Clone)]
pub struct Controller {}

impl Controller {
    /// Connects the Admin Queue, enables the controller, identifies it and asks for I/O queues.
    ///
    /// # Errors
    /// What was tried, what the target answered, and what to do about it.
    pub fn connect(options: &Options) -> Result<Self, ConnectError> {
        let _ = options;
        todo!()
    }

    /// What it was connected with.
    #[must_use]
    pub fn options(&self) -> &Options {
        todo!()
    }

    /// Its Identify data, as of the last (re)connect.
    #[must_use]
    pub fn identify(&self) -> std::sync::Arc<IdentifyController> {
        todo!()
    }

    /// Its identifier within the subsystem; changes with every reconnect.
    #[must_use]
    pub fn id(&self) -> ControllerId {
        todo!()
    }

    /// The CAP property.
    #[must_use]
    pub fn cap(&self) -> Cap {
        todo!()
    }

    /// Where the target was reached.
    #[must_use]
    pub fn peer(&self) -> std::net::SocketAddr {
        todo!()
    }

    /// How it is.
    #[must_use]
    pub fn state(&self) -> State {
        todo!()
    }

    /// Waits until the controller is live; `false` when it is not by `deadline` or never will be.
    #[must_use]
    pub fn wait_live(&self, deadline: Option<Instant>) -> bool {
        let _ = deadline;
        todo!()
    }

    /// I/O queues that the controller granted.
    #[must_use]
    pub fn io_queues(&self) -> u16 {
        todo!()
    }

    /// The largest transfer of one command in bytes, `None` where the controller sets no limit.
    #[must_use]
    pub fn max_transfer_bytes(&self) -> Option<u64> {
        todo!()
    }

    /// Runs an admin command; `timeout` of `None` is the option's. The completion is returned whatever its status is.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Timeout`], [`Error::NotConnected`].
    pub fn admin(&self, sqe: Sqe, data: AdminData<'_>, timeout: Option<Duration>) -> Result<Cqe, Error> {
        let _ = (sqe, data, timeout);
        todo!()
    }

    /// Reads a property of `bytes` (4 or 8) at `offset`.
    ///
    /// # Errors
    /// As [`Controller::admin`], and [`Error::Status`].
    pub fn property_get(&self, offset: u32, bytes: u8) -> Result<u64, Error> {
        let _ = (offset, bytes);
        todo!()
    }

    /// Writes a property of four bytes.
    ///
    /// # Errors
    /// As [`Controller::property_get`].
    pub fn property_set(&self, offset: u32, value: u32) -> Result<(), Error> {
        let _ = (offset, value);
        todo!()
    }

    /// Reads `data.len()` bytes (a multiple of 4) of log page `lid` from `offset` (a multiple of 4), in as many commands as the transfer limit
    /// asks for.
    ///
    /// # Errors
    /// As [`Controller::property_get`].
    pub fn log_page(&self, nsid: Nsid, lid: u8, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        let _ = (nsid, lid, offset, data);
        todo!()
    }

    /// The active namespaces, in ascending order.
    ///
    /// # Errors
    /// As [`Controller::property_get`].
    pub fn namespaces(&self) -> Result<Vec<Nsid>, Error> {
        todo!()
    }

    /// Identify Namespace (CNS 00h).
    ///
    /// # Errors
    /// As [`Controller::property_get`].
    pub fn identify_namespace(&self, nsid: Nsid) -> Result<Box<IdentifyNamespace>, Error> {
        let _ = nsid;
        todo!()
    }

    /// A namespace to read and write.
    ///
    /// # Errors
    /// [`Error::NoSuchNamespace`], a format that cannot be used (metadata), or no I/O queue.
    pub fn namespace(&self, nsid: Nsid) -> Result<Namespace, Error> {
        let _ = nsid;
        todo!()
    }

    /// What happens from now on. A receiver that is not read loses events beyond 256.
    #[must_use]
    pub fn events(&self) -> Receiver<Event> {
        todo!()
    }

    /// Connects the next unused I/O queue. Its id is free again when the queue pair is dropped.
    ///
    /// # Errors
    /// [`Error::NoFreeQueue`] when all granted queues are in use; [`Error::Connect`] when the target refuses.
    pub fn queue_pair<B: Buffer>(&self) -> Result<QueuePair<B>, Error> {
        todo!()
    }

    /// Drops all connections and makes new ones, as after a loss. Does not wait.
    pub fn reset(&self) {
        todo!()
    }

    /// Shuts the controller down (CC.SHN), closes all connections and waits for the background thread. Commands that are
    /// outstanding on queue pairs come back as lost.
    pub fn disconnect(self) {
        todo!()
    }
}
