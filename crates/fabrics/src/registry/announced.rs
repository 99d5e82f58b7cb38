//! What the controllers of a drive's subsystem announce to hosts, for those who manage the drive
//! and are no host.

use ebof_drive::View;
use ebof_nvme::property::Version;

use crate::admin::identify;
use crate::controller::property::VERSION;
use crate::model::{Limits, Model, Port, Subsystem};

/// What a new controller would announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// VS.
    pub version: Version,
    /// I/O queue pairs at most.
    pub io_queues: u16,
    /// Entries of a queue at most.
    pub queue_entries: u16,
    /// Data bytes of a command at most (MDTS).
    pub transfer_bytes: u32,
    /// OACS, to a host that may manage the drive.
    pub oacs: u16,
    /// ONCS.
    pub oncs: u16,
    /// CTRATT.
    pub ctratt: u32,
}

/// What controllers of this drive or function announce, at the port that allows most, within
/// `limits`; `None` if it is none.
pub(super) fn announced(subsystem: &Subsystem, model: &Model, limits: &Limits) -> Option<Announced> {
    let drive: &View = subsystem.drive.as_ref()?;
    let ports = || subsystem.ports.iter().filter_map(|port| model.port(*port));
    let most = |of: fn(&Port) -> u16, limit: u16| ports().map(of).max().unwrap_or(limit).min(limit);
    let (oacs, oncs, ctratt) = identify::announced(drive, subsystem.function.is_some(), subsystem.has_functions());
    Some(Announced {
        version: VERSION,
        io_queues: most(|port| port.max_io_queues, limits.io_queues),
        queue_entries: most(|port| port.max_queue_entries, limits.queue_entries),
        transfer_bytes: limits.transfer_bytes,
        oacs,
        oncs,
        ctratt,
    })
}
