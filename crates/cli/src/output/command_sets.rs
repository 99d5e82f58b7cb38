//! Views of lists that a controller has of itself: I/O command sets (`id-iocs`), UUIDs of its
//! vendor specific information (`id-uuid`).

use std::fmt::Write as _;

use ebof_nvme::Uuid;
use ebof_nvme::identify::IoCommandSets;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::View;
use super::json::Object;

/// The combinations of I/O command sets.
pub(crate) struct CommandSetsView {
    /// The data structure.
    pub(crate) data: Box<IoCommandSets>,
}

/// The command sets, by bit of a combination; the highest first, as nvme-cli has them.
const SETS: [(u8, &str); 5] = [
    (4, "Computational Programs Namespace Command Set"),
    (3, "Subsystem Local Memory Command Set"),
    (2, "Zoned Namespace Command Set"),
    (1, "Key Value Command Set"),
    (0, "NVM Command Set"),
];

fn selected(combination: u64, bit: u8) -> &'static str {
    if combination >> bit & 1 == 0 { "Not selected" } else { "Selected" }
}

impl View for CommandSetsView {
    fn text(&self, verbose: bool) -> String {
        let mut text = "NVMe Identify I/O Command Set:\n".to_owned();
        for (index, combination) in self.data.combinations().enumerate() {
            let _infallible = writeln!(text, "I/O Command Set Combination[{index}]:{combination:x}");
            for (bit, name) in SETS.into_iter().filter(|_| verbose) {
                let _infallible = writeln!(text, "\t[{bit}:{bit}] : {:x}\t{name}", combination >> bit & 1);
            }
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        self.data.combinations().enumerate().fold(Object::document("id-iocs", 1), |object, (index, combination)| {
            let sets =
                SETS.iter().fold(Object::new(), |sets, &(bit, name)| sets.with(name, selected(combination, bit)));
            object
                .with(format!("I/O Command Set Combination[{index}]"), combination)
                .with(format!("IOCSC{index}"), sets)
        })
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

/// An entry of the UUID List.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct UuidEntry {
    /// Bits 1:0: what the UUID belongs to.
    pub(crate) header: u8,
    /// Reserved.
    pub(crate) rsvd1: [u8; 15],
    /// The UUID.
    pub(crate) uuid: [u8; 16],
}

/// The UUID List (CNS 17h).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct UuidList {
    /// Reserved.
    pub(crate) rsvd0: [u8; 32],
    /// The entries; the first of zeros ends the list.
    pub(crate) entries: [UuidEntry; 127],
}

const _: () = assert!(size_of::<UuidList>() == 4096);

impl UuidList {
    /// The entries in order; the index of the first is 1 in commands.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &UuidEntry> {
        self.entries.iter().take_while(|entry| entry.uuid != [0; 16])
    }
}

/// The UUID List.
pub(crate) struct UuidsView {
    /// The data structure.
    pub(crate) data: Box<UuidList>,
}

const ASSOCIATIONS: [&str; 4] =
    ["No association reported", "associated with PCI Vendor ID", "associated with PCI Subsystem Vendor ID", "Reserved"];

impl View for UuidsView {
    fn text(&self, verbose: bool) -> String {
        let mut text = "NVME Identify UUID:\n".to_owned();
        for (index, entry) in self.data.iter().enumerate() {
            let association = entry.header & 3;
            let meaning = ASSOCIATIONS[usize::from(association)];
            let meaning = if verbose { format!(" ({meaning})") } else { String::new() };
            let _infallible = writeln!(
                text,
                " Entry[{:3}]\n.................\nassociation  : {association:#x}{meaning}\nUUID         : {}\n.................",
                index + 1,
                Uuid(entry.uuid)
            );
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let entry = |entry: &UuidEntry| {
            Object::new().with("association", entry.header & 3).with("uuid", Uuid(entry.uuid).to_string())
        };
        Object::document("id-uuid", 1).with("UUID-list", self.data.iter().map(entry).collect::<Vec<_>>())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}
