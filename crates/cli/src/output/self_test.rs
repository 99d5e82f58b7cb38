//! The view of the Device Self-test log (`self-test-log`).

use ebof_nvme::log::{SelfTestEntry, SelfTestLog, SelfTestResult};

use super::structure::{FieldTable, LineFormat, StructureView, table};
use super::text::hex;

/// The Device Self-test log, of which the first `results` are shown.
pub(crate) fn self_test_view(device: &str, data: Box<SelfTestLog>, results: usize) -> StructureView<SelfTestLog> {
    let entries = || data.results.iter().take(results);
    let lines = |verbose| -> String {
        let text = |(index, entry)| format!("Self Test Result[{index}]:\n{}", RESULT.text(entry, verbose));
        entries().enumerate().map(text).collect()
    };
    let (plain, verbose) = (lines(false), lines(true));
    let list: Vec<_> = entries().map(|entry| RESULT.json(entry, false)).collect();
    let title = format!("Device Self Test Log for NVME device:{device}\n");
    let view = StructureView::new(&SELF_TEST, "self-test-log", 1, title, data);
    view.key("List of Valid Reports", list).lines(&plain, &verbose)
}

static SELF_TEST: FieldTable<SelfTestLog> = table! { LineFormat::wide(19), SelfTestLog:
    cdsto as "Current operation" .key("Current Device Self-Test Operation").hex(),
    cdstc as "Current Completion" .only_text().bits(6, 0).unit("%"),
    cdstc as "Current Device Self-Test Completion" .only_json(),
};

const RESULT_LINE: LineFormat = LineFormat { before: "  ", width: 28, between: " : " };

static RESULT: FieldTable<SelfTestEntry> = table! { RESULT_LINE, SelfTestEntry:
    dsts as "Operation Result"
        .key("Self test result")
        .bits(3, 0)
        .hex()
        .beside(|entry| entry.result().name().map(str::to_owned)),
    dsts as "Self Test Code"
        .only_if(is_used)
        .key("Self test code")
        .bits(7, 4)
        .shown(|entry| format!("{:x}", entry.code().0))
        .number()
        .beside(|entry| entry.code().name().map(str::to_owned)),
    snum as "Segment Number"
        .only_text()
        .hex()
        .only_if(|entry| entry.result() == SelfTestResult::FAILED_SEGMENT),
    snum as "Segment number" .only_if(is_used).only_json(),
    vdinfo as "Valid Diagnostic Information" .only_if(is_used).hex(),
    poh as "Power on hours (POH)" .only_if(is_used).key("Power on hours").hex(),
    nsid as "Namespace Identifier" .hex().only_if(|entry| is_used(entry) && entry.failing_nsid().is_some()),
    flba as "Failing LBA" .hex().only_if(|entry| is_used(entry) && entry.failing_lba().is_some()),
    stype as "Status Code Type" .bits(2, 0).hex().only_if(has_status),
    scode as "Status Code"
        .hex()
        .only_if(has_status)
        .beside(|entry| Some(entry.failing_status()?.name()?.to_owned())),
    vs as "Vendor Specific" .only_if(is_used).shown(vendor_specific).number(),
};

fn is_used(entry: &SelfTestEntry) -> bool {
    entry.result() != SelfTestResult::UNUSED
}

fn has_status(entry: &SelfTestEntry) -> bool {
    is_used(entry) && entry.failing_status().is_some()
}

fn vendor_specific(entry: &SelfTestEntry) -> String {
    let [low, high] = entry.vs;
    format!("{} {}", hex(low), hex(high))
}
