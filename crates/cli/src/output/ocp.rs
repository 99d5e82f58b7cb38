//! The view of the extended health log of the Open Compute Project (`ocp smart-add-log`), with
//! nvme-cli's keys.

use super::json::{Json, Object};
use super::structure::{FieldTable, LineFormat, Row, StructureView};

/// The log page's bytes.
pub(crate) type OcpSmart = [u8; 512];

/// The log page.
pub(crate) fn ocp_smart_view(device: &str, data: Box<OcpSmart>) -> StructureView<OcpSmart> {
    let title = format!("SMART Cloud Attributes of {device}:\n");
    StructureView::new(&SMART, "ocp-smart-add-log", 1, title, data)
}

/// A number by its first byte and the number of bytes.
const fn field(name: &'static str, offset: usize, bytes: usize) -> Row<OcpSmart> {
    assert!(offset + bytes <= size_of::<OcpSmart>(), "a field of the log page");
    Row::at(name, offset, bytes)
}

static SMART: FieldTable<OcpSmart> = FieldTable {
    line: LineFormat { before: "  ", width: 42, between: "" },
    rows: &[
        field("Physical media units written", 0, 16).json(|data, _| halves(data, 0)),
        field("Physical media units read", 16, 16).json(|data, _| halves(data, 16)),
        field("Bad user nand blocks - Raw", 32, 6),
        field("Bad user nand blocks - Normalized", 38, 2),
        field("Bad system nand blocks - Raw", 40, 6),
        field("Bad system nand blocks - Normalized", 46, 2),
        field("XOR recovery count", 48, 8),
        field("Uncorrectable read error count", 56, 8),
        field("Soft ecc error count", 64, 8),
        field("End to end detected errors", 72, 4),
        field("End to end corrected errors", 76, 4),
        field("System data percent used", 80, 1),
        field("Refresh counts", 81, 7),
        field("Max User data erase counts", 88, 4),
        field("Min User data erase counts", 92, 4),
        field("Number of Thermal throttling events", 96, 1),
        field("Current throttling status", 97, 1),
        field("PCIe correctable error count", 104, 8),
        field("Incomplete shutdowns", 112, 4),
        field("Percent free blocks", 120, 1),
        field("Capacitor health", 128, 2),
        field("Unaligned I/O", 136, 8),
        field("Security Version Number", 144, 8),
        field("NUSE - Namespace utilization", 152, 8),
        field("PLP start count", 160, 16),
        field("Endurance estimate", 176, 16),
        field("PCIe Link Retraining Count", 192, 8).since(3),
        field("Power State Change Count", 200, 8).since(3),
        field("Log page version", 494, 2),
        field("Log page GUID", 496, 16).shown(|data| format!("{:#034x}", number(data, 496, 16))),
    ],
    version: Some(|data| u16::from_le_bytes([data[494], data[495]])),
};

fn number(data: &OcpSmart, offset: usize, bytes: usize) -> u128 {
    data[offset..offset + bytes].iter().rev().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// 16 bytes, as nvme-cli's JSON has them.
fn halves(data: &OcpSmart, offset: usize) -> Json {
    let half = |offset| Json::Number(number(data, offset, 8));
    Object::new().with("hi", half(offset + 8)).with("lo", half(offset)).into()
}
