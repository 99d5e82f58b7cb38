//! Views about reservations: `resv-report`, `resv-notif-log`.

use ebof_nvme::Nsid;
use ebof_nvme::log::{ReservationEvent, ReservationNotification};
use ebof_nvme::reservation::{ReportedRegistrant, ReservationStatus, ReservationType, read_report};

use super::View;
use super::json::Object;
use super::structure::{FieldTable, LineFormat, StructureView, numbered, table};
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

static STATUS: FieldTable<ReservationStatus> = table! { LineFormat::wide(10), ReservationStatus:
    r#gen as "gen", rtype.beside(kind), regstrnt, ptpls,
};

fn kind(status: &ReservationStatus) -> Option<String> {
    let name = ReservationType::decode(status.rtype).map_or("none", ReservationType::name);
    Some(format!("({name})"))
}

fn registrant_object(one: &&ReportedRegistrant) -> Object {
    Object::new()
        .with("cntlid", one.controller.0)
        .with("rcsts", u8::from(one.holder))
        .with("rkey", one.key)
        .with("hostid", digits(&one.host_id))
}

fn registrant_lines(index: usize, one: &&ReportedRegistrant) -> String {
    format!(
        "registrantext[{index}] :\n  cntlid     : {:x}\n  rcsts      : {:x}\n  rkey       : {:x}\n  hostid     : {}\n",
        one.controller.0,
        u8::from(one.holder),
        one.key,
        digits(&one.host_id)
    )
}

impl View for ReportView {
    fn text(&self, verbose: bool) -> String {
        let text = "\nNVME Reservation status:\n\n";
        let Some((status, registrants)) = read_report(&self.data, self.extended) else {
            return format!("{text}too few bytes were read: leave --numd away\n");
        };
        let (_, lines) = numbered(registrants.iter(), registrant_object, registrant_lines);
        format!("{text}{}{lines}\n", STATUS.text(&status, verbose))
    }

    fn json(&self, verbose: bool) -> Object {
        let object = Object::document("resv-report", 1).with("nsid", self.nsid.0);
        let Some((status, registrants)) = read_report(&self.data, self.extended) else {
            return object.with("registrantext", Vec::<Object>::new());
        };
        let (registrants, _) = numbered(registrants.iter(), registrant_object, registrant_lines);
        object
            .extend(STATUS.json(&status, verbose))
            .with("registrantext", registrants.clone())
            // nvme-cli has the words of NVMe 1.
            .with("regctl", status.regstrnt.get())
            .with(if self.extended { "regctlext" } else { "regctls" }, registrants)
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(&self.data)
    }
}

/// The Reservation Notification log page.
pub(crate) fn notification_view(
    device: &str,
    data: Box<ReservationNotification>,
) -> StructureView<ReservationNotification> {
    let title = format!("Reservation Notif Log for device: {device}\n");
    StructureView::new(&NOTIFICATION, "resv-notif-log", 1, title, data)
}

static NOTIFICATION: FieldTable<ReservationNotification> = table! { LineFormat::wide(28), ReservationNotification:
    lpc as "Log Page Count" .key("count").written(|number| format!("{number:x}")),
    rnlpt as "Resv Notif Log Page Type" .key("rn_log_type").shown(event).number(),
    rnlpt as "event" .only_json().json(|data, _| data.kind().map(ReservationEvent::name).into()),
    nalp as "Num of Available Log Pages" .key("num_logs"),
    nsid as "Namespace ID" .key("NSID").written(|number| format!("{number:x}")),
    nsid.only_json(),
};

fn event(data: &ReservationNotification) -> String {
    let name = data.kind().map_or(if data.rnlpt == 0 { "empty" } else { "unknown" }, ReservationEvent::name);
    format!("{} ({name})", data.rnlpt)
}
