//! The view of the Cross-Controller Reset log.

use ebof_nvme::log::{
    CrossControllerResetEntry, CrossControllerResetHeader, CrossControllerResetState, ccrf,
    read_cross_controller_reset_log,
};
use zerocopy::FromBytes as _;

use super::View;
use super::json::Object;
use super::structure::{FieldTable, LineFormat, table};

/// The log.
#[derive(Debug)]
pub(crate) struct CrossControllerResetView {
    device: String,
    data: Vec<u8>,
}

static HEADER: FieldTable<CrossControllerResetHeader> = table! { LineFormat::wide(6), CrossControllerResetHeader:
    ne,
};

static ENTRY: FieldTable<CrossControllerResetEntry> = table! { LineFormat::wide(6), CrossControllerResetEntry:
    icid.hex(), ciu, acid.hex(),
    ccrs.below(|entry| format!("  {}", state(entry.state()))),
    ccrf.hex().below(|entry| format!("  {}", flags(entry.ccrf))),
};

const fn state(state: CrossControllerResetState) -> &'static str {
    match state {
        CrossControllerResetState::InProgress => "in progress: commands of the controller may still be executed",
        CrossControllerResetState::Successful => "successful: none of its commands is executed any more",
        CrossControllerResetState::Failed => "failed: commands of the controller may still be executed",
        CrossControllerResetState::Reserved(_) => "reserved",
    }
}

const fn flags(flags: u8) -> &'static str {
    match (flags & ccrf::VALIDATED != 0, flags & ccrf::INITIATED != 0) {
        (true, true) => "validated, reset initiated",
        (true, false) => "validated, reset not initiated",
        (false, true) => "not validated, reset initiated",
        (false, false) => "not validated, reset not initiated",
    }
}

impl CrossControllerResetView {
    /// Of a log page of any content.
    pub(crate) fn new(device: &str, data: Vec<u8>) -> Self {
        Self { device: device.to_owned(), data }
    }

    fn header(&self) -> CrossControllerResetHeader {
        CrossControllerResetHeader::read_from_prefix(&self.data).map(|(header, _)| header).unwrap_or_default()
    }

    fn entries(&self) -> &[CrossControllerResetEntry] {
        read_cross_controller_reset_log(&self.data).unwrap_or_default()
    }
}

impl View for CrossControllerResetView {
    fn text(&self, verbose: bool) -> String {
        let mut text = format!("Cross-Controller Reset Log for device: {}\n", self.device);
        text += &HEADER.text(&self.header(), verbose);
        for (at, entry) in self.entries().iter().enumerate() {
            text += &format!("Entry {at}\n{}", ENTRY.text(entry, verbose));
        }
        text
    }

    fn json(&self, verbose: bool) -> Object {
        let entry = |entry: &CrossControllerResetEntry| {
            let state = entry.state().name();
            ENTRY.json(entry, verbose).with("state", state)
        };
        Object::document("cross-ctrl-reset-log", 1)
            .with("device", self.device.as_str())
            .extend(HEADER.json(&self.header(), verbose))
            .with("entries", self.entries().iter().map(entry).collect::<Vec<_>>())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(&self.data)
    }
}
