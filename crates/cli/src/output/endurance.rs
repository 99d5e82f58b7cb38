//! The view of the Endurance Group Information log (`endurance-log`).

use std::fmt::Write as _;

use ebof_nvme::log::EnduranceGroupInformation;
use zerocopy::IntoBytes as _;

use super::View;
use super::json::Object;

/// The Endurance Group Information log.
pub(crate) struct EnduranceView {
    /// The device's name.
    pub(crate) device: String,
    /// The endurance group.
    pub(crate) group: u16,
    /// The log page.
    pub(crate) data: Box<EnduranceGroupInformation>,
}

impl EnduranceView {
    /// nvme-cli's names, and the values.
    fn values(&self) -> [(&'static str, u128); 16] {
        let data = &self.data;
        [
            ("critical_warning", data.cw.into()),
            ("endurance_group_features", data.egfeat.into()),
            ("avl_spare", data.avsp.into()),
            ("avl_spare_threshold", data.avspt.into()),
            ("percent_used", data.pused.into()),
            ("domain_identifier", data.did.get().into()),
            ("endurance_estimate", data.ee.get()),
            ("data_units_read", data.dur.get()),
            ("data_units_written", data.duw.get()),
            ("media_units_written", data.muw.get()),
            ("host_read_cmds", data.hrc.get()),
            ("host_write_cmds", data.hwc.get()),
            ("media_data_integrity_err", data.mdie.get()),
            ("num_err_info_log_entries", data.neile.get()),
            ("total_end_grp_cap", data.tegcap.get()),
            ("unalloc_end_grp_cap", data.uegcap.get()),
        ]
    }
}

impl View for EnduranceView {
    fn text(&self, _verbose: bool) -> String {
        let mut text = format!("Endurance Group Log for NVME device:{} Group ID:{:x}\n", self.device, self.group);
        for (name, value) in self.values() {
            let unit = if name == "percent_used" { "%" } else { "" };
            let _infallible = writeln!(text, "{name:<24}: {value}{unit}");
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let object = Object::document("endurance-log", 1).with("group_id", self.group);
        self.values().into_iter().fold(object, |object, (name, value)| object.with(name, value))
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}
