//! Virtualization: the command that gives resources to functions of a drive, and the two structures
//! that show them. What a controller makes of the command is decided elsewhere.
//!
//! NVMe Base 2.1, "Virtualization Management command", "Primary Controller Capabilities Structure",
//! "Secondary Controller List".

use core::mem::offset_of;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::Sqe;
use crate::command::opcode::admin;
use crate::identify::IDENTIFY_BYTES;
pub use crate::identify::field::crt::{INTERRUPT_RESOURCES, QUEUE_RESOURCES};
use crate::name::id::ControllerId;
use crate::table::values;

/// Virtualization Management, dwords 10 and 11. Dword 0 of the completion has the number of
/// resources that were modified (NRM) in its low half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualizationManagement {
    /// Controller Identifier (CNTLID) of the primary or a secondary controller.
    pub cntlid: ControllerId,
    /// Resource Type (RT); reserved for offline and online.
    pub resource: ResourceType,
    /// Action (ACT).
    pub action: VirtualizationAction,
    /// Number of Controller Resources (NR); reserved for offline and online.
    pub count: u16,
}

values! {
    /// Resource Type (RT): what a controller has to be given before it works.
    pub enum ResourceType, 3 bits {
        /// Virtual queues (VQ), a pair each.
        Queues = 0;
        /// Virtual interrupts (VI).
        Interrupts = 1;
    }
}

values! {
    /// Action (ACT) of Virtualization Management.
    pub enum VirtualizationAction, 4 bits {
        /// Flexible resources of the primary controller from its next reset on.
        AllocateToPrimary = 1;
        /// A secondary controller goes offline, and loses its flexible resources.
        Offline = 7;
        /// Flexible resources of a secondary controller that is offline.
        Assign = 8;
        /// A secondary controller goes online.
        Online = 9;
    }
}

impl VirtualizationManagement {
    /// From dwords 10 and 11; reserved bits are ignored.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let [action, resource, low, high] = sqe.cdw10.to_bytes();
        let [count_low, count_high, ..] = sqe.cdw11.to_bytes();
        Self {
            cntlid: ControllerId(u16::from_le_bytes([low, high])),
            resource: ResourceType::decode(resource),
            action: VirtualizationAction::decode(action),
            count: u16::from_le_bytes([count_low, count_high]),
        }
    }

    /// The command.
    #[must_use]
    pub fn encode(self) -> Sqe {
        let action = u32::from(self.action.encode());
        let resource = u32::from(self.resource.encode()) << 8;
        Sqe::new(admin::VIRTUALIZATION_MANAGEMENT)
            .with_cdw(10, action | resource | u32::from(self.cntlid.0) << 16)
            .with_cdw(11, u32::from(self.count))
    }
}

/// Resources of one type of a primary controller: half of [`PrimaryCapabilities`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ResourceCapabilities {
    /// Resources Flexible Total (VQFRT, VIFRT).
    pub frt: U32,
    /// Resources Flexible Assigned (VQRFA, VIRFA) to secondary controllers.
    pub rfa: U32,
    /// Resources Flexible Allocated to Primary (VQRFAP, VIRFAP).
    pub rfap: U16,
    /// Resources Private Total (VQPRT, VIPRT) of the primary controller.
    pub prt: U16,
    /// Resources Flexible Secondary Maximum (VQFRSM, VIFRSM): what one may be assigned.
    pub frsm: U16,
    /// Flexible Resource Preferred Granularity (VQGRAN, VIGRAN).
    pub gran: U16,
    /// Reserved.
    pub reserved: [u8; 16],
}

/// Primary Controller Capabilities (Identify, CNS 14h).
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PrimaryCapabilities {
    /// Controller Identifier.
    pub cntlid: U16,
    /// Port Identifier.
    pub portid: U16,
    /// Controller Resource Types: [`QUEUE_RESOURCES`], [`INTERRUPT_RESOURCES`].
    pub crt: u8,
    /// Reserved.
    pub reserved_5: [u8; 27],
    /// Queues.
    pub queues: ResourceCapabilities,
    /// Interrupts.
    pub interrupts: ResourceCapabilities,
    /// Reserved.
    pub reserved_96: [u8; 4000],
}

const _: () = assert!(size_of::<PrimaryCapabilities>() == IDENTIFY_BYTES);
const _: () = assert!(offset_of!(PrimaryCapabilities, queues) == 32);
const _: () = assert!(offset_of!(PrimaryCapabilities, interrupts) == 64);

impl PrimaryCapabilities {
    /// All fields 0.
    #[must_use]
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }
}

/// An entry of [`SecondaryControllerList`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SecondaryController {
    /// Secondary Controller Identifier.
    pub scid: U16,
    /// Primary Controller Identifier.
    pub pcid: U16,
    /// Secondary Controller State: [`ONLINE`].
    pub scs: u8,
    /// Reserved.
    pub reserved_5: [u8; 3],
    /// Virtual Function Number.
    pub vfn: U16,
    /// Number of VQ Flexible Resources Assigned.
    pub nvq: U16,
    /// Number of VI Flexible Resources Assigned.
    pub nvi: U16,
    /// Reserved.
    pub reserved_14: [u8; 18],
}

const _: () = assert!(size_of::<SecondaryController>() == 32);

/// SCS: the controller is online.
pub const ONLINE: u8 = 1 << 0;

/// Secondary Controller List (Identify, CNS 15h): those whose identifier is at least that of the
/// command, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SecondaryControllerList {
    /// Number of Identifiers: entries that are used.
    pub numid: u8,
    /// Reserved.
    pub reserved_1: [u8; 31],
    /// The entries; those behind the used ones are 0.
    pub entries: [SecondaryController; Self::MAX],
}

const _: () = assert!(size_of::<SecondaryControllerList>() == IDENTIFY_BYTES);

impl SecondaryControllerList {
    /// Entries of a list at most.
    pub const MAX: usize = 127;

    /// A list of `entries`; those beyond [`Self::MAX`] are left out.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = SecondaryController>) -> Self {
        let mut list = Self::new_zeroed();
        for (place, entry) in list.entries.iter_mut().zip(entries) {
            *place = entry;
            list.numid += 1;
        }
        list
    }

    /// The used entries, whatever their number says.
    #[must_use]
    pub fn used(&self) -> &[SecondaryController] {
        &self.entries[..usize::from(self.numid).min(Self::MAX)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_keep_their_fields() {
        let command = VirtualizationManagement {
            cntlid: ControllerId(0x1234),
            resource: ResourceType::Interrupts,
            action: VirtualizationAction::Assign,
            count: 0x5678,
        };
        let sqe = command.encode();
        assert_eq!((sqe.cdw10.get(), sqe.cdw11.get()), (0x1234_0108, 0x5678));
        assert_eq!(VirtualizationManagement::decode(&sqe), command);
        for bits in 0..=u8::MAX {
            assert_eq!(ResourceType::decode(bits).encode(), bits & 7);
            assert_eq!(VirtualizationAction::decode(bits).encode(), bits & 15);
        }
        // Reserved bits are ignored.
        let noisy = sqe.with_cdw(10, 0x1234_f9f8).with_cdw(11, 0xffff_5678);
        assert_eq!(VirtualizationManagement::decode(&noisy), command);
    }

    #[test]
    fn a_list_has_at_most_127_entries() {
        let entry = |scid: u16| SecondaryController { scid: scid.into(), ..SecondaryController::default() };
        let list = SecondaryControllerList::new((1..=200).map(entry));
        assert_eq!((list.numid, list.used().len(), list.used()[126].scid.get()), (127, 127, 127));
        let mut bytes = list.as_bytes().to_vec();
        assert_eq!(bytes[32..34], [1, 0]);
        bytes[0] = 255;
        let damaged = SecondaryControllerList::ref_from_bytes(&bytes).unwrap();
        assert_eq!(damaged.used().len(), 127);
    }
}
