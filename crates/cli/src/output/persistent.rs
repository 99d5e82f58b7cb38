//! The view of the Persistent Event Log (`persistent-event-log`): its header and its events,
//! decoded if their type is known.

use ebof_nvme::feature::Fid;
use ebof_nvme::identify::Text;
use ebof_nvme::log::persistent_event::{
    ChangeNamespaceEvent, ControllerResetInformation, FirmwareCommitEvent, FormatCompletionEvent, FormatStartEvent,
    HardwareErrorEvent, SanitizeCompletionEvent, SanitizeStartEvent, SetFeatureEvent, ThermalExcursionEvent,
    TimestampChangeEvent, hardware_error,
};
use ebof_nvme::log::{EventKind, PersistentEvent, PersistentEventHeader, PersistentEvents, SmartHealth};
use zerocopy::FromBytes;

use super::View;
use super::fields::Fields;
use super::json::Object;
use super::text::digits;

/// The Persistent Event Log.
pub(crate) struct PersistentView {
    /// The device's name.
    pub(crate) device: String,
    /// The log as far as it was read.
    pub(crate) data: Vec<u8>,
}

/// The width of names in text.
const NAME_WIDTH: usize = 28;

impl View for PersistentView {
    fn text(&self, verbose: bool) -> String {
        let mut text = format!("Persistent Event Log for device: {}\n", self.device);
        let Some((header, events)) = PersistentEvents::new(&self.data) else {
            return text + "the log was not read as far as the end of its header: 512 bytes\n";
        };
        text += &header_fields(&header).to_text(NAME_WIDTH, verbose);
        for kind in header.supported() {
            text += &format!("  supports {:#04x} {}\n", kind.0, kind.name().unwrap_or("unknown"));
        }
        for (index, event) in events.enumerate() {
            text += &format!("\nEvent {index}: {}\n", event.header.kind().name().unwrap_or("unknown"));
            text += &event_fields(&event).to_text(NAME_WIDTH, verbose);
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let object = Object::document("persistent-event-log", 1);
        let Some((header, events)) = PersistentEvents::new(&self.data) else {
            return object.with("list_of_event_entries", Vec::<Object>::new());
        };
        let supported = header.supported().map(|kind| Object::new().with("type", kind.0).with("name", kind.name()));
        let supported = supported.collect::<Vec<_>>();
        let event = |(index, event): (usize, PersistentEvent<'_>)| {
            Object::new().with("event_number", index as u64).extend(event_fields(&event).to_json())
        };
        let events = events.enumerate().map(event).collect::<Vec<_>>();
        let object = object.extend(header_fields(&header).to_json());
        object.with("supported_events", supported).with("list_of_event_entries", events)
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(&self.data)
    }
}

fn header_fields(header: &PersistentEventHeader) -> Fields {
    let mut fields = Fields::default();
    fields.dec("log_id", header.lpid).dec("total_num_of_events", header.tne.get());
    fields
        .dec("total_log_len", header.tll.get())
        .dec("log_revision", header.lrev)
        .dec("log_header_len", header.lhl.get());
    fields.dec("timestamp", header.tstmp.get()).detail(format!("  {} ms", header.milliseconds()));
    fields.dec("power_on_hours", header.poh.get()).dec("power_cycle_count", header.pcc.get());
    fields.dec("pci_vid", header.vid.get()).dec("pci_ssvid", header.ssvid.get());
    fields.text("sn", header.serial_number().to_string()).text("mn", header.model_number().to_string());
    fields.text("subnqn", header.subsystem_nqn().to_string());
    fields.dec("gen_number", header.gnum.get()).dec("rci", header.rci.get());
    fields
}

/// The fields of an event, those of its header first.
fn event_fields(event: &PersistentEvent<'_>) -> Fields {
    let header = &event.header;
    let mut fields = Fields::default();
    fields.text("event_type", format!("{}({:#x})", header.kind().name().unwrap_or("Unknown"), header.etype));
    fields.dec("event_type_rev", header.etrev).dec("event_header_len", header.ehl);
    fields.dec("event_header_additional_info", header.ehai).dec("ctrl_id", header.cntlid.get());
    fields.dec("event_time_stamp", header.etstmp.get()).detail(format!("  {} ms", header.milliseconds()));
    fields.dec("port_id", header.pelpid.get()).dec("vu_info_len", header.vsil.get()).dec("event_len", header.el.get());
    if !event.vendor.is_empty() {
        fields.text("vs_info", digits(event.vendor));
    }
    if !known(header.kind(), event.data, &mut fields) {
        fields.text("data", digits(event.data));
    }
    fields
}

/// Adds the data of a known kind; `false` if the kind or its length is unknown.
fn known(kind: EventKind, data: &[u8], fields: &mut Fields) -> bool {
    match kind {
        EventKind::SMART_SNAPSHOT => with(data, |event| smart(event, fields)),
        EventKind::FIRMWARE_COMMIT => with(data, |event| firmware_commit(event, fields)),
        EventKind::TIMESTAMP_CHANGE => with(data, |event: &TimestampChangeEvent| {
            fields.dec("prev_ts", event.prvts.get()).dec("ml_secs_since_reset", event.mssr.get());
        }),
        EventKind::POWER_ON_OR_RESET => power_on(data, fields),
        EventKind::HARDWARE_ERROR => with(data, |event: &HardwareErrorEvent| {
            let code = event.nsheec.get();
            fields.dec("nss_hw_err_code", code).text("nss_hw_err", hardware_error::name(code).unwrap_or("unknown"));
            fields.text("info", digits(data.get(4..).unwrap_or_default()));
        }),
        EventKind::CHANGE_NAMESPACE => with(data, |event| change_namespace(event, fields)),
        EventKind::FORMAT_START => with(data, |event: &FormatStartEvent| {
            fields.dec("nsid", event.nsid.get()).dec("fna", event.fna);
            fields.dec("format_nvm_cdw10", event.fnvmcdw10.get());
        }),
        EventKind::FORMAT_COMPLETION => with(data, |event: &FormatCompletionEvent| {
            fields.dec("nsid", event.nsid.get()).dec("smallest_fpi", event.sfpi);
            fields.dec("format_nvm_status", event.fnvms).dec("compln_info", event.cinfo.get());
            fields.dec("status_field", event.sf.get());
        }),
        EventKind::SANITIZE_START => with(data, |event: &SanitizeStartEvent| {
            fields.dec("SANICAP", event.sanicap.get());
            fields.dec("sani_cdw10", event.scdw10.get()).dec("sani_cdw11", event.scdw11.get());
        }),
        EventKind::SANITIZE_COMPLETION => with(data, |event: &SanitizeCompletionEvent| {
            fields.dec("sani_prog", event.sprog.get()).dec("sani_status", event.sstat.get());
            fields.dec("cmpln_info", event.cinfo.get());
        }),
        EventKind::SET_FEATURE => set_feature(data, fields),
        EventKind::THERMAL_EXCURSION => with(data, |event: &ThermalExcursionEvent| {
            fields.dec("over_temp", event.otemp).dec("threshold", event.thresh);
        }),
        _ => false,
    }
}

fn with<T: FromBytes>(data: &[u8], mut add: impl FnMut(&T)) -> bool {
    let read = T::read_from_prefix(data);
    read.is_ok_and(|(event, _)| {
        add(&event);
        true
    })
}

fn smart(event: &SmartHealth, fields: &mut Fields) {
    fields.dec("critical_warning", event.cw).dec("temperature", event.ctemp.get());
    fields.dec("avail_spare", event.avsp).dec("spare_thresh", event.avspt).dec("percent_used", event.pused);
    fields.dec("endurance_grp_critical_warning_summary", event.egcws);
    fields.dec("data_units_read", event.dur.get()).dec("data_units_written", event.duw.get());
    fields.dec("host_read_commands", event.hrc.get()).dec("host_write_commands", event.hwc.get());
    fields.dec("controller_busy_time", event.cbt.get()).dec("power_cycles", event.pwrc.get());
    fields.dec("power_on_hours", event.poh.get()).dec("unsafe_shutdowns", event.upl.get());
    fields.dec("media_errors", event.mdie.get()).dec("num_err_log_entries", event.neile.get());
    fields.dec("warning_temp_time", event.wctt.get()).dec("critical_comp_time", event.cctt.get());
}

fn firmware_commit(event: &FirmwareCommitEvent, fields: &mut Fields) {
    fields.text("old_fw_rev", event.old_revision().to_string());
    fields.text("new_fw_rev", event.new_revision().to_string());
    fields.dec("fw_commit_action", event.fwca).dec("fw_slot", event.fwslot);
    fields.dec("sct_fw", event.sct).dec("sc_fw", event.sc).detail(format!("  {}", event.status()));
    fields.dec("vu_assign_fw_commit_rc", event.vafcrc.get());
}

fn change_namespace(event: &ChangeNamespaceEvent, fields: &mut Fields) {
    fields.dec("nsmgt_cdw10", event.nsmcdw10.get()).dec("nsze", event.nsze.get()).dec("nscap", event.ncap.get());
    fields.dec("flbas", event.flbas).dec("dps", event.dps).dec("nmic", event.nmic);
    fields.dec("ana_grp_id", event.anagrpid.get()).dec("nvmset_id", event.nvmsetid.get());
    fields.dec("endgid", event.endgid.get()).dec("nsid", event.nsid.get());
}

fn power_on(data: &[u8], fields: &mut Fields) -> bool {
    let Some((revision, rest)) = data.split_at_checked(8) else { return false };
    fields.text("fw_rev", Text::new(revision).to_string());
    let controllers = rest.chunks_exact(size_of::<ControllerResetInformation>());
    let controllers = controllers.filter_map(|one| ControllerResetInformation::read_from_bytes(one).ok());
    let mut shown = Vec::new();
    let mut objects = Vec::new();
    for one in controllers {
        shown.push(format!("{} after {} ms", one.cntlid, one.pwronms));
        objects.push(
            Object::new()
                .with("ctrl_id", one.cntlid.get())
                .with("fw_act", one.fwact)
                .with("op_in_prog", one.opip)
                .with("ctrl_power_cycle", one.cpc.get())
                .with("power_on_ml_secs", one.pwronms.get())
                .with("ctrl_time_stamp", one.ctstmp.get()),
        );
    }
    fields.push("controllers", shown.join(", "), objects);
    true
}

fn set_feature(data: &[u8], fields: &mut Fields) -> bool {
    let Ok((event, rest)) = SetFeatureEvent::read_from_prefix(data) else { return false };
    let (command, rest) = rest.split_at(rest.len().min(event.command_dwords() * 4));
    let dword = |index: usize| {
        let bytes = command.get(index * 4..).and_then(|bytes| bytes.first_chunk::<4>());
        bytes.map(|bytes| u32::from_le_bytes(*bytes))
    };
    let Some([fid, ..]) = dword(0).map(u32::to_le_bytes) else { return false };
    fields.hex("feature", fid).text("name", Fid(fid).name().unwrap_or("unknown"));
    fields.hex("value", dword(1).unwrap_or_default());
    let (sent, result) = rest.split_at(rest.len().min(usize::from(event.data_bytes())));
    if !sent.is_empty() {
        fields.text("data", digits(sent));
    }
    if let (true, Some(bytes)) = (event.has_completion(), result.first_chunk::<4>()) {
        fields.hex("result", u32::from_le_bytes(*bytes));
    }
    true
}
