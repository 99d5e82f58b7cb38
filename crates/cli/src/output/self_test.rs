//! The view of the Device Self-test log (`self-test-log`).

use std::fmt::Write as _;

use ebof_nvme::log::{SelfTestEntry, SelfTestLog, SelfTestResult};
use zerocopy::IntoBytes as _;

use super::View;
use super::json::Object;
use super::text::hex;

/// The Device Self-test log.
pub(crate) struct SelfTestView {
    /// The device's name.
    pub(crate) device: String,
    /// The log page.
    pub(crate) data: Box<SelfTestLog>,
    /// The number of results that are shown.
    pub(crate) results: usize,
}

impl View for SelfTestView {
    fn text(&self, verbose: bool) -> String {
        let mut text = format!("Device Self Test Log for NVME device:{}\n", self.device);
        let _infallible = writeln!(text, "Current operation  : {}", hex(self.data.cdsto));
        let _infallible = writeln!(text, "Current Completion : {}%", self.data.cdstc & 0x7f);
        for (index, entry) in self.entries().enumerate() {
            let _infallible = writeln!(text, "Self Test Result[{index}]:");
            text += &entry_text(entry, verbose);
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("self-test-log", 1)
            .with("Current Device Self-Test Operation", self.data.cdsto)
            .with("Current Device Self-Test Completion", self.data.cdstc)
            .with("List of Valid Reports", self.entries().map(entry_json).collect::<Vec<_>>())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

impl SelfTestView {
    fn entries(&self) -> impl Iterator<Item = &SelfTestEntry> {
        self.data.results.iter().take(self.results)
    }
}

fn entry_text(entry: &SelfTestEntry, verbose: bool) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String, words: Option<&str>| {
        let words = words.filter(|_| verbose).map(|words| format!(" {words}")).unwrap_or_default();
        let _infallible = writeln!(text, "  {name:<28} : {value}{words}");
    };
    let result = entry.result();
    line("Operation Result", hex(result.0), result.name());
    if result == SelfTestResult::UNUSED {
        return text;
    }
    line("Self Test Code", format!("{:x}", entry.code().0), entry.code().name());
    if result == SelfTestResult::FAILED_SEGMENT {
        line("Segment Number", hex(entry.snum), None);
    }
    line("Valid Diagnostic Information", hex(entry.vdinfo), None);
    line("Power on hours (POH)", hex(entry.poh.get()), None);
    if let Some(nsid) = entry.failing_nsid() {
        line("Namespace Identifier", hex(nsid.0), None);
    }
    if let Some(lba) = entry.failing_lba() {
        line("Failing LBA", hex(lba), None);
    }
    if let Some(status) = entry.failing_status() {
        line("Status Code Type", hex(status.code_type()), None);
        line("Status Code", hex(status.code()), status.name());
    }
    let [low, high] = entry.vs;
    line("Vendor Specific", format!("{} {}", hex(low), hex(high)), None);
    text
}

fn entry_json(entry: &SelfTestEntry) -> Object {
    let mut object = Object::new().with("Self test result", entry.result().0);
    if entry.result() == SelfTestResult::UNUSED {
        return object;
    }
    object.push("Self test code", entry.code().0);
    object.push("Segment number", entry.snum);
    object.push("Valid Diagnostic Information", entry.vdinfo);
    object.push("Power on hours", entry.poh.get());
    if let Some(nsid) = entry.failing_nsid() {
        object.push("Namespace Identifier", nsid.0);
    }
    if let Some(lba) = entry.failing_lba() {
        object.push("Failing LBA", lba);
    }
    if let Some(status) = entry.failing_status() {
        object.push("Status Code Type", status.code_type());
        object.push("Status Code", status.code());
    }
    object.with("Vendor Specific", u16::from_le_bytes(entry.vs))
}
