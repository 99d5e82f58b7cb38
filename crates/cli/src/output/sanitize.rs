//! The view of the Sanitize Status log (`sanitize-log`).

use ebof_nvme::log::SanitizeLog;

use super::json::{Json, Object};
use super::structure::{FieldTable, LineFormat, StructureView, table};
use super::text::device_key;

/// The Sanitize Status log.
pub(crate) fn sanitize_view(device: &str, data: Box<SanitizeLog>) -> StructureView<SanitizeLog> {
    let (percent, named) = (data.percent(), SANITIZE.json(&data, false));
    let view = StructureView::new(&SANITIZE, "sanitize-log", 1, "", data).with("device", device);
    // nvme-cli's place, and one that has the same name for each device.
    view.with("progress", percent).with(device_key(device), named)
}

static SANITIZE: FieldTable<SanitizeLog> = table! { LineFormat::wide(50), SanitizeLog:
    sprog as "Sanitize Progress (SPROG)" .key("sprog").shown(progress).number(),
    sstat as "Sanitize Status (SSTAT)" .key("sstat").hex().json(|data, _| status(data)),
    sstat as "  [2:0] Sanitize Operation Status" .detail().shown(|data| data.state().name().to_owned()),
    sstat as "  [7:3] Overwrite Passes Completed" .detail().bits(7, 3),
    sstat as "  [8:8] Global Data Erased" .detail().bits(8, 8),
    scdw10 as "Sanitize Command Dword 10 Information (SCDW10)" .key("cdw10_info").hex(),
    eto as "Estimated Time For Overwrite" .key("time_over_write").written(time),
    etbe as "Estimated Time For Block Erase" .key("time_block_erase").written(time),
    etce as "Estimated Time For Crypto Erase" .key("time_crypto_erase").written(time),
    etond as "Estimated Time For Overwrite (No-Deallocate)" .key("time_over_write_no_dealloc").written(time),
    etbend as "Estimated Time For Block Erase (No-Deallocate)" .key("time_block_erase_no_dealloc").written(time),
    etcend as "Estimated Time For Crypto Erase (No-Deallocate)" .key("time_crypto_erase_no_dealloc").written(time),
    etpvds as "Estimated Time For Post-Verification Deallocation" .key("time_post_verification_dealloc").written(time),
    ssi as "Sanitize State Information (SSI)"
        .key("sanitize_state_information")
        .hex()
        .json(|data, _| states(data)),
    ssi as "  [3:0] Sanitize State" .detail().bits(3, 0).written(state),
    ssi as "  [7:4] Failure State" .detail().bits(7, 4).written(state),
};

fn progress(data: &SanitizeLog) -> String {
    let percent = data.percent().map(|percent| format!(" ({percent}%)")).unwrap_or_default();
    format!("{}{percent}", data.sprog)
}

fn time(seconds: u128) -> String {
    let unknown = seconds == SanitizeLog::UNKNOWN_SECONDS.into();
    if unknown { "No time period reported".to_owned() } else { format!("{seconds} s") }
}

/// The fields of Sanitize Status, as nvme-cli's JSON has them.
fn status(data: &SanitizeLog) -> Json {
    let status = Object::new()
        .with("media_verification_canceled", u8::from(data.sstat.get() & 1 << 9 != 0))
        .with("global_erased", u8::from(data.global_data_erased()))
        .with("no_cmplted_passes", data.passes())
        .with("status", format!("({}) {}", data.sstat.get() & 7, data.state().name()));
    status.into()
}

fn states(data: &SanitizeLog) -> Json {
    let state = |bits: u8| state(bits.into());
    let states = Object::new().with("sanitize_state", state(data.ssi & 0x0f));
    states.with("failure_state", state(data.ssi >> 4)).into()
}

/// Names of the states in SSI.
const STATES: [&str; 7] = [
    "idle",
    "restricted processing",
    "restricted failure",
    "unrestricted processing",
    "unrestricted failure",
    "media verification",
    "post-verification deallocation",
];

fn state(bits: u128) -> String {
    let name = usize::try_from(bits).ok().and_then(|bits| STATES.get(bits)).copied().unwrap_or("reserved");
    format!("({bits}) {name}")
}
