//! The interface of the ublk driver: commands, flags and layouts of `linux/ublk_cmd.h`, in native
//! byte order.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// ioctl(2) numbers of type 'u': `_IOR` and `_IOWR` with the size of what goes with the command.
const fn read(number: u32, bytes: u32) -> u32 {
    2 << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

const fn read_write(number: u32, bytes: u32) -> u32 {
    3 << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

/// Commands on /dev/ublk-control; [`ControlCommand`] goes with each.
pub(super) mod control {
    use super::{read, read_write};

    pub(in crate::ublk) const GET_DEV_INFO: u32 = read(0x02, 32);
    pub(in crate::ublk) const ADD_DEV: u32 = read_write(0x04, 32);
    pub(in crate::ublk) const DEL_DEV: u32 = read_write(0x05, 32);
    pub(in crate::ublk) const START_DEV: u32 = read_write(0x06, 32);
    pub(in crate::ublk) const STOP_DEV: u32 = read_write(0x07, 32);
    pub(in crate::ublk) const SET_PARAMS: u32 = read_write(0x08, 32);
    pub(in crate::ublk) const GET_FEATURES: u32 = read(0x13, 32);
    /// Does not wait for the users of the block device (Linux 6.9).
    pub(in crate::ublk) const DEL_DEV_ASYNC: u32 = read(0x14, 32);
    /// As `STOP_DEV`, but EBUSY if somebody has the block device open (Linux 7.0).
    pub(in crate::ublk) const TRY_STOP_DEV: u32 = read_write(0x17, 32);
}

/// Commands on a queue; [`IoCommand`] goes with each.
pub(super) mod io {
    use super::read_write;

    pub(in crate::ublk) const FETCH_REQ: u32 = read_write(0x20, 16);
    pub(in crate::ublk) const COMMIT_AND_FETCH_REQ: u32 = read_write(0x21, 16);
}

/// Device flags: commands are numbered as ioctls are.
pub(super) const CMD_IOCTL_ENCODE: u64 = 1 << 6;
/// Device flags: data are moved by pread(2) and pwrite(2) on the character device (Linux 6.5).
pub(super) const USER_COPY: u64 = 1 << 7;
/// Feature of the driver: `TRY_STOP_DEV`.
pub(super) const SAFE_STOP: u64 = 1 << 17;

/// Operation of a request: the low byte of `op_flags`.
pub(super) mod op {
    pub(in crate::ublk) const READ: u32 = 0;
    pub(in crate::ublk) const WRITE: u32 = 1;
    pub(in crate::ublk) const FLUSH: u32 = 2;
    pub(in crate::ublk) const DISCARD: u32 = 3;
    pub(in crate::ublk) const WRITE_ZEROES: u32 = 5;
    /// Flag: through to the medium.
    pub(in crate::ublk) const FUA: u32 = 1 << 13;
    /// Flag: zeros, but keep the space.
    pub(in crate::ublk) const NOUNMAP: u32 = 1 << 15;
}

/// Attributes of [`BasicParams`].
pub(super) mod attr {
    pub(in crate::ublk) const VOLATILE_CACHE: u32 = 1 << 2;
    pub(in crate::ublk) const FUA: u32 = 1 << 3;
}

/// Parts of [`Params`] that are filled in.
pub(super) const PARAM_BASIC: u32 = 1 << 0;
/// The discard part.
pub(super) const PARAM_DISCARD: u32 = 1 << 1;

/// The most tags of a queue.
pub(super) const QUEUE_DEPTH_MAX: u64 = 4096;
/// Offset of the requests' data in the character device, after the descriptors of the queues.
const DATA_OFFSET: u64 = 0x8000_0000;

/// Offset of the data of request `tag` of a queue in the character device.
pub(super) fn data_position(queue: u16, tag: u16) -> u64 {
    DATA_OFFSET + (u64::from(queue) << 41) + (u64::from(tag) << 25)
}

/// Offset of the descriptors of a queue in the character device.
pub(super) fn descriptors_position(queue: u16) -> u64 {
    u64::from(queue) * (QUEUE_DEPTH_MAX * size_of::<Descriptor>() as u64).next_multiple_of(4096)
}

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident($size:literal) { $($field:ident: $type:ty,)* })*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);)*
    };
}

layouts! {
    /// The payload of a control command.
    ControlCommand(32) {
        dev_id: u32, queue_id: u16, len: u16, addr: u64, data: u64, dev_path_len: u16, pad: u16, reserved: u32,
    }
    /// A device.
    DeviceInfo(64) {
        nr_hw_queues: u16, queue_depth: u16, state: u16, pad0: u16, max_io_buf_bytes: u32, dev_id: u32,
        ublksrv_pid: i32, pad1: u32, flags: u64, ublksrv_flags: u64, owner_uid: u32, owner_gid: u32,
        reserved1: u64, reserved2: u64,
    }
    /// Basic parameters of a device.
    BasicParams(32) {
        attrs: u32, logical_bs_shift: u8, physical_bs_shift: u8, io_opt_shift: u8, io_min_shift: u8,
        max_sectors: u32, chunk_sectors: u32, dev_sectors: u64, virt_boundary_mask: u64,
    }
    /// Discard parameters. The last field is the begin of the next part, which is not used.
    DiscardParams(24) {
        discard_alignment: u32, discard_granularity: u32, max_discard_sectors: u32, max_write_zeroes_sectors: u32,
        max_discard_segments: u16, reserved0: u16, padding: u32,
    }
    /// The parameters that are set.
    Params(64) { len: u32, types: u32, basic: BasicParams, discard: DiscardParams, }
    /// The kernel's descriptor of a request.
    Descriptor(24) { op_flags: u32, nr_sectors: u32, start_sector: u64, addr: u64, }
    /// The payload of a queue command.
    IoCommand(16) { q_id: u16, tag: u16, result: i32, addr: u64, }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_match_the_kernels_header() {
        assert_eq!(control::ADD_DEV, 0xc020_7504);
        assert_eq!(control::GET_FEATURES, 0x8020_7513);
        assert_eq!(control::TRY_STOP_DEV, 0xc020_7517);
        assert_eq!(io::FETCH_REQ, 0xc010_7520);
        assert_eq!(descriptors_position(1), 98_304);
        assert_eq!(data_position(1, 2), 0x8000_0000 + (1 << 41) + (2 << 25));
    }
}
