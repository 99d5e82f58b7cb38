//! The view of the audit log of a target.

use ebof_audit::{AuditAnswer, AuditRecord, Finding, Report, date_time};

use super::View;
use super::json::Object;
use super::text::safe;

/// Records, and what is wrong with the log.
pub(crate) struct ShownAudit {
    pub(crate) answer: AuditAnswer,
    /// Whether the records are shown as text.
    pub(crate) has_records: bool,
}

impl View for ShownAudit {
    fn text(&self, _verbose: bool) -> String {
        let AuditAnswer { records, has_more, head, report, directory, .. } = &self.answer;
        let mut text = String::new();
        if self.has_records {
            if *has_more {
                text += "(there are earlier records: --max, --since)\n";
            }
            records.iter().for_each(|record| text += &line(record));
        }
        if let Some(report) = report {
            text += &verified(report, directory);
        }
        match head {
            Some(head) if head.n > 0 => text + &format!("head {head}\n"),
            // What is missing is told by then.
            _ if report.as_ref().is_some_and(|report| !report.is_intact()) => text + "no record is left\n",
            _ => text + "there is no record\n",
        }
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("target-audit", 1).with("audit", serde_json::to_value(&self.answer).unwrap_or_default())
    }
}

/// `17 2026-11-30T06:12:05.123Z change done admin (Administrator) at 192.0.2.7: ...`
fn line(record: &AuditRecord) -> String {
    let AuditRecord { n, time_unix_ms, kind, who, from, what, object, outcome, detail, count, .. } = record;
    let mut text = format!("{n} {} {} {}", date_time(*time_unix_ms), kind.name(), outcome.name());
    if !who.is_empty() {
        text += &format!(" {who}");
    }
    if !from.is_empty() {
        text += &format!(" at {from}");
    }
    text += &format!(": {what}");
    if !object.is_empty() {
        text += &format!(" {object}");
    }
    if !detail.is_empty() {
        text += &format!(": {detail}");
    }
    if *count > 1 {
        text += &format!(" ({count} times)");
    }
    format!("{}\n", safe(&text))
}

fn verified(report: &Report, directory: &str) -> String {
    let Report { records, first, findings, findings_left_out, .. } = report;
    let first = first.map(|first| format!(" from {first} on")).unwrap_or_default();
    let directory = safe(directory);
    if report.is_intact() {
        return format!("{records} records{first} in {directory}, as they were written\n");
    }
    let mut text = format!("THE LOG WAS CHANGED, OR MAY HAVE BEEN: {records} records{first} in {directory}\n");
    for Finding { file, line, what } in findings {
        let line = line.map(|line| format!(", line {line}")).unwrap_or_default();
        text += &format!("  {}{line}: {}\n", safe(file), safe(what));
    }
    if *findings_left_out > 0 {
        text += &format!("  and {findings_left_out} more\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(findings: &[Finding]) -> String {
        let record = serde_json::json!({
            "n": 7, "time_unix_ms": 1_796_019_125_123_u64, "kind": "change", "who": "admin (Administrator)",
            "from": "192.0.2.7", "what": "PATCH /redfish/v1/x", "object": "", "outcome": "done",
            "detail": "200: Oem\u{1b}[2J", "count": 1, "prev": "0".repeat(64), "hash": "1".repeat(64),
        });
        let answer = serde_json::json!({
            "audit_schema": 1, "directory": "/var/lib/ebof", "has_more": true, "records": [record],
            "head": { "n": 7, "hash": "1".repeat(64) },
            "report": { "audit_schema": 1, "records": 7, "first": 1, "head": null, "findings": findings,
                "findings_left_out": 0 },
        });
        let answer = serde_json::from_value(answer).unwrap();
        ShownAudit { answer, has_records: true }.text(false)
    }

    #[test]
    fn records_and_findings_are_lines() {
        let text = shown(&[]);
        let line =
            "7 2026-11-30T06:12:05.123Z change done admin (Administrator) at 192.0.2.7: PATCH /redfish/v1/x: 200: Oem";
        assert!(text.contains(line) && !text.contains('\u{1b}'), "{text}");
        assert!(text.contains("7 records from 1 on in /var/lib/ebof, as they were written\n"), "{text}");
        assert!(text.ends_with(&format!("head 7:{}\n", "1".repeat(64))), "{text}");
        let finding = Finding { file: "audit-1.log".to_owned(), line: Some(3), what: "it was changed".to_owned() };
        let text = shown(&[finding]);
        assert!(text.contains("THE LOG WAS CHANGED") && text.contains("audit-1.log, line 3: it was changed"), "{text}");
    }
}
