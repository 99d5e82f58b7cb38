//! Views of lists that a controller has of itself: I/O command sets (`id-iocs`), UUIDs of its
//! vendor specific information (`id-uuid`).

use ebof_nvme::Uuid;
use ebof_nvme::identify::IoCommandSets;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::json::Object;
use super::structure::{FieldTable, LineFormat, StructureView, numbered, table};

/// The combinations of I/O command sets.
pub(crate) fn command_sets_view(data: Box<IoCommandSets>) -> StructureView<IoCommandSets> {
    let combinations: Vec<u64> = data.combinations().collect();
    let view = StructureView::new(&COMMAND_SETS, "id-iocs", 1, "NVMe Identify I/O Command Set:\n", data);
    combinations.into_iter().enumerate().fold(view, |view, (index, combination)| {
        let line = format!("I/O Command Set Combination[{index}]:{combination:x}\n");
        let bit = |(bit, name)| format!("\t[{bit}:{bit}] : {:x}\t{name}\n", combination >> bit & 1);
        let verbose = line.clone() + &SETS.into_iter().map(bit).collect::<String>();
        let sets = SETS.iter().fold(Object::new(), |sets, &(bit, name)| sets.with(name, selected(combination, bit)));
        view.lines(&line, &verbose)
            .key(format!("I/O Command Set Combination[{index}]"), combination)
            .key(format!("IOCSC{index}"), sets)
    })
}

static COMMAND_SETS: FieldTable<IoCommandSets> = FieldTable::new(LineFormat::wide(0), &[]);

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
pub(crate) fn uuids_view(data: Box<UuidList>) -> StructureView<UuidList> {
    let lines = |verbose| {
        numbered(
            data.iter(),
            |entry| UUID.json(entry, false),
            |index, entry| {
                let entry = UUID.text(entry, verbose);
                format!(" Entry[{:3}]\n.................\n{entry}.................\n", index + 1)
            },
        )
    };
    let ((list, plain), (_, verbose)) = (lines(false), lines(true));
    let view = StructureView::new(&UUIDS, "id-uuid", 1, "NVME Identify UUID:\n", data);
    view.key("UUID-list", list).lines(&plain, &verbose)
}

static UUIDS: FieldTable<UuidList> = FieldTable::new(LineFormat::wide(0), &[]);

static UUID: FieldTable<UuidEntry> = table! { LineFormat::wide(13), UuidEntry:
    header as "association"
        .bits(1, 0)
        .written(|association| format!("{association:#x}"))
        .beside(|entry| Some(format!("({})", ASSOCIATIONS[usize::from(entry.header & 3)]))),
    uuid as "UUID" .key("uuid").shown(|entry| Uuid(entry.uuid).to_string()),
};

const ASSOCIATIONS: [&str; 4] =
    ["No association reported", "associated with PCI Vendor ID", "associated with PCI Subsystem Vendor ID", "Reserved"];
