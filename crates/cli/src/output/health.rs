//! Views of the log pages about errors and health: `smart-log`, `error-log`, `fw-log`.

use std::fmt::Write as _;

use ebof_nvme::log::{ErrorInformation, FirmwareSlots, SmartHealth, TrType};
use ebof_nvme::{Nsid, opcode};
use zerocopy::IntoBytes as _;

use super::View;
use super::json::Object;
use super::text::{device_key, hex, si, temperature};

/// SMART / Health Information.
pub(crate) struct SmartView {
    /// The device's name.
    pub(crate) device: String,
    /// The namespace; FFFFFFFFh is the whole controller.
    pub(crate) nsid: Nsid,
    /// The log page.
    pub(crate) data: Box<SmartHealth>,
}

/// The bits of Critical Warning: text, key.
const WARNINGS: [(&str, &str); 6] = [
    ("Available Spare[0]", "available_spare"),
    ("Temp. Threshold[1]", "temp_threshold"),
    ("NVM subsystem Reliability[2]", "reliability_degraded"),
    ("Read-only[3]", "ro"),
    ("Volatile mem. backup failed[4]", "vmbu_failed"),
    ("Persistent Mem. RO[5]", "pmr_ro"),
];

impl View for SmartView {
    fn text(&self, verbose: bool) -> String {
        let data = &self.data;
        let mut text = format!("Smart Log for NVME device:{} namespace-id:{:x}\n", self.device, self.nsid.0);
        let mut line = |name: &str, value: String| {
            let _infallible = writeln!(text, "{name:<40}: {value}");
        };
        line("critical_warning", hex(data.cw));
        if verbose {
            for (bit, (name, _)) in WARNINGS.iter().enumerate() {
                line(&format!("      {name}"), (data.cw >> bit & 1).to_string());
            }
        }
        line("temperature", temperature(data.ctemp.get()));
        line("available_spare", format!("{}%", data.avsp));
        line("available_spare_threshold", format!("{}%", data.avspt));
        line("percentage_used", format!("{}%", data.pused));
        line("endurance group critical warning summary", hex(data.egcws));
        line("Data Units Read", format!("{} ({})", data.dur, si(data.bytes_read())));
        line("Data Units Written", format!("{} ({})", data.duw, si(data.bytes_written())));
        line("host_read_commands", data.hrc.to_string());
        line("host_write_commands", data.hwc.to_string());
        line("controller_busy_time", data.cbt.to_string());
        line("power_cycles", data.pwrc.to_string());
        line("power_on_hours", data.poh.to_string());
        line("unsafe_shutdowns", data.upl.to_string());
        line("media_errors", data.mdie.to_string());
        line("num_err_log_entries", data.neile.to_string());
        line("Warning Temperature Time", data.wctt.to_string());
        line("Critical Composite Temperature Time", data.cctt.to_string());
        for (index, kelvin) in self.sensors() {
            line(&format!("Temperature Sensor {index}"), temperature(kelvin));
        }
        line("Thermal Management T1 Trans Count", data.tmt1tc.to_string());
        line("Thermal Management T2 Trans Count", data.tmt2tc.to_string());
        line("Thermal Management T1 Total Time", data.ttmt1.to_string());
        line("Thermal Management T2 Total Time", data.ttmt2.to_string());
        text
    }

    fn json(&self, verbose: bool) -> Object {
        let data = &self.data;
        let mut object = Object::document("smart-log", 1).with("nsid", self.nsid.0);
        if verbose {
            let warning = Object::new().with("value", data.cw);
            let bits = WARNINGS.iter().enumerate();
            let bits = bits.fold(warning, |object, (bit, (_, key))| object.with(*key, data.cw >> bit & 1));
            object.push("critical_warning", bits);
        } else {
            object.push("critical_warning", data.cw);
        }
        let mut object = object
            .with("temperature", data.ctemp.get())
            .with("avail_spare", data.avsp)
            .with("spare_thresh", data.avspt)
            .with("percent_used", data.pused)
            .with("endurance_grp_critical_warning_summary", data.egcws)
            .with("data_units_read", data.dur.get())
            .with("data_units_written", data.duw.get())
            .with("host_read_commands", data.hrc.get())
            .with("host_write_commands", data.hwc.get())
            .with("controller_busy_time", data.cbt.get())
            .with("power_cycles", data.pwrc.get())
            .with("power_on_hours", data.poh.get())
            .with("unsafe_shutdowns", data.upl.get())
            .with("media_errors", data.mdie.get())
            .with("num_err_log_entries", data.neile.get())
            .with("warning_temp_time", data.wctt.get())
            .with("critical_comp_time", data.cctt.get());
        for (index, kelvin) in self.sensors() {
            object.push(format!("temperature_sensor_{index}"), kelvin);
        }
        object
            .with("thm_temp1_trans_count", data.tmt1tc.get())
            .with("thm_temp2_trans_count", data.tmt2tc.get())
            .with("thm_temp1_total_time", data.ttmt1.get())
            .with("thm_temp2_total_time", data.ttmt2.get())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

impl SmartView {
    /// The existing sensors, numbered from 1.
    fn sensors(&self) -> impl Iterator<Item = (usize, u16)> {
        let kelvins = self.data.tsen.iter().map(|kelvin| kelvin.get());
        kelvins.enumerate().map(|(index, kelvin)| (index + 1, kelvin)).filter(|(_, kelvin)| *kelvin != 0)
    }
}

/// The Error Information log.
pub(crate) struct ErrorLogView {
    /// The device's name.
    pub(crate) device: String,
    /// The entries, newest first, including unused ones.
    pub(crate) entries: Vec<ErrorInformation>,
}

const SEPARATOR: &str = ".................\n";

impl View for ErrorLogView {
    fn text(&self, _verbose: bool) -> String {
        let mut text =
            format!("Error Log Entries for device:{} entries:{}\n{SEPARATOR}", self.device, self.entries.len());
        for (index, entry) in self.entries.iter().enumerate() {
            let _infallible = write!(text, " Entry[{index:2}]\n{SEPARATOR}");
            let mut line = |name: &str, value: String| {
                let _infallible = writeln!(text, "{name:<16}: {value}");
            };
            let status = entry.status();
            let name = status_name(entry).unwrap_or("Unknown");
            line("error_count", entry.ec.to_string());
            line("sqid", entry.sqid.to_string());
            line("cmdid", hex(entry.cid.get()));
            line("status_field", format!("{} ({name})", hex(status.0)));
            line("phase_tag", hex(entry.si.get() & 1));
            line("parm_err_loc", hex(entry.pel.get()));
            line("lba", hex(entry.lba.get()));
            line("nsid", hex(entry.nsid.get()));
            line("vs", entry.vsia.to_string());
            line("trtype", format!("{} ({})", hex(entry.trtype), transport(entry.trtype)));
            line("csi", entry.csi.to_string());
            line("opcode", hex(entry.opc));
            line("cs", hex(entry.csinfo.get()));
            line("trtype_spec_info", hex(entry.ttsi.get()));
            line("log_page_version", entry.lpver.to_string());
            text += SEPARATOR;
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let entry = |entry: &ErrorInformation| {
            Object::new()
                .with("error_count", entry.ec.get())
                .with("sqid", entry.sqid.get())
                .with("cmdid", entry.cid.get())
                .with("status_field", entry.status().0)
                .with("status", status_name(entry))
                .with("phase_tag", entry.si.get() & 1)
                .with("parm_error_location", entry.pel.get())
                .with("lba", entry.lba.get())
                .with("nsid", entry.nsid.get())
                .with("vs", entry.vsia)
                .with("trtype", entry.trtype)
                .with("csi", entry.csi)
                .with("opcode", entry.opc)
                .with("cs", entry.csinfo.get())
                .with("trtype_spec_info", entry.ttsi.get())
                .with("log_page_version", entry.lpver)
        };
        Object::document("error-log", 1).with("errors", self.entries.iter().map(entry).collect::<Vec<_>>())
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
pub(crate) struct FirmwareView {
    /// The device's name.
    pub(crate) device: String,
    /// The log page.
    pub(crate) data: Box<FirmwareSlots>,
}

impl View for FirmwareView {
    fn text(&self, _verbose: bool) -> String {
        let mut text = format!("Firmware Log for device:{}\nafi  : {}\n", self.device, hex(self.data.afi));
        for (slot, number, revision) in self.revisions() {
            let _infallible = writeln!(text, "frs{slot} : {} ({revision})", hex(number));
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let slot = |(slot, _, revision): (u8, u64, String)| Object::new().with("slot", slot).with("revision", revision);
        let named = Object::new().with("Active Firmware Slot (afi)", self.data.afi);
        let named = self.revisions().fold(named, |object, (slot, number, revision)| {
            object.with(format!("Firmware Rev Slot {slot}"), format!("{number} ({revision})"))
        });
        Object::document("fw-log", 1)
            .with(device_key(&self.device), named)
            .with("afi", self.data.afi)
            .with("active_slot", self.data.active_slot())
            .with("next_slot", self.data.next_slot())
            .with("slots", self.revisions().map(slot).collect::<Vec<_>>())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

impl FirmwareView {
    /// Slot, the revision's bytes as a number, the revision.
    fn revisions(&self) -> impl Iterator<Item = (u8, u64, String)> {
        (1_u8..=7).zip(&self.data.frs).filter_map(|(slot, frs)| {
            let revision = self.data.revision(slot)?;
            Some((slot, u64::from_le_bytes(*frs), revision.to_string()))
        })
    }
}
