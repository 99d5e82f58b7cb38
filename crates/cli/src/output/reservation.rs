//! Views about reservations: `resv-report`, `resv-notif-log`.

use std::fmt::Write as _;

use ebof_nvme::Nsid;
use ebof_nvme::log::{ReservationEvent, ReservationNotification};
use ebof_nvme::reservation::{ReportedRegistrant, ReservationType, read_report};
use zerocopy::IntoBytes as _;

use super::View;
use super::json::Object;
use super::text::digits;

/// The result of Reservation Report.
pub(crate) struct ReportView {
    /// The namespace.
    pub(crate) nsid: Nsid,
    /// The data structure as the controller returned it.
    pub(crate) data: Vec<u8>,
    /// Whether it has the extended data structure.
    pub(crate) extended: bool,
}

impl View for ReportView {
    fn text(&self, verbose: bool) -> String {
        let mut text = "\nNVME Reservation status:\n\n".to_owned();
        let Some((status, registrants)) = read_report(&self.data, self.extended) else {
            return text + "too few bytes were read: leave --numd away\n";
        };
        let _infallible = writeln!(text, "gen       : {}", status.r#gen);
        let kind = ReservationType::decode(status.rtype).map_or("none", ReservationType::name);
        let kind = if verbose { format!(" ({kind})") } else { String::new() };
        let _infallible = writeln!(text, "rtype     : {}{kind}", status.rtype);
        let _infallible = writeln!(text, "regstrnt  : {}", status.regstrnt);
        let _infallible = writeln!(text, "ptpls     : {}", status.ptpls);
        for (index, one) in registrants.iter().enumerate() {
            let _infallible = write!(
                text,
                "registrantext[{index}] :\n  cntlid     : {:x}\n  rcsts      : {:x}\n  rkey       : {:x}\n  hostid     : {}\n",
                one.controller.0,
                u8::from(one.holder),
                one.key,
                digits(&one.host_id)
            );
        }
        text + "\n"
    }

    fn json(&self, _verbose: bool) -> Object {
        let object = Object::document("resv-report", 1).with("nsid", self.nsid.0);
        let Some((status, registrants)) = read_report(&self.data, self.extended) else {
            return object.with("registrantext", Vec::<Object>::new());
        };
        let registrant = |one: &ReportedRegistrant| {
            Object::new()
                .with("cntlid", one.controller.0)
                .with("rcsts", u8::from(one.holder))
                .with("rkey", one.key)
                .with("hostid", digits(&one.host_id))
        };
        object
            .with("gen", status.r#gen.get())
            .with("rtype", status.rtype)
            .with("regstrnt", status.regstrnt.get())
            .with("ptpls", status.ptpls)
            .with("registrantext", registrants.iter().map(registrant).collect::<Vec<_>>())
            // nvme-cli has the words of NVMe 1.
            .with("regctl", status.regstrnt.get())
            .with(
                if self.extended { "regctlext" } else { "regctls" },
                registrants.iter().map(registrant).collect::<Vec<_>>(),
            )
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(&self.data)
    }
}

/// The Reservation Notification log page.
pub(crate) struct NotificationView {
    /// The device's name.
    pub(crate) device: String,
    /// The log page.
    pub(crate) data: Box<ReservationNotification>,
}

impl View for NotificationView {
    fn text(&self, _verbose: bool) -> String {
        let data = &self.data;
        let kind = data.kind().map_or(if data.rnlpt == 0 { "empty" } else { "unknown" }, ReservationEvent::name);
        format!(
            "Reservation Notif Log for device: {}\n\
             Log Page Count              : {:x}\n\
             Resv Notif Log Page Type    : {} ({kind})\n\
             Num of Available Log Pages  : {}\n\
             Namespace ID                : {:x}\n",
            self.device,
            data.lpc.get(),
            data.rnlpt,
            data.nalp,
            data.nsid.get()
        )
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("resv-notif-log", 1)
            .with("count", self.data.lpc.get())
            .with("rn_log_type", self.data.rnlpt)
            .with("event", self.data.kind().map(ReservationEvent::name))
            .with("num_logs", self.data.nalp)
            .with("NSID", self.data.nsid.get())
            .with("nsid", self.data.nsid.get())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}
