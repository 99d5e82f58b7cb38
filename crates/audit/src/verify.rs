//! What is wrong with a log: every line is looked at, and all that is found is told.

use std::io;

use serde::{Deserialize, Serialize};

use crate::AUDIT_SCHEMA;
use crate::chain::ChainHead;
use crate::files::{self, Source};
use crate::record::{AuditRecord, Broken, RecordKind};

/// The most findings that are told one by one.
const FINDINGS_MAX: usize = 100;

/// What the log says of itself where a start has found it changed.
const CHANGED: &[&str] = &["removed", "damaged", "cut", "head-damaged"];

/// What was found out about a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// [`AUDIT_SCHEMA`].
    pub audit_schema: u32,
    /// How many records it has.
    pub records: u64,
    /// The number of the first one: those before it have made room.
    pub first: Option<u64>,
    /// The last one. To be written down elsewhere, and asked for later.
    pub head: Option<ChainHead>,
    /// What is wrong, at most 100 of it; nothing if the log is as it was written.
    pub findings: Vec<Finding>,
    /// How many more there are.
    pub findings_left_out: usize,
}

/// What is told of a log to whoever asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditAnswer {
    /// [`AUDIT_SCHEMA`].
    pub audit_schema: u32,
    /// Where it is.
    pub directory: String,
    /// The last record; `None` or number 0 if there is none.
    pub head: Option<ChainHead>,
    /// Records, the latest last.
    pub records: Vec<AuditRecord>,
    /// Whether there are earlier ones that were asked for.
    pub has_more: bool,
    /// What is wrong with the log, if that was asked for.
    pub report: Option<Report>,
}

/// Something that is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The file.
    pub file: String,
    /// The line in it, from 1; `None` for the file as a whole.
    pub line: Option<u64>,
    /// What is wrong.
    pub what: String,
}

impl Report {
    /// Whether the log is as it was written.
    #[must_use]
    pub const fn is_intact(&self) -> bool {
        self.findings.is_empty()
    }

    fn note(&mut self, file: &str, line: Option<u64>, what: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { file: file.to_owned(), line, what });
        } else {
            self.findings_left_out += 1;
        }
    }
}

/// A line of a file.
pub(crate) struct FileLine<'b> {
    pub(crate) text: &'b [u8],
    /// From 1.
    pub(crate) number: u64,
    /// Whether it has its end; without, it is the last one.
    pub(crate) is_whole: bool,
}

/// The lines of a file.
pub(crate) fn lines_of(bytes: &[u8]) -> impl Iterator<Item = FileLine<'_>> {
    bytes.split_inclusive(|byte| *byte == b'\n').zip(1..).map(|(line, number)| match line.split_last() {
        Some((b'\n', text)) => FileLine { text, number, is_whole: true },
        _ => FileLine { text: line, number, is_whole: false },
    })
}

/// Looks for all that is wrong with a log. `known` are records that it has to have: the last one of
/// whoever writes it, and those that somebody has written down. Those that have made room since are
/// not looked for.
///
/// # Errors
/// The files cannot be read.
pub fn verify(source: &dyn Source, known: &[ChainHead]) -> io::Result<Report> {
    let mut report = Report {
        audit_schema: AUDIT_SCHEMA,
        records: 0,
        first: None,
        head: None,
        findings: Vec::new(),
        findings_left_out: 0,
    };
    let kept = files::kept(source);
    if let Err(error) = &kept {
        report.note(files::HEAD_FILE, None, format!("it cannot be read: {error}"));
    }
    let kept = kept.unwrap_or_default();
    let mut wanted: Vec<(ChainHead, bool)> =
        known.iter().chain(kept.as_ref().map(|kept| &kept.head)).map(|&head| (head, false)).collect();
    for (first, name) in files::all(source)? {
        // It may have made room since.
        let Some(bytes) = source.lines(&name)? else { continue };
        verify_file(&mut report, &mut wanted, (first, &name), &bytes);
    }
    let first = report.first.unwrap_or(u64::MAX);
    if let Some(kept) = kept.filter(|kept| kept.first < first && kept.head.n >= kept.first) {
        let last = first.saturating_sub(1).min(kept.head.n);
        report.note(files::HEAD_FILE, None, format!("records {} to {last} are missing at the beginning", kept.first));
    }
    let last = report.head.map_or(0, |head| head.n);
    for (head, is_found) in wanted {
        if is_found || head.n == 0 || (head.n < first && report.first.is_some()) {
            continue;
        }
        report.note(
            files::HEAD_FILE,
            None,
            match head.n > last {
                true => format!("the end is missing: the last record is {last}, and there was record {head}"),
                false => format!("record {} is another one than it was: it had the hash {}", head.n, head.hash),
            },
        );
    }
    Ok(report)
}

fn verify_file(report: &mut Report, wanted: &mut [(ChainHead, bool)], (first, name): (u64, &str), bytes: &[u8]) {
    for FileLine { text, number, is_whole } in lines_of(bytes) {
        let record = match AuditRecord::unseal(text) {
            Ok(record) if is_whole => record,
            // The next start cuts it off: a crash has left it.
            _ if !is_whole => continue,
            Err(Broken::Changed) => {
                report.note(name, Some(number), "it was changed: its hash is another one".to_owned());
                continue;
            }
            _ => {
                report.note(name, Some(number), "it is no record".to_owned());
                continue;
            }
        };
        let before = report.head;
        let follows = match before {
            None => record.n == first && (first > 1 || record.prev == ChainHead::NONE.hash),
            Some(before) => record.n == before.n + 1 && record.prev == before.hash,
        };
        if !follows {
            let before = before.map_or_else(
                || "is not the first one of this file".to_owned(),
                |before| {
                    let what = "one of them was changed, or others between them are missing";
                    format!("does not follow record {}: {what}", before.n)
                },
            );
            report.note(name, Some(number), format!("record {} {before}", record.n));
        }
        if number == 1 && record.n != first {
            report.note(name, Some(number), format!("the file is said to begin with record {first}"));
        }
        if record.kind == RecordKind::Log && CHANGED.contains(&record.what.as_str()) {
            let what = format!("an earlier start has found it so ({}): {}", record.what, record.detail);
            report.note(name, Some(number), what);
        }
        let head = record.head();
        wanted.iter_mut().filter(|(known, _)| *known == head).for_each(|(_, is_found)| *is_found = true);
        report.records += 1;
        report.first = report.first.or(Some(record.n));
        report.head = Some(head);
    }
}

/// The latest records since a time, the oldest first: at most `most`, and whether there are more.
/// Lines that are no records are left out.
///
/// # Errors
/// The files cannot be read.
pub fn records_since(source: &dyn Source, since_unix_ms: u64, most: usize) -> io::Result<(Vec<AuditRecord>, bool)> {
    let mut found: Vec<AuditRecord> = Vec::new();
    for (_, name) in files::all(source)?.into_iter().rev() {
        let Some(bytes) = source.lines(&name)? else { continue };
        let records =
            lines_of(&bytes).filter(|line| line.is_whole).filter_map(|line| AuditRecord::unseal(line.text).ok());
        let mut own: Vec<AuditRecord> = records.filter(|record| record.time_unix_ms >= since_unix_ms).collect();
        own.append(&mut found);
        found = own;
        if found.len() > most {
            return Ok((found.split_off(found.len() - most), true));
        }
    }
    Ok((found, false))
}
