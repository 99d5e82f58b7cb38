//! The view of a controller's properties (`show-regs`).

use std::fmt::Write as _;

use ebof_nvme::property::{Cap, Cc, Csts, Version, offset};

use super::View;
use super::json::Object;
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
                for (name, meaning) in explain(symbol, *value) {
                    let _infallible = writeln!(text, "\t{name:<58}: {meaning}");
                }
                text.push('\n');
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
            let explained = explain(symbol, value).into_iter();
            let explained = explained
                .fold(Object::new().with("value", value), |object, (name, meaning)| object.with(name, meaning));
            object.with(key, explained)
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
    fn known(&self) -> Option<(&'static str, &'static str)> {
        let known = PROPERTIES.iter().find(|(offset, ..)| *offset == self.offset);
        known.map(|(_, symbol, _, name)| (*symbol, *name))
    }
}

impl View for PropertyView {
    fn text(&self, verbose: bool) -> String {
        let (symbol, name) = self.known().unwrap_or(("", "Unknown"));
        let word = if self.verb == "get-property" { "property" } else { self.verb };
        let mut text = format!("{word}: {:#04x} ({name}), value: {:x}\n", self.offset, self.value);
        if verbose && !symbol.is_empty() {
            for (name, meaning) in explain(symbol, self.value) {
                let _infallible = writeln!(text, "\t{name:<58}: {meaning}");
            }
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let known = self.known();
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
            for (name, meaning) in explain(symbol, value).into_iter().filter(|_| verbose) {
                let _infallible = writeln!(text, "\t{name:<58}: {meaning}");
            }
        }
        text
    }

    fn json(&self, verbose: bool) -> Object {
        self.values.iter().fold(Object::document("get-reg", 1), |object, &(offset, symbol, value)| {
            let named = Object::new().with("name", symbol).with("value", value);
            let fields = explain(symbol, value).into_iter().filter(|_| verbose);
            let named = fields.fold(named, |object, (name, meaning)| object.with(name, meaning));
            object.with(format!("register: {offset:#04x}"), vec![named])
        })
    }
}

/// The fields of a property as text.
fn explain(symbol: &str, value: u64) -> Vec<(&'static str, String)> {
    let low = u32::try_from(value & 0xffff_ffff).unwrap_or_default();
    match symbol {
        "cap" => explain_cap(Cap(value)),
        "version" | "vs" => vec![("NVMe specification", Version(low).to_string())],
        "cc" => explain_cc(Cc(low)),
        "csts" => explain_csts(Csts(low)),
        "nssr" => vec![("NVM Subsystem Reset Control (NSSRC)", low.to_string())],
        "crto" => {
            let media = low & 0xffff;
            let independent = low >> 16;
            vec![
                ("Controller Ready Independent of Media Timeout (CRIMT)", format!("{} ms", independent * 500)),
                ("Controller Ready With Media Timeout (CRWMT)", format!("{} ms", media * 500)),
            ]
        }
        _ => Vec::new(),
    }
}

fn yes(set: bool) -> String {
    if set { "Yes" } else { "No" }.to_owned()
}

fn explain_cap(cap: Cap) -> Vec<(&'static str, String)> {
    let bit = |bit: u32| cap.0 >> bit & 1 != 0;
    let supported = |set: bool| if set { "Supported" } else { "Not Supported" }.to_owned();
    vec![
        ("Controller Ready With Media Support (CRWMS)", supported(bit(59))),
        ("Controller Ready Independent of Media Support (CRIMS)", supported(bit(60))),
        ("Memory Page Size Maximum (MPSMAX)", format!("{} bytes", 4096_u64 << (cap.0 >> 52 & 0xf))),
        ("Memory Page Size Minimum (MPSMIN)", format!("{} bytes", cap.page_min_bytes())),
        ("Command Sets Supported: NVM command set", supported(bit(37))),
        ("Command Sets Supported: one or more I/O Command Sets", supported(bit(43))),
        ("NVM Subsystem Reset Supported (NSSRS)", yes(bit(36))),
        ("Timeout (TO)", format!("{} ms", cap.timeout_ms())),
        ("Weighted Round Robin with Urgent Priority Class (AMS)", supported(bit(17))),
        ("Contiguous Queues Required (CQR)", yes(bit(16))),
        ("Maximum Queue Entries Supported (MQES)", cap.mqes().to_string()),
    ]
}

fn explain_cc(cc: Cc) -> Vec<(&'static str, String)> {
    let arbitration = match cc.arbitration() {
        0 => "Round Robin",
        1 => "Weighted Round Robin with Urgent Priority Class",
        7 => "Vendor Specific",
        _ => "Reserved",
    };
    let command_set = match cc.command_set() {
        0 => "NVM Command Set",
        6 => "All supported I/O Command Sets",
        7 => "Admin Command Set only",
        _ => "Reserved",
    };
    let shutdown = match cc.shutdown() {
        0 => "No notification; no effect",
        1 => "Normal shutdown notification",
        2 => "Abrupt shutdown notification",
        _ => "Reserved",
    };
    vec![
        ("I/O Completion Queue Entry Size (IOCQES)", format!("{} bytes", 1_u32 << cc.iocqes())),
        ("I/O Submission Queue Entry Size (IOSQES)", format!("{} bytes", 1_u32 << cc.iosqes())),
        ("Shutdown Notification (SHN)", shutdown.to_owned()),
        ("Arbitration Mechanism Selected (AMS)", arbitration.to_owned()),
        ("Memory Page Size (MPS)", format!("{} bytes", 4096_u64 << cc.page_shift())),
        ("I/O Command Set Selected (CSS)", command_set.to_owned()),
        ("Enable (EN)", yes(cc.enabled())),
    ]
}

fn explain_csts(csts: Csts) -> Vec<(&'static str, String)> {
    let shutdown = match csts.0 >> 2 & 3 {
        0 => "Normal operation (no shutdown has been requested)",
        1 => "Shutdown processing occurring",
        2 => "Shutdown processing complete",
        _ => "Reserved",
    };
    vec![
        ("Processing Paused (PP)", yes(csts.0 >> 5 & 1 != 0)),
        ("NVM Subsystem Reset Occurred (NSSRO)", yes(csts.0 & Csts::SUBSYSTEM_RESET != 0)),
        ("Shutdown Status (SHST)", shutdown.to_owned()),
        ("Controller Fatal Status (CFS)", if csts.fatal() { "True" } else { "False" }.to_owned()),
        ("Ready (RDY)", yes(csts.ready())),
    ]
}
