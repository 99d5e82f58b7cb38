//! Lists of namespaces, of controllers and of endurance groups (CNS 02h, 07h, 10h, 12h, 13h, 19h,
//! 1Ah): filling one and walking one.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::status::Status;
use crate::name::id::{ControllerId, Nsid};

/// Namespace List: up to 1024 NSIDs in ascending order, the rest zeros. NVMe Base 2.1, "Namespace
/// List Format".
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NamespaceList {
    /// Identifiers; the first zero ends the list.
    pub identifier: [U32; 1024],
}

const _: () = assert!(size_of::<NamespaceList>() == 4096);

impl NamespaceList {
    /// Entries a list holds.
    pub const ENTRIES_MAX: usize = 1024;

    /// The first 1024 of `nsids` that are greater than `after` (CDW1.NSID of the command). `nsids`
    /// ascends; what does not, and what names no namespace, is left out, so that the list is always
    /// legal.
    #[must_use]
    pub fn after(after: Nsid, nsids: impl IntoIterator<Item = Nsid>) -> Self {
        let mut list = Self::default();
        let mut last = after;
        let mut slots = list.identifier.iter_mut();
        for nsid in nsids {
            if nsid <= last || !nsid.names_one() {
                continue;
            }
            let Some(slot) = slots.next() else { break };
            slot.set(nsid.0);
            last = nsid;
        }
        list
    }

    /// The identifiers up to the first zero, as they came.
    pub fn iter(&self) -> impl Iterator<Item = Nsid> {
        self.identifier.iter().map(|nsid| Nsid(nsid.get())).take_while(|&nsid| nsid != Nsid::NONE)
    }

    /// Where to ask on: the last identifier of a full list, `None` when the list is the last one.
    /// `after` is what this list was asked with: a list that does not go beyond it is never
    /// continued, or a hostile controller could keep the host asking for ever.
    #[must_use]
    pub fn next_after(&self, after: Nsid) -> Option<Nsid> {
        let full = self.identifier.iter().all(|nsid| nsid.get() != 0);
        let last = Nsid(self.identifier[Self::ENTRIES_MAX - 1].get());
        (full && last > after && last < NSID_LAST).then_some(last)
    }
}

impl Default for NamespaceList {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// The greatest identifier that names a namespace: none follows it.
const NSID_LAST: Nsid = Nsid(0xffff_fffe);

/// Controller List: up to 2047 controller IDs in ascending order. NVMe Base 2.1, "Controller List
/// Format".
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ControllerList {
    /// Number of Identifiers, 0 to 2047.
    pub num: U16,
    /// Identifiers.
    pub identifier: [U16; 2047],
}

const _: () = assert!(size_of::<ControllerList>() == 4096);

impl ControllerList {
    /// Entries a list holds.
    pub const ENTRIES_MAX: usize = 2047;

    /// The first 2047 of `controllers` that are `from` (CDW10.CNTID of the command) or greater.
    /// `controllers` ascends; what does not, and what no controller can have (FFF0h and above), is
    /// left out.
    #[must_use]
    pub fn starting_at(from: ControllerId, controllers: impl IntoIterator<Item = ControllerId>) -> Self {
        let mut list = Self::default();
        let mut least = from.0;
        let mut num = 0;
        for controller in controllers {
            if controller.0 < least || controller > ControllerId::MAX {
                continue;
            }
            let Some(slot) = list.identifier.get_mut(usize::from(num)) else { break };
            slot.set(controller.0);
            num += 1;
            least = controller.0 + 1;
        }
        list.num.set(num);
        list
    }

    /// The identifiers, as many as NUM says and the list holds.
    pub fn iter(&self) -> impl Iterator<Item = ControllerId> {
        self.identifier.iter().map(|controller| ControllerId(controller.get())).take(usize::from(self.num.get()))
    }

    /// The identifiers, where the list is what Namespace Attachment takes: 1 to 2047 of them,
    /// ascending, without what no controller can have.
    ///
    /// # Errors
    /// `CONTROLLER_LIST_INVALID`.
    pub fn legal(&self) -> Result<impl Iterator<Item = ControllerId>, Status> {
        let count = usize::from(self.num.get());
        let ascends = self.iter().zip(self.iter().skip(1)).all(|(one, next)| one < next);
        let exist = self.iter().all(|controller| controller <= ControllerId::MAX);
        if (1..=Self::ENTRIES_MAX).contains(&count) && ascends && exist {
            Ok(self.iter())
        } else {
            Err(Status::CONTROLLER_LIST_INVALID)
        }
    }
}

impl Default for ControllerList {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Endurance Group List (CNS 19h): up to 2047 endurance group identifiers in ascending order. NVMe
/// Base 2.1, section of that name.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EnduranceGroupList {
    /// Number of Identifiers, 0 to 2047.
    pub num: U16,
    /// Identifiers.
    pub identifier: [U16; 2047],
}

const _: () = assert!(size_of::<EnduranceGroupList>() == 4096);

impl EnduranceGroupList {
    /// Entries a list holds.
    pub const ENTRIES_MAX: usize = 2047;

    /// The first 2047 of `groups`, which ascends, that are `from` (CDW11.CNSSID of the command) or
    /// greater; 0 names none and is left out.
    #[must_use]
    pub fn starting_at(from: u16, groups: impl IntoIterator<Item = u16>) -> Self {
        let mut list = Self::default();
        let mut num = 0;
        for (slot, group) in list.identifier.iter_mut().zip(groups.into_iter().filter(|&id| id != 0 && id >= from)) {
            slot.set(group);
            num += 1;
        }
        list.num.set(num);
        list
    }

    /// The identifiers, as many as NUM says and the list holds.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.identifier.iter().map(|group| group.get()).take(usize::from(self.num.get()))
    }
}

impl Default for EnduranceGroupList {
    fn default() -> Self {
        Self::new_zeroed()
    }
}
