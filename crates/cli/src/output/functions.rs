//! Views of a drive's functions: `primary-ctrl-caps`, `list-secondary`, `virt-mgmt`, as nvme-cli
//! shows them.

use ebof_nvme::identify::field;
use ebof_nvme::virtualization::{ONLINE, PrimaryCapabilities, SecondaryController, SecondaryControllerList};

use super::done::Done;
use super::structure::{FieldTable, LineFormat, StructureView, numbered, row, table};
use super::text::hex;

/// Primary Controller Capabilities.
pub(crate) fn primary_view(data: Box<PrimaryCapabilities>) -> StructureView<PrimaryCapabilities> {
    StructureView::new(&PRIMARY, "primary-ctrl-caps", 1, "NVME Identify Primary Controller Capabilities:\n", data)
}

static PRIMARY: FieldTable<PrimaryCapabilities> = FieldTable::new(
    LineFormat::wide(10),
    &[
        row!(PrimaryCapabilities, cntlid).hex(),
        row!(PrimaryCapabilities, portid).hex(),
        row!(PrimaryCapabilities, crt).hex().explained(field::crt::BITS),
        row!(PrimaryCapabilities, queues.frt, "vqfrt"),
        row!(PrimaryCapabilities, queues.rfa, "vqrfa"),
        row!(PrimaryCapabilities, queues.rfap, "vqrfap"),
        row!(PrimaryCapabilities, queues.prt, "vqprt"),
        row!(PrimaryCapabilities, queues.frsm, "vqfrsm"),
        row!(PrimaryCapabilities, queues.gran, "vqgran"),
        row!(PrimaryCapabilities, interrupts.frt, "vifrt"),
        row!(PrimaryCapabilities, interrupts.rfa, "virfa"),
        row!(PrimaryCapabilities, interrupts.rfap, "virfap"),
        row!(PrimaryCapabilities, interrupts.prt, "viprt"),
        row!(PrimaryCapabilities, interrupts.frsm, "vifrsm"),
        row!(PrimaryCapabilities, interrupts.gran, "vigran"),
    ],
);

/// A Secondary Controller List, of which at most `entries_max` are shown.
pub(crate) fn secondary_view(
    data: Box<SecondaryControllerList>,
    entries_max: usize,
) -> StructureView<SecondaryControllerList> {
    let shown = data.used().iter().take(entries_max);
    let line = |index, entry: &&SecondaryController| {
        format!("   SCEntry[{index:<3}]:\n................\n{}", SECONDARY.text(entry, false))
    };
    let (list, lines) = numbered(shown, |entry| SECONDARY.json(entry, false), line);
    let view = StructureView::new(&SECONDARIES, "list-secondary", 1, "Identify Secondary Controller List:\n", data);
    view.list("secondary-controllers", list, &lines)
}

const LIST_LINE: LineFormat = LineFormat { before: "   ", width: 0, between: ": " };

static SECONDARIES: FieldTable<SecondaryControllerList> = table! { LIST_LINE, SecondaryControllerList:
    numid as "NUMID       : Number of Identifiers           " .key("num"),
};

const ENTRY_LINE: LineFormat = LineFormat { before: "     ", width: 44, between: ": " };

static SECONDARY: FieldTable<SecondaryController> = table! { ENTRY_LINE, SecondaryController:
    scid as "SCID      : Secondary Controller Identifier" .written(word).key("secondary-controller-identifier"),
    pcid as "PCID      : Primary Controller Identifier" .written(word).key("primary-controller-identifier"),
    scs as "SCS       : Secondary Controller State" .written(state).key("secondary-controller-state"),
    vfn as "VFN       : Virtual Function Number" .written(word).key("virtual-function-number"),
    nvq as "NVQ       : Num VQ Flex Resources Assigned" .written(word).key("num-virtual-queues"),
    nvi as "NVI       : Num VI Flex Resources Assigned" .written(word).key("num-virtual-interrupts"),
};

/// As C prints `%#.04x`.
fn word(value: u128) -> String {
    if value == 0 { "0000".to_owned() } else { format!("{value:#06x}") }
}

fn state(state: u128) -> String {
    let name = if state & u128::from(ONLINE) != 0 { "Online" } else { "Offline" };
    format!("{} ({name})", word(state))
}

/// Virtualization Management was done; `modified` is Number of Controller Resources Modified.
pub(crate) fn virtualized_view(device: &str, modified: u16) -> Done {
    let text = format!("success, Number of Controller Resources Modified (NRM):{}\n", hex(modified));
    Done::with_text("virt-mgmt", text).with("device", device).with("nrm", modified)
}
