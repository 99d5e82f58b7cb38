//! What devices are and can do, as they tell when they are asked. It keeps nothing open.

use std::ffi::CStr;
use std::net::IpAddr;
use std::ptr::{self, NonNull};

use super::load::Functions;
use super::{check, ffi, last_error};
use crate::{DeviceAttributes, DeviceInfo, Error, Gid, LinkLayer, PortInfo, PortState, Protocol};

/// More than any adapter has.
const GIDS_MAX: usize = 4096;

/// All devices of the machine. One that cannot be opened, or is going away, is left out.
pub(super) fn devices(functions: &'static Functions) -> Result<Vec<DeviceInfo>, Error> {
    let mut count = 0;
    // SAFETY: it writes the length of the list that it returns.
    // JUSTIFICATION: the library is in C.
    let list = unsafe { (functions.ibv_get_device_list)(&raw mut count) };
    if list.is_null() {
        return match last_error("ibv_get_device_list") {
            // The kernel has no RDMA subsystem, or it is not loaded.
            Error::Call { source, .. } if source.raw_os_error() == Some(libc::ENOSYS) => Ok(Vec::new()),
            error => Err(error),
        };
    }
    let mut found = Vec::new();
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has as many devices, which stay until it is freed.
        // JUSTIFICATION: the library is in C.
        let context = unsafe { (functions.ibv_open_device)(*list.add(index)) };
        let Some(context) = NonNull::new(context) else { continue };
        found.extend(describe(functions, context));
        // SAFETY: the device was opened, and nothing of it is left.
        // JUSTIFICATION: the library is in C.
        unsafe { (functions.ibv_close_device)(context.as_ptr()) };
    }
    // SAFETY: the list was returned by the function beside it, and is not used any more.
    // JUSTIFICATION: the library is in C.
    unsafe { (functions.ibv_free_device_list)(list) };
    Ok(found)
}

fn describe(functions: &Functions, context: NonNull<ffi::Context>) -> Option<DeviceInfo> {
    let raw = query_device(functions, context).ok()?;
    let gids = gids(functions, context);
    let ports = (1..=raw.phys_port_cnt).filter_map(|number| port(functions, context, number, &gids)).collect();
    let attributes = decode(functions, context, &raw, &gids);
    Some(DeviceInfo { attributes, firmware: text(&raw.fw_ver), ports })
}

/// What a device can do; `protocol` is that of its first port.
pub(super) fn attributes(functions: &Functions, context: NonNull<ffi::Context>) -> Result<DeviceAttributes, Error> {
    let raw = query_device(functions, context)?;
    Ok(decode(functions, context, &raw, &gids(functions, context)))
}

/// Whether it is soft-iWARP.
pub(super) fn is_soft_iwarp(functions: &Functions, context: NonNull<ffi::Context>) -> bool {
    query_device(functions, context).is_ok_and(|raw| raw.vendor_id == SIW_VENDOR)
}

fn query_device(functions: &Functions, context: NonNull<ffi::Context>) -> Result<Box<ffi::DeviceAttr>, Error> {
    // SAFETY: a structure of numbers.
    // JUSTIFICATION: it has many members, which the library writes.
    let mut raw: Box<ffi::DeviceAttr> = Box::new(unsafe { std::mem::zeroed() });
    // SAFETY: the device is open.
    // JUSTIFICATION: the library is in C.
    check("ibv_query_device", unsafe { (functions.ibv_query_device)(context.as_ptr(), &raw mut *raw) })?;
    Ok(raw)
}

fn decode(
    functions: &Functions,
    context: NonNull<ffi::Context>,
    raw: &ffi::DeviceAttr,
    gids: &[ffi::GidEntry],
) -> DeviceAttributes {
    let count = |value: i32| u32::try_from(value).unwrap_or(0);
    let depth = |value: i32| u8::try_from(value.clamp(0, 254)).unwrap_or(0);
    let first = gids.iter().filter(|gid| gid.port_num == 1).map(|gid| gid.gid_type).max();
    DeviceAttributes {
        name: name(context),
        protocol: spoken(functions, context, 1, first),
        queue_pairs: count(raw.max_qp),
        queue_entries: count(raw.max_qp_wr),
        completion_entries: count(raw.max_cqe),
        shared_receive_queues: count(raw.max_srq),
        shared_receive_entries: count(raw.max_srq_wr),
        responder_resources: depth(raw.max_qp_rd_atom),
        initiator_depth: depth(raw.max_qp_init_rd_atom),
        regions: count(raw.max_mr),
        region_bytes: raw.max_mr_size,
        send_with_invalidate: raw.device_cap_flags & ffi::DEVICE_MEM_MGT_EXTENSIONS != 0 && raw.vendor_id != SIW_VENDOR,
        memory_windows: if raw.device_cap_flags & ffi::DEVICE_MEM_WINDOW_TYPE_2 == 0 { 0 } else { count(raw.max_mw) },
        window_invalidation: raw.device_cap_flags & ffi::DEVICE_MEM_MGT_EXTENSIONS != 0 && raw.vendor_id != RXE_VENDOR,
        // Regions of programs are never in the state in which that is possible.
        region_invalidation: false,
    }
}

/// What a connection speaks that has the address `local` on a port.
pub(super) fn protocol(functions: &Functions, context: NonNull<ffi::Context>, port: u8, local: IpAddr) -> Protocol {
    let gid = match local {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let gids = if is_iwarp(context) { Vec::new() } else { gids(functions, context) };
    let same = |entry: &&ffi::GidEntry| entry.port_num == u32::from(port) && entry.gid == gid.octets();
    // The connection manager prefers version 2 where the port has both.
    let newest = gids.iter().filter(same).map(|entry| entry.gid_type).max();
    spoken(functions, context, port, newest)
}

/// Whether a device speaks iWARP.
pub(super) fn is_iwarp(context: NonNull<ffi::Context>) -> bool {
    // SAFETY: the device is open, and its description stays as long as it is.
    // JUSTIFICATION: the library is in C.
    unsafe { context.as_ref().device.as_ref() }.is_some_and(|device| device.transport_type == ffi::TRANSPORT_IWARP)
}

/// What is spoken at a port, with a GID of this type.
fn spoken(functions: &Functions, context: NonNull<ffi::Context>, port: u8, gid_type: Option<u32>) -> Protocol {
    if is_iwarp(context) {
        return Protocol::Iwarp;
    }
    let on_ethernet = || query_port(functions, context, port).is_ok_and(|port| port.link_layer == LINK_LAYER_ETHERNET);
    match gid_type {
        Some(ROCE_V2) => Protocol::RoceV2,
        Some(ROCE_V1) => Protocol::RoceV1,
        _ if on_ethernet() => Protocol::RoceV2,
        _ => Protocol::Infiniband,
    }
}

/// Soft-iWARP, as it names its vendor. It has the extensions in the kernel only: posting such a
/// message from a program is an error.
const SIW_VENDOR: u32 = 0x0062_6d74;
/// Soft-RoCE.
const RXE_VENDOR: u32 = 0x00ff_ffff;
/// `enum ibv_gid_type`
const ROCE_V1: u32 = 1;
const ROCE_V2: u32 = 2;
/// `IBV_LINK_LAYER_..`
const LINK_LAYER_INFINIBAND: u8 = 1;
const LINK_LAYER_ETHERNET: u8 = 2;

fn port(functions: &Functions, context: NonNull<ffi::Context>, number: u8, gids: &[ffi::GidEntry]) -> Option<PortInfo> {
    let raw = query_port(functions, context, number).ok()?;
    let own = gids.iter().filter(|gid| gid.port_num == u32::from(number));
    Some(PortInfo {
        number,
        state: match raw.state {
            1 => PortState::Down,
            2 => PortState::Initializing,
            3 => PortState::Armed,
            4 => PortState::Active,
            _ => PortState::Other,
        },
        link_layer: match raw.link_layer {
            LINK_LAYER_INFINIBAND => LinkLayer::Infiniband,
            LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
            _ => LinkLayer::Unspecified,
        },
        active_mtu: mtu_bytes(raw.active_mtu),
        max_mtu: mtu_bytes(raw.max_mtu),
        gids: own
            .map(|gid| Gid {
                index: gid.gid_index,
                address: gid.gid,
                protocol: match gid.gid_type {
                    _ if is_iwarp(context) => Protocol::Iwarp,
                    ROCE_V1 => Protocol::RoceV1,
                    ROCE_V2 => Protocol::RoceV2,
                    _ => Protocol::Infiniband,
                },
                interface: interface(gid.ndev_ifindex),
            })
            .collect(),
    })
}

fn query_port(functions: &Functions, context: NonNull<ffi::Context>, number: u8) -> Result<ffi::PortAttr, Error> {
    // SAFETY: a structure of numbers.
    // JUSTIFICATION: the library writes some of its members only.
    let mut raw: ffi::PortAttr = unsafe { std::mem::zeroed() };
    // SAFETY: the device is open; the structure is no shorter than what the function writes.
    // JUSTIFICATION: the library is in C.
    check("ibv_query_port", unsafe { (functions.ibv_query_port)(context.as_ptr(), number, &raw mut raw) })?;
    Ok(raw)
}

/// All GIDs of a device; none if it does not tell.
fn gids(functions: &Functions, context: NonNull<ffi::Context>) -> Vec<ffi::GidEntry> {
    let mut room = 64;
    loop {
        let mut entries = vec![ffi::GidEntry::default(); room];
        // SAFETY: the device is open; the list has as many entries of this size.
        // JUSTIFICATION: the library is in C.
        let found = unsafe {
            (functions._ibv_query_gid_table)(
                context.as_ptr(),
                entries.as_mut_ptr(),
                room,
                0,
                size_of::<ffi::GidEntry>(),
            )
        };
        match usize::try_from(found) {
            Ok(found) => {
                entries.truncate(found);
                return entries;
            }
            // There are more of them.
            Err(_) if found == -(libc::EINVAL as isize) && room < GIDS_MAX => room *= 4,
            Err(_) => return Vec::new(),
        }
    }
}

/// `enum ibv_mtu`
fn mtu_bytes(mtu: i32) -> u32 {
    match mtu {
        1..=5 => 128 << mtu,
        _ => 0,
    }
}

fn interface(index: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the name has as many bytes as it can have.
    // JUSTIFICATION: the standard library does not have this.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: it was written, with a zero byte behind it.
    // JUSTIFICATION: as above.
    Some(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

fn name(context: NonNull<ffi::Context>) -> String {
    // SAFETY: the device is open, and its description stays as long as it is.
    // JUSTIFICATION: the library is in C.
    let name = unsafe {
        let device = context.as_ref().device;
        if device.is_null() { ptr::null() } else { &raw const (*device).name }
    };
    // SAFETY: as above.
    // JUSTIFICATION: as above.
    unsafe { name.as_ref() }.map_or_else(String::new, |name| text(name))
}

/// A string in an array, up to the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
