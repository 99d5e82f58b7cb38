//! The view of a controller's properties (`show-regs`).

use std::fmt::Write as _;

use ebof_nvme::property::{Version, offset};
use zerocopy::little_endian::U64;

use super::View;
use super::json::Object;
use super::structure::{FieldTable, LineFormat, Row};
use super::text::hex;

/// A property that a controller over a message-based transport has: offset, symbol, bytes, name.
pub(crate) const PROPERTIES: [(u32, &str, u8, &str); 6] = [
    (offset::CAP, "cap", 8, "Controller Capabilities"),
    (offset::VS, "version", 4, "Version"),
    (offset::CC, "cc", 4, "Controller Configuration"),
    (offset::CSTS, "csts", 4, "Controller Status"),
    (offset::NSSR, "nssr", 4, "NVM Subsystem Reset"),
    (offset::CRTO, "crto", 4, "Controller Ready Timeouts"),
];

/// The properties that the controller returned.
pub(crate) struct RegistersView {
    /// In the order of [`PROPERTIES`]; those the controller refused are missing.
    pub(crate) values: Vec<(&'static str, u64)>,
}

impl View for RegistersView {
    fn text(&self, verbose: bool) -> String {
        let mut text = String::new();
        for (symbol, value) in &self.values {
            let _infallible = writeln!(text, "{symbol:<8}: {}", hex(*value));
            if verbose {
                let _infallible = writeln!(text, "{}", table(symbol).text(&U64::new(*value), true));
            }
        }
        text
    }

    fn json(&self, verbose: bool) -> Object {
        let document = Object::document("show-regs", 2);
        self.values.iter().fold(document, |object, &(symbol, value)| {
            let key = json_symbol(symbol);
            if !verbose {
                return object.with(key, value);
            }
            let explained = table(symbol).json(&U64::new(value), true);
            object.with(key, Object::new().with("value", value).extend(explained))
        })
    }
}

/// The symbol in JSON, where it differs from nvme-cli's text.
pub(crate) fn json_symbol(symbol: &'static str) -> &'static str {
    if symbol == "version" { "vs" } else { symbol }
}

/// One property (`get-property`, `set-property`).
#[derive(Debug)]
pub(crate) struct PropertyView {
    /// The verb.
    pub(crate) verb: &'static str,
    /// Its offset.
    pub(crate) offset: u32,
    /// The value that was read or written.
    pub(crate) value: u64,
}

impl PropertyView {
    fn known_property(&self) -> Option<(&'static str, &'static str)> {
        let known = PROPERTIES.iter().find(|(offset, ..)| *offset == self.offset);
        known.map(|(_, symbol, _, name)| (*symbol, *name))
    }
}

impl View for PropertyView {
    fn text(&self, verbose: bool) -> String {
        let (symbol, name) = self.known_property().unwrap_or(("", "Unknown"));
        let word = if self.verb == "get-property" { "property" } else { self.verb };
        let mut text = format!("{word}: {:#04x} ({name}), value: {:x}\n", self.offset, self.value);
        if verbose {
            text += &table(symbol).text(&U64::new(self.value), true);
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let known = self.known_property();
        let document = if self.verb == "get-property" {
            Object::document(self.verb, 2)
                .with("property", format!("{:#04x}", self.offset))
                .with("value", format!("{:x}", self.value))
                .with("number", self.value)
        } else {
            Object::document(self.verb, 1).with("value", self.value)
        };
        document
            .with("offset", self.offset)
            .with("symbol", known.map(|(symbol, _)| json_symbol(symbol)))
            .with("name", known.map(|(_, name)| name))
    }
}

/// Properties that were read by name (`get-reg`).
#[derive(Debug)]
pub(crate) struct ReadRegistersView {
    /// Offset, symbol, value.
    pub(crate) values: Vec<(u32, &'static str, u64)>,
}

impl View for ReadRegistersView {
    fn text(&self, verbose: bool) -> String {
        let mut text = String::new();
        for &(offset, symbol, value) in &self.values {
            let _infallible = writeln!(text, "register: {offset:#04x} ({symbol}), value: {value:#x}");
            if verbose {
                text += &table(symbol).text(&U64::new(value), true);
            }
        }
        text
    }

    fn json(&self, verbose: bool) -> Object {
        self.values.iter().fold(Object::document("get-reg", 1), |object, &(offset, symbol, value)| {
            let named = Object::new().with("name", symbol).with("value", value);
            let fields = if verbose { table(symbol).json(&U64::new(value), true) } else { Object::new() };
            let named = named.extend(fields);
            object.with(format!("register: {offset:#04x}"), vec![named])
        })
    }
}

/// The fields of a property.
fn table(symbol: &str) -> &'static FieldTable<U64> {
    match symbol {
        "cap" => &CAP,
        "version" | "vs" => &VERSION,
        "cc" => &CC,
        "csts" => &CSTS,
        "nssr" => &NSSR,
        "crto" => &CRTO,
        _ => &UNKNOWN,
    }
}

/// A field of a property by its highest and its lowest bit.
const fn field(name: &'static str, high: u8, low: u8) -> Row<U64> {
    Row::at(name, 0, 8).bits(high, low).text_in_json()
}

const LINE: LineFormat = LineFormat { before: "\t", width: 58, between: ": " };
const SUPPORTED: &[&str] = &["Not Supported", "Supported"];
const YES: &[&str] = &["No", "Yes"];

static UNKNOWN: FieldTable<U64> = FieldTable::new(LINE, &[]);

static CAP: FieldTable<U64> = FieldTable::new(
    LINE,
    &[
        field("Controller Ready With Media Support (CRWMS)", 59, 59).words(SUPPORTED),
        field("Controller Ready Independent of Media Support (CRIMS)", 60, 60).words(SUPPORTED),
        field("Memory Page Size Maximum (MPSMAX)", 55, 52).scaled(|power| 4096 << power).unit(" bytes"),
        field("Memory Page Size Minimum (MPSMIN)", 51, 48).scaled(|power| 4096 << power).unit(" bytes"),
        field("Command Sets Supported: NVM command set", 37, 37).words(SUPPORTED),
        field("Command Sets Supported: one or more I/O Command Sets", 43, 43).words(SUPPORTED),
        field("NVM Subsystem Reset Supported (NSSRS)", 36, 36).words(YES),
        field("Timeout (TO)", 31, 24).scaled(|units| units * 500).unit(" ms"),
        field("Weighted Round Robin with Urgent Priority Class (AMS)", 17, 17).words(SUPPORTED),
        field("Contiguous Queues Required (CQR)", 16, 16).words(YES),
        field("Maximum Queue Entries Supported (MQES)", 15, 0).scaled(|last| last + 1),
    ],
);

static VERSION: FieldTable<U64> = FieldTable::new(LINE, &[field("NVMe specification", 31, 0).shown(version)]);

fn version(value: &U64) -> String {
    Version(u32::try_from(value.get() & 0xffff_ffff).unwrap_or_default()).to_string()
}

static CC: FieldTable<U64> = FieldTable::new(
    LINE,
    &[
        field("I/O Completion Queue Entry Size (IOCQES)", 23, 20).scaled(|power| 1 << power).unit(" bytes"),
        field("I/O Submission Queue Entry Size (IOSQES)", 19, 16).scaled(|power| 1 << power).unit(" bytes"),
        field("Shutdown Notification (SHN)", 15, 14).words(&[
            "No notification; no effect",
            "Normal shutdown notification",
            "Abrupt shutdown notification",
        ]),
        field("Arbitration Mechanism Selected (AMS)", 13, 11).words(&[
            "Round Robin",
            "Weighted Round Robin with Urgent Priority Class",
            "Reserved",
            "Reserved",
            "Reserved",
            "Reserved",
            "Reserved",
            "Vendor Specific",
        ]),
        field("Memory Page Size (MPS)", 10, 7).scaled(|power| 4096 << power).unit(" bytes"),
        field("I/O Command Set Selected (CSS)", 6, 4).words(&[
            "NVM Command Set",
            "Reserved",
            "Reserved",
            "Reserved",
            "Reserved",
            "Reserved",
            "All supported I/O Command Sets",
            "Admin Command Set only",
        ]),
        field("Enable (EN)", 0, 0).words(YES),
    ],
);

static CSTS: FieldTable<U64> = FieldTable::new(
    LINE,
    &[
        field("Processing Paused (PP)", 5, 5).words(YES),
        field("NVM Subsystem Reset Occurred (NSSRO)", 4, 4).words(YES),
        field("Shutdown Status (SHST)", 3, 2).words(&[
            "Normal operation (no shutdown has been requested)",
            "Shutdown processing occurring",
            "Shutdown processing complete",
        ]),
        field("Controller Fatal Status (CFS)", 1, 1).words(&["False", "True"]),
        field("Ready (RDY)", 0, 0).words(YES),
    ],
);

static NSSR: FieldTable<U64> = FieldTable::new(LINE, &[field("NVM Subsystem Reset Control (NSSRC)", 31, 0)]);

static CRTO: FieldTable<U64> = FieldTable::new(
    LINE,
    &[
        field("Controller Ready Independent of Media Timeout (CRIMT)", 31, 16).scaled(|units| units * 500).unit(" ms"),
        field("Controller Ready With Media Timeout (CRWMT)", 15, 0).scaled(|units| units * 500).unit(" ms"),
    ],
);
