//! Records of the audit log as entries of a log, for Administrators.

use serde::Serialize;

use super::log::LogEntry;
use crate::managed::parts::AuditedRecord;
use crate::place::{Log, ManagerPlace};
use crate::response::head::{Head, Health, json, oem};
use crate::response::message::{OWN, camel};
use crate::response::time::date_time;

/// `EbofLogEntry.Audit`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemAudit {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    category: String,
    outcome: String,
    who: String,
    from: String,
    object: String,
    count: u64,
    hash: String,
}

/// The entry of a record.
pub(super) fn of_record(record: &AuditedRecord) -> LogEntry {
    let AuditedRecord { n, time_unix_ms, kind, who, from, what, object, outcome, detail, count, hash } = record;
    let ebof = OemAudit {
        kind: "#EbofLogEntry.v1_0_0.Audit",
        category: camel(kind),
        outcome: camel(outcome),
        who: who.clone(),
        from: from.clone(),
        object: object.clone(),
        count: *count,
        hash: hash.clone(),
    };
    let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
    let message = format!("{what}: {outcome}{detail}");
    let is_done = matches!(*outcome, "done" | "began");
    LogEntry {
        head: Head::new(
            ManagerPlace::Entry(Log::Audit, n.to_string()),
            "#LogEntry.v1_21_0.LogEntry",
            format!("Record {n}"),
            "Something that was changed or refused",
        ),
        entry_type: "Event",
        severity: if is_done { Health::OK } else { Health::Warning },
        created: date_time(*time_unix_ms),
        message: message.clone(),
        message_id: format!("{OWN}.Audited"),
        message_args: vec![message],
        event_id: None,
        event_timestamp: date_time(*time_unix_ms),
        resolution: "None.".to_owned(),
        username: Some(who.clone()).filter(|who| !who.is_empty()),
        origin_address: from.parse::<std::net::IpAddr>().ok().map(|ip| format!("https://{ip}")),
        links: None,
        oem: oem(json(&ebof)),
    }
}
