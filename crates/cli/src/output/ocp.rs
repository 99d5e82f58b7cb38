//! The view of the extended health log of the Open Compute Project (`ocp smart-add-log`), with
//! nvme-cli's keys.

use std::fmt::Write as _;

use super::View;
use super::json::{Json, Object};

/// The log page's bytes.
pub(crate) type OcpSmart = [u8; 512];

/// The log page.
pub(crate) struct OcpSmartView {
    /// The device's name.
    pub(crate) device: String,
    /// Its bytes.
    pub(crate) data: Box<OcpSmart>,
}

/// The numbers: name, offset, bytes (little endian).
const FIELDS: [(&str, usize, usize); 26] = [
    ("Bad user nand blocks - Raw", 32, 6),
    ("Bad user nand blocks - Normalized", 38, 2),
    ("Bad system nand blocks - Raw", 40, 6),
    ("Bad system nand blocks - Normalized", 46, 2),
    ("XOR recovery count", 48, 8),
    ("Uncorrectable read error count", 56, 8),
    ("Soft ecc error count", 64, 8),
    ("End to end detected errors", 72, 4),
    ("End to end corrected errors", 76, 4),
    ("System data percent used", 80, 1),
    ("Refresh counts", 81, 7),
    ("Max User data erase counts", 88, 4),
    ("Min User data erase counts", 92, 4),
    ("Number of Thermal throttling events", 96, 1),
    ("Current throttling status", 97, 1),
    ("PCIe correctable error count", 104, 8),
    ("Incomplete shutdowns", 112, 4),
    ("Percent free blocks", 120, 1),
    ("Capacitor health", 128, 2),
    ("Unaligned I/O", 136, 8),
    ("Security Version Number", 144, 8),
    ("NUSE - Namespace utilization", 152, 8),
    ("PLP start count", 160, 16),
    ("Endurance estimate", 176, 16),
    ("PCIe Link Retraining Count", 192, 8),
    ("Power State Change Count", 200, 8),
];

impl OcpSmartView {
    fn number(&self, offset: usize, bytes: usize) -> u128 {
        self.data[offset..offset + bytes].iter().rev().fold(0, |number, byte| number << 8 | u128::from(*byte))
    }

    /// The fields that come with a version of the page: the last two since its third.
    fn fields(&self) -> impl Iterator<Item = (&'static str, u128)> {
        let version = self.number(494, 2);
        let known = if version >= 3 { FIELDS.len() } else { FIELDS.len() - 2 };
        FIELDS[..known].iter().map(|&(name, offset, bytes)| (name, self.number(offset, bytes)))
    }
}

impl View for OcpSmartView {
    fn text(&self, _verbose: bool) -> String {
        let mut text = format!("SMART Cloud Attributes of {}:\n", self.device);
        let mut line = |name: &str, value: String| {
            let _infallible = writeln!(text, "  {name:<42}{value}");
        };
        line("Physical media units written", self.number(0, 16).to_string());
        line("Physical media units read", self.number(16, 16).to_string());
        for (name, value) in self.fields() {
            line(name, value.to_string());
        }
        line("Log page version", self.number(494, 2).to_string());
        line("Log page GUID", format!("{:#034x}", self.number(496, 16)));
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let halves = |offset| {
            let half = |offset| Json::Number(self.number(offset, 8));
            Object::new().with("hi", half(offset + 8)).with("lo", half(offset))
        };
        let object = Object::document("ocp-smart-add-log", 1)
            .with("Physical media units written", halves(0))
            .with("Physical media units read", halves(16));
        let object = self.fields().fold(object, |object, (name, value)| object.with(name, value));
        object
            .with("Log page version", self.number(494, 2))
            .with("Log page GUID", format!("{:#034x}", self.number(496, 16)))
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(&*self.data)
    }
}
