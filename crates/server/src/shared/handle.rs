//! How connections are named across threads: a handle says which reactor has the connection, and
//! where.

use ebof_fabrics::Handle;

/// Handle: reactor in bits 63:52, serial number in 51:24, index in 23:0.
pub(crate) fn handle(reactor: usize, serial: u64, index: u32) -> Handle {
    Handle((reactor as u64) << 52 | (serial & 0x0fff_ffff) << 24 | u64::from(index))
}

/// Which reactor serves a connection.
pub(crate) fn reactor_of(handle: Handle) -> usize {
    (handle.0 >> 52) as usize
}

/// The index of a connection in its reactor's table.
pub(crate) fn index_of(handle: Handle) -> u32 {
    (handle.0 & 0x00ff_ffff) as u32
}
