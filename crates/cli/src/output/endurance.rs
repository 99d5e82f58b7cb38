//! The view of the Endurance Group Information log (`endurance-log`).

use ebof_nvme::log::EnduranceGroupInformation;

use super::structure::{FieldTable, LineFormat, StructureView, table};

/// The Endurance Group Information log of a group.
pub(crate) fn endurance_view(
    device: &str,
    group: u16,
    data: Box<EnduranceGroupInformation>,
) -> StructureView<EnduranceGroupInformation> {
    let title = format!("Endurance Group Log for NVME device:{device} Group ID:{group:x}\n");
    StructureView::new(&ENDURANCE, "endurance-log", 1, title, data).with("group_id", group)
}

static ENDURANCE: FieldTable<EnduranceGroupInformation> = table! { LineFormat::wide(24), EnduranceGroupInformation:
    cw as "critical_warning", egfeat as "endurance_group_features", avsp as "avl_spare",
    avspt as "avl_spare_threshold", pused as "percent_used" .unit("%"), did as "domain_identifier",
    ee as "endurance_estimate", dur as "data_units_read", duw as "data_units_written",
    muw as "media_units_written", hrc as "host_read_cmds", hwc as "host_write_cmds",
    mdie as "media_data_integrity_err", neile as "num_err_info_log_entries",
    tegcap as "total_end_grp_cap", uegcap as "unalloc_end_grp_cap",
};
