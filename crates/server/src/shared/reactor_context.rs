//! What a connection may use of its reactor during one turn.

use std::collections::VecDeque;
use std::sync::Arc;

use ebof_backend::{Device, Io, Request};
use ebof_fabrics::Handle;

use crate::drives::device::DeviceTable;
use crate::shared::Shared;
use crate::shared::buffer::Pool;
use crate::shared::handle::index_of;
use crate::shared::host_limits::HostBuffers;
use crate::shared::shares::LocalShares;

/// What a connection may use of its reactor during one turn.
pub(crate) struct ReactorContext<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) pool: &'a mut Pool,
    pub(crate) host_buffers: &'a mut HostBuffers,
    pub(crate) io: &'a mut Io,
    pub(crate) devices: &'a DeviceTable,
    pub(crate) scratch: &'a mut Vec<u8>,
    /// Requests that the `Io` had no room for.
    pub(crate) retry: &'a mut VecDeque<(Arc<dyn Device>, Request)>,
    pub(crate) local_shares: &'a mut LocalShares,
    /// Connections with something to send, by index.
    pub(crate) dirty: &'a mut VecDeque<u32>,
    /// Running number of the turn.
    pub(crate) number: u32,
    /// What the connection may do in this turn: bytes received and bytes to be sent.
    pub(crate) share: usize,
    pub(crate) now_ms: u64,
    pub(crate) now_us: u64,
}

impl ReactorContext<'_> {
    /// The device tag of a command: index of the connection, slot of the command. The index is not
    /// reused while a command is at a device.
    pub(crate) fn tag(&self, handle: Handle, slot: u32) -> u64 {
        u64::from(index_of(handle)) << 32 | u64::from(slot)
    }

    pub(crate) fn index_of(tag: u64) -> u32 {
        (tag >> 32) as u32
    }

    #[expect(clippy::cast_possible_truncation, reason = "the slot is the low half")]
    pub(crate) fn slot_of(tag: u64) -> u32 {
        tag as u32
    }
}
