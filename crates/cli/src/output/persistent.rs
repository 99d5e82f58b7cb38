//! The view of the Persistent Event Log (`persistent-event-log`): its header and its events,
//! decoded if their type is known.

use ebof_nvme::feature::Fid;
use ebof_nvme::identify::Text;
use ebof_nvme::log::persistent_event::{
    ChangeNamespaceEvent, ControllerResetInformation, FirmwareCommitEvent, FormatCompletionEvent, FormatStartEvent,
    HardwareErrorEvent, SanitizeCompletionEvent, SanitizeStartEvent, SetFeatureEvent, ThermalExcursionEvent,
    TimestampChangeEvent, hardware_error,
};
use ebof_nvme::log::{
    EventHeader, EventKind, PersistentEvent, PersistentEventHeader as Header, PersistentEvents, SmartHealth,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::View;
use super::health::SMART;
use super::json::{Json, Object};
use super::structure::{FieldTable, LineFormat, table};
use super::text::{digits, hex};

/// The Persistent Event Log.
pub(crate) struct PersistentView {
    /// The device's name.
    pub(crate) device: String,
    /// The log as far as it was read.
    pub(crate) data: Vec<u8>,
}

impl View for PersistentView {
    fn text(&self, verbose: bool) -> String {
        let mut text = format!("Persistent Event Log for device: {}\n", self.device);
        let Some((header, events)) = PersistentEvents::new(&self.data) else {
            return text + "the log was not read as far as the end of its header: 512 bytes\n";
        };
        text += &HEADER.text(&header, verbose);
        for kind in header.supported() {
            text += &format!("  supports {:#04x} {}\n", kind.0, kind.name().unwrap_or("unknown"));
        }
        for (index, event) in events.enumerate() {
            text += &format!("\nEvent {index}: {}\n", event.header.kind().name().unwrap_or("unknown"));
            text += &Fields::from_event(&event, verbose).text;
        }
        text
    }

    fn json(&self, verbose: bool) -> Object {
        let object = Object::document("persistent-event-log", 1);
        let Some((header, events)) = PersistentEvents::new(&self.data) else {
            return object.with("list_of_event_entries", Vec::<Object>::new());
        };
        let supported = header.supported().map(|kind| Object::new().with("type", kind.0).with("name", kind.name()));
        let supported = supported.collect::<Vec<_>>();
        let event = |(index, event): (usize, PersistentEvent<'_>)| {
            Object::new().with("event_number", index as u64).extend(Fields::from_event(&event, verbose).json)
        };
        let events = events.enumerate().map(event).collect::<Vec<_>>();
        let object = object.extend(HEADER.json(&header, verbose));
        object.with("supported_events", supported).with("list_of_event_entries", events)
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(&self.data)
    }
}

const LINE: LineFormat = LineFormat::wide(28);

static HEADER: FieldTable<Header> = table! { LINE, Header:
    lpid as "log_id", tne as "total_num_of_events", tll as "total_log_len", lrev as "log_revision",
    lhl as "log_header_len",
    tstmp as "timestamp" .below(|header| format!("  {} ms", header.milliseconds())),
    poh as "power_on_hours", pcc as "power_cycle_count", vid as "pci_vid", ssvid as "pci_ssvid",
    sn.ascii(), mn.ascii(), subnqn.ascii(), gnum as "gen_number", rci,
};

static EVENT: FieldTable<EventHeader> = table! { LINE, EventHeader:
    etype as "event_type" .shown(event_type), etrev as "event_type_rev", ehl as "event_header_len",
    ehai as "event_header_additional_info", cntlid as "ctrl_id",
    etstmp as "event_time_stamp" .below(|header| format!("  {} ms", header.milliseconds())),
    pelpid as "port_id", vsil as "vu_info_len", el as "event_len",
};

fn event_type(header: &EventHeader) -> String {
    format!("{}({:#x})", header.kind().name().unwrap_or("Unknown"), header.etype)
}

/// The fields of an event, as text and as JSON.
#[derive(Default)]
struct Fields {
    verbose: bool,
    text: String,
    json: Object,
}

impl Fields {
    /// Those of the event's header first.
    fn from_event(event: &PersistentEvent<'_>, verbose: bool) -> Self {
        let mut fields = Self { verbose, ..Self::default() };
        fields.table(&EVENT, &event.header);
        if !event.vendor.is_empty() {
            fields.text("vs_info", digits(event.vendor));
        }
        if !fields.add_known(event.header.kind(), event.data) {
            fields.text("data", digits(event.data));
        }
        fields
    }

    fn table<T: IntoBytes + Immutable>(&mut self, table: &FieldTable<T>, data: &T) {
        self.text += &table.text(data, self.verbose);
        self.json = std::mem::take(&mut self.json).extend(table.json(data, self.verbose));
    }

    fn push(&mut self, name: &str, shown: &str, json: impl Into<Json>) {
        self.text += &LINE.named(name, shown);
        self.json.push(name, json);
    }

    fn text(&mut self, name: &str, value: String) {
        self.push(name, &value.clone(), value);
    }

    fn hex(&mut self, name: &str, value: impl Into<u64>) {
        let value = value.into();
        self.push(name, &hex(value), value);
    }

    /// Adds the data of a known kind; `false` if the kind or its length is unknown.
    fn add_known(&mut self, kind: EventKind, data: &[u8]) -> bool {
        match kind {
            EventKind::SMART_SNAPSHOT => self.smart(data),
            EventKind::FIRMWARE_COMMIT => self.data(&FIRMWARE_COMMIT, data),
            EventKind::TIMESTAMP_CHANGE => self.data(&TIMESTAMP_CHANGE, data),
            EventKind::POWER_ON_OR_RESET => self.power_on(data),
            EventKind::HARDWARE_ERROR => {
                let known = self.data(&HARDWARE_ERROR, data);
                if known {
                    self.text("info", digits(data.get(4..).unwrap_or_default()));
                }
                known
            }
            EventKind::CHANGE_NAMESPACE => self.data(&CHANGE_NAMESPACE, data),
            EventKind::FORMAT_START => self.data(&FORMAT_START, data),
            EventKind::FORMAT_COMPLETION => self.data(&FORMAT_COMPLETION, data),
            EventKind::SANITIZE_START => self.data(&SANITIZE_START, data),
            EventKind::SANITIZE_COMPLETION => self.data(&SANITIZE_COMPLETION, data),
            EventKind::SET_FEATURE => self.set_feature(data),
            EventKind::THERMAL_EXCURSION => self.data(&THERMAL_EXCURSION, data),
            _ => false,
        }
    }

    fn data<T: FromBytes + IntoBytes + Immutable>(&mut self, table: &FieldTable<T>, data: &[u8]) -> bool {
        let read = T::read_from_prefix(data);
        read.is_ok_and(|(event, _)| {
            self.table(table, &event);
            true
        })
    }

    /// The fields of SMART / Health Information as far as nvme-cli shows them here: without sensors
    /// and thermal management.
    fn smart(&mut self, data: &[u8]) -> bool {
        let Ok((event, _)) = SmartHealth::read_from_prefix(data) else { return false };
        let is_shown = |key: &str| !key.starts_with("temperature_sensor") && !key.starts_with("thm_");
        for (key, value) in SMART.numbers(&event).filter(|(key, _)| is_shown(key)) {
            self.push(key, &value.to_string(), Json::Number(value));
        }
        true
    }

    fn power_on(&mut self, data: &[u8]) -> bool {
        let Some((revision, rest)) = data.split_at_checked(8) else { return false };
        self.text("fw_rev", Text::new(revision).to_string());
        let controllers = rest.chunks_exact(size_of::<ControllerResetInformation>());
        let controllers = controllers.filter_map(|one| ControllerResetInformation::read_from_bytes(one).ok());
        let controllers: Vec<_> = controllers.collect();
        let shown = controllers.iter().map(|one| format!("{} after {} ms", one.cntlid, one.pwronms));
        let objects: Vec<_> = controllers.iter().map(|one| RESET.json(one, false)).collect();
        self.push("controllers", &shown.collect::<Vec<_>>().join(", "), objects);
        true
    }

    fn set_feature(&mut self, data: &[u8]) -> bool {
        let Ok((event, rest)) = SetFeatureEvent::read_from_prefix(data) else { return false };
        let (command, rest) = rest.split_at(rest.len().min(event.command_dwords() * 4));
        let dword = |index: usize| {
            let bytes = command.get(index * 4..).and_then(|bytes| bytes.first_chunk::<4>());
            bytes.map(|bytes| u32::from_le_bytes(*bytes))
        };
        let Some([fid, ..]) = dword(0).map(u32::to_le_bytes) else { return false };
        self.hex("feature", fid);
        self.text("name", Fid(fid).name().unwrap_or("unknown").to_owned());
        self.hex("value", dword(1).unwrap_or_default());
        let (sent, result) = rest.split_at(rest.len().min(usize::from(event.data_bytes())));
        if !sent.is_empty() {
            self.text("data", digits(sent));
        }
        if let (true, Some(bytes)) = (event.has_completion(), result.first_chunk::<4>()) {
            self.hex("result", u32::from_le_bytes(*bytes));
        }
        true
    }
}

static TIMESTAMP_CHANGE: FieldTable<TimestampChangeEvent> = table! { LINE, TimestampChangeEvent:
    prvts as "prev_ts", mssr as "ml_secs_since_reset",
};

static FIRMWARE_COMMIT: FieldTable<FirmwareCommitEvent> = table! { LINE, FirmwareCommitEvent:
    ofwrev as "old_fw_rev" .ascii(), nfwrev as "new_fw_rev" .ascii(), fwca as "fw_commit_action",
    fwslot as "fw_slot", sct as "sct_fw",
    sc as "sc_fw" .below(|event| format!("  {}", event.status())),
    vafcrc as "vu_assign_fw_commit_rc",
};

static HARDWARE_ERROR: FieldTable<HardwareErrorEvent> = table! { LINE, HardwareErrorEvent:
    nsheec as "nss_hw_err_code",
    nsheec as "nss_hw_err"
        .shown(|event| hardware_error::name(event.nsheec.get()).unwrap_or("unknown").to_owned()),
};

static CHANGE_NAMESPACE: FieldTable<ChangeNamespaceEvent> = table! { LINE, ChangeNamespaceEvent:
    nsmcdw10 as "nsmgt_cdw10", nsze, ncap as "nscap", flbas, dps, nmic, anagrpid as "ana_grp_id",
    nvmsetid as "nvmset_id", endgid, nsid,
};

static FORMAT_START: FieldTable<FormatStartEvent> = table! { LINE, FormatStartEvent:
    nsid, fna, fnvmcdw10 as "format_nvm_cdw10",
};

static FORMAT_COMPLETION: FieldTable<FormatCompletionEvent> = table! { LINE, FormatCompletionEvent:
    nsid, sfpi as "smallest_fpi", fnvms as "format_nvm_status", cinfo as "compln_info",
    sf as "status_field",
};

static SANITIZE_START: FieldTable<SanitizeStartEvent> = table! { LINE, SanitizeStartEvent:
    sanicap as "SANICAP", scdw10 as "sani_cdw10", scdw11 as "sani_cdw11",
};

static SANITIZE_COMPLETION: FieldTable<SanitizeCompletionEvent> = table! { LINE, SanitizeCompletionEvent:
    sprog as "sani_prog", sstat as "sani_status", cinfo as "cmpln_info",
};

static THERMAL_EXCURSION: FieldTable<ThermalExcursionEvent> = table! { LINE, ThermalExcursionEvent:
    otemp as "over_temp", thresh as "threshold",
};

static RESET: FieldTable<ControllerResetInformation> = table! { LINE, ControllerResetInformation:
    cntlid as "ctrl_id", fwact as "fw_act", opip as "op_in_prog", cpc as "ctrl_power_cycle",
    pwronms as "power_on_ml_secs", ctstmp as "ctrl_time_stamp",
};
