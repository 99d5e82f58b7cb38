//! Views of the log pages about errors and health: `smart-log`, `error-log`, `fw-log`.

use std::fmt::Write as _;

use ebof_nvme::log::{ErrorInformation, FirmwareSlots, SmartHealth, TrType};
use ebof_nvme::{Nsid, opcode};
use zerocopy::IntoBytes as _;

use super::View;
use super::json::Object;
use super::structure::{FieldTable, LineFormat, StructureView, table};
use super::text::{device_key, hex, si, temperature};

/// SMART / Health Information; FFFFFFFFh is the whole controller.
pub(crate) fn smart_view(device: &str, nsid: Nsid, data: Box<SmartHealth>) -> StructureView<SmartHealth> {
    let title = format!("Smart Log for NVME device:{device} namespace-id:{:x}\n", nsid.0);
    StructureView::new(&SMART, "smart-log", 1, title, data).with("nsid", nsid.0)
}

/// SMART / Health Information.
pub(super) static SMART: FieldTable<SmartHealth> = table! { LineFormat::wide(40), SmartHealth:
    cw as "critical_warning"
        .hex()
        .json(|data, verbose| if verbose { WARNINGS.json(data, true).into() } else { data.cw.into() }),
    cw as "      Available Spare[0]" .bits(0, 0).detail(),
    cw as "      Temp. Threshold[1]" .bits(1, 1).detail(),
    cw as "      NVM subsystem Reliability[2]" .bits(2, 2).detail(),
    cw as "      Read-only[3]" .bits(3, 3).detail(),
    cw as "      Volatile mem. backup failed[4]" .bits(4, 4).detail(),
    cw as "      Persistent Mem. RO[5]" .bits(5, 5).detail(),
    ctemp as "temperature" .written(kelvin),
    avsp as "available_spare" .key("avail_spare").unit("%"),
    avspt as "available_spare_threshold" .key("spare_thresh").unit("%"),
    pused as "percentage_used" .key("percent_used").unit("%"),
    egcws as "endurance group critical warning summary" .key("endurance_grp_critical_warning_summary").hex(),
    dur as "Data Units Read"
        .key("data_units_read")
        .shown(|data| format!("{} ({})", data.dur, si(data.bytes_read())))
        .number(),
    duw as "Data Units Written"
        .key("data_units_written")
        .shown(|data| format!("{} ({})", data.duw, si(data.bytes_written())))
        .number(),
    hrc as "host_read_commands", hwc as "host_write_commands", cbt as "controller_busy_time",
    pwrc as "power_cycles", poh as "power_on_hours", upl as "unsafe_shutdowns",
    mdie as "media_errors", neile as "num_err_log_entries",
    wctt as "Warning Temperature Time" .key("warning_temp_time"),
    cctt as "Critical Composite Temperature Time" .key("critical_comp_time"),
    tsen as "Temperature Sensor 1" .key("temperature_sensor_1").element(0, 2).written(kelvin).unless_zero(),
    tsen as "Temperature Sensor 2" .key("temperature_sensor_2").element(1, 2).written(kelvin).unless_zero(),
    tsen as "Temperature Sensor 3" .key("temperature_sensor_3").element(2, 2).written(kelvin).unless_zero(),
    tsen as "Temperature Sensor 4" .key("temperature_sensor_4").element(3, 2).written(kelvin).unless_zero(),
    tsen as "Temperature Sensor 5" .key("temperature_sensor_5").element(4, 2).written(kelvin).unless_zero(),
    tsen as "Temperature Sensor 6" .key("temperature_sensor_6").element(5, 2).written(kelvin).unless_zero(),
    tsen as "Temperature Sensor 7" .key("temperature_sensor_7").element(6, 2).written(kelvin).unless_zero(),
    tsen as "Temperature Sensor 8" .key("temperature_sensor_8").element(7, 2).written(kelvin).unless_zero(),
    tmt1tc as "Thermal Management T1 Trans Count" .key("thm_temp1_trans_count"),
    tmt2tc as "Thermal Management T2 Trans Count" .key("thm_temp2_trans_count"),
    ttmt1 as "Thermal Management T1 Total Time" .key("thm_temp1_total_time"),
    ttmt2 as "Thermal Management T2 Total Time" .key("thm_temp2_total_time"),
};

/// A temperature, also in degrees.
pub(super) fn kelvin(kelvin: u128) -> String {
    temperature(u16::try_from(kelvin).unwrap_or(u16::MAX))
}

/// The bits of Critical Warning, as JSON has them with `-v`.
static WARNINGS: FieldTable<SmartHealth> = table! { LineFormat::wide(0), SmartHealth:
    cw as "value", cw as "available_spare" .bits(0, 0), cw as "temp_threshold" .bits(1, 1),
    cw as "reliability_degraded" .bits(2, 2), cw as "ro" .bits(3, 3),
    cw as "vmbu_failed" .bits(4, 4), cw as "pmr_ro" .bits(5, 5),
};

/// The Error Information log.
pub(crate) struct ErrorLogView {
    /// The device's name.
    pub(crate) device: String,
    /// The entries, newest first, including unused ones.
    pub(crate) entries: Vec<ErrorInformation>,
}

const SEPARATOR: &str = ".................\n";

static ERROR: FieldTable<ErrorInformation> = table! { LineFormat::wide(16), ErrorInformation:
    ec as "error_count", sqid, cid as "cmdid" .hex(),
    si as "status_field"
        .bits(15, 1)
        .shown(|entry| format!("{} ({})", hex(entry.status().0), status_name(entry).unwrap_or("Unknown")))
        .number(),
    si as "status" .only_json().json(|entry, _| status_name(entry).into()),
    si as "phase_tag" .bits(0, 0).hex(), pel as "parm_err_loc" .key("parm_error_location").hex(),
    lba.hex(), nsid.hex(), vsia as "vs",
    trtype
        .shown(|entry| format!("{} ({})", hex(entry.trtype), transport(entry.trtype)))
        .number(),
    csi, opc as "opcode" .hex(), csinfo as "cs" .hex(), ttsi as "trtype_spec_info" .hex(),
    lpver as "log_page_version",
};

impl View for ErrorLogView {
    fn text(&self, verbose: bool) -> String {
        let mut text =
            format!("Error Log Entries for device:{} entries:{}\n{SEPARATOR}", self.device, self.entries.len());
        for (index, entry) in self.entries.iter().enumerate() {
            let entry = ERROR.text(entry, verbose);
            let _infallible = write!(text, " Entry[{index:2}]\n{SEPARATOR}{entry}{SEPARATOR}");
        }
        text
    }

    fn json(&self, verbose: bool) -> Object {
        let entries = self.entries.iter().map(|entry| ERROR.json(entry, verbose)).collect::<Vec<_>>();
        Object::document("error-log", 1).with("errors", entries)
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.entries.as_bytes())
    }
}

/// The name of an entry's status: that of an I/O command if it was sent on an I/O queue and is not
/// a Fabrics command.
fn status_name(entry: &ErrorInformation) -> Option<&'static str> {
    let admin = entry.sqid.get() == 0 || (entry.lpver > 0 && entry.opc == opcode::FABRICS);
    if admin { entry.status().name() } else { entry.status().nvm_name() }
}

fn transport(trtype: u8) -> &'static str {
    match trtype {
        0 => "The transport type is not indicated or the error is not transport related.",
        other => TrType(other).name(),
    }
}

/// Firmware Slot Information.
pub(crate) fn firmware_view(device: &str, data: Box<FirmwareSlots>) -> StructureView<FirmwareSlots> {
    let mut named = Object::new().with("Active Firmware Slot (afi)", data.afi);
    let (mut slots, mut lines) = (Vec::new(), String::new());
    for (slot, frs) in (1_u8..=7).zip(&data.frs) {
        let Some(revision) = data.revision(slot).map(|revision| revision.to_string()) else { continue };
        let number = u64::from_le_bytes(*frs);
        let _infallible = writeln!(lines, "frs{slot} : {} ({revision})", hex(number));
        named.push(format!("Firmware Rev Slot {slot}"), format!("{number} ({revision})"));
        slots.push(Object::new().with("slot", slot).with("revision", revision));
    }
    let title = format!("Firmware Log for device:{device}\n");
    let view = StructureView::new(&FIRMWARE, "fw-log", 1, title, data);
    view.with(device_key(device), named).list("slots", slots, &lines)
}

static FIRMWARE: FieldTable<FirmwareSlots> = table! { LineFormat::wide(5), FirmwareSlots:
    afi.hex(),
    afi as "active_slot" .only_json().computed(|data| data.active_slot().into()),
    afi as "next_slot" .only_json().computed(|data| data.next_slot().into()),
};
