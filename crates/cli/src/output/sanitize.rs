//! The view of the Sanitize Status log (`sanitize-log`).

use std::fmt::Write as _;

use ebof_nvme::log::SanitizeLog;
use zerocopy::IntoBytes as _;

use super::View;
use super::json::Object;
use super::text::{device_key, hex};

/// The Sanitize Status log.
pub(crate) struct SanitizeView {
    /// The device's name.
    pub(crate) device: String,
    /// The log page.
    pub(crate) data: Box<SanitizeLog>,
}

impl SanitizeView {
    /// The estimates: text, key, seconds.
    fn times(&self) -> [(&'static str, &'static str, u32); 7] {
        let data = &self.data;
        [
            ("Estimated Time For Overwrite", "time_over_write", data.eto.get()),
            ("Estimated Time For Block Erase", "time_block_erase", data.etbe.get()),
            ("Estimated Time For Crypto Erase", "time_crypto_erase", data.etce.get()),
            ("Estimated Time For Overwrite (No-Deallocate)", "time_over_write_no_dealloc", data.etond.get()),
            ("Estimated Time For Block Erase (No-Deallocate)", "time_block_erase_no_dealloc", data.etbend.get()),
            ("Estimated Time For Crypto Erase (No-Deallocate)", "time_crypto_erase_no_dealloc", data.etcend.get()),
            ("Estimated Time For Post-Verification Deallocation", "time_post_verification_dealloc", data.etpvds.get()),
        ]
    }
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

fn state(bits: u8) -> String {
    let name = STATES.get(usize::from(bits)).copied().unwrap_or("reserved");
    format!("({bits}) {name}")
}

impl View for SanitizeView {
    fn text(&self, verbose: bool) -> String {
        let data = &self.data;
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _infallible = writeln!(text, "{name:<50}: {value}");
        };
        let percent = data.percent().map(|percent| format!(" ({percent}%)")).unwrap_or_default();
        line("Sanitize Progress (SPROG)", format!("{}{percent}", data.sprog));
        line("Sanitize Status (SSTAT)", hex(data.sstat.get()));
        if verbose {
            line("  [2:0] Sanitize Operation Status", data.state().name().to_owned());
            line("  [7:3] Overwrite Passes Completed", data.passes().to_string());
            line("  [8:8] Global Data Erased", u8::from(data.global_data_erased()).to_string());
        }
        line("Sanitize Command Dword 10 Information (SCDW10)", hex(data.scdw10.get()));
        for (name, _, seconds) in self.times() {
            let unknown = seconds == SanitizeLog::UNKNOWN_SECONDS;
            line(name, if unknown { "No time period reported".to_owned() } else { format!("{seconds} s") });
        }
        line("Sanitize State Information (SSI)", hex(data.ssi));
        if verbose {
            line("  [3:0] Sanitize State", state(data.ssi & 0x0f));
            line("  [7:4] Failure State", state(data.ssi >> 4));
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let data = &self.data;
        let status = Object::new()
            .with("media_verification_canceled", u8::from(data.sstat.get() & 1 << 9 != 0))
            .with("global_erased", u8::from(data.global_data_erased()))
            .with("no_cmplted_passes", data.passes())
            .with("status", format!("({}) {}", data.sstat.get() & 7, data.state().name()));
        let object =
            Object::new().with("sprog", data.sprog.get()).with("sstat", status).with("cdw10_info", data.scdw10.get());
        let object = self.times().into_iter().fold(object, |object, (_, key, seconds)| object.with(key, seconds));
        let states =
            Object::new().with("sanitize_state", state(data.ssi & 0x0f)).with("failure_state", state(data.ssi >> 4));
        let object = object.with("sanitize_state_information", states);
        Object::document("sanitize-log", 1)
            .with("device", self.device.as_str())
            .with("progress", data.percent())
            // nvme-cli's place, and one that has the same name for each device.
            .with(device_key(&self.device), object.clone())
            .extend(object)
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}
