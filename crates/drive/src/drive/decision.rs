//! What the drive decides: the answer, what becomes durable, and what is done on the medium before
//! and after that.

use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::event::AsyncEvent;
use ebof_nvme::log::ReservationEvent;
use ebof_nvme::{HostId, Nsid};

use crate::change::Change;
use crate::function::{self, FunctionId};
use crate::namespace::VolumeId;
use crate::namespace::block_format::BlockFormat;
use crate::request::Answer;

/// What is to be done for a request, in the order of the first four fields.
#[derive(Debug, PartialEq)]
pub struct Decision {
    /// The answer to the host, when everything is done.
    pub answer: Answer,
    /// To be done on the medium before the changes become durable.
    pub before: Vec<Effect>,
    /// To be made durable.
    pub changes: Vec<Change>,
    /// To be done on the medium when the changes are durable.
    pub after: Vec<Effect>,
    /// Reservation notices for all controllers of these hosts.
    pub notices: Vec<(Nsid, HostId, ReservationEvent)>,
    /// Commands of these hosts to the namespaces have to end before the answer.
    pub abort: Vec<(Nsid, HostId)>,
    /// Namespaces that these functions lose ([`Nsid::ALL`]: all of theirs, and their ports), or
    /// (`None`) those hosts of the drive's own subsystem that are not attached any more: their
    /// commands to them have to end before others have the namespaces.
    pub lost: Vec<(Nsid, Option<FunctionId>)>,
    /// Events for all controllers.
    pub events: Vec<AsyncEvent>,
    /// If there are any: the host is answered, and commands to these namespaces are executed, only
    /// when the old data of the drive are erased.
    pub erased: Vec<VolumeId>,
}

/// A consequence of a change on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Create a volume.
    Create {
        /// Its name.
        volume: VolumeId,
        /// Its size in blocks.
        blocks: u64,
        /// Blocks for which extents may be allocated.
        capacity_blocks: u64,
        /// How the blocks are stored.
        block_format: BlockFormat,
    },
    /// Remove a volume, and free its extents.
    Remove(VolumeId),
}

impl Decision {
    pub(super) fn nothing() -> Self {
        Self {
            answer: Answer::Done(0),
            before: Vec::new(),
            changes: Vec::new(),
            after: Vec::new(),
            notices: Vec::new(),
            abort: Vec::new(),
            lost: Vec::new(),
            events: Vec::new(),
            erased: Vec::new(),
        }
    }

    pub(super) fn change(change: Change) -> Self {
        Self { changes: vec![change], ..Self::nothing() }
    }

    /// A change of functions.
    pub(super) fn functions(change: function::FunctionChange) -> Self {
        Self::change(Change::Functions { change })
    }
}
