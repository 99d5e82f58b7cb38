//! What is wrong with a log: every line is looked at, and all that is found is told.

use std::io;

use serde::{Deserialize, Serialize};

use crate::AUDIT_SCHEMA;
use crate::chain::ChainHead;
use crate::files::{self, Kept, Source};
use crate::record::{AuditRecord, Broken, RecordKind};

/// The most findings that are told one by one.
const FINDINGS_MAX: usize = 100;

/// What the log says of itself where the target has found it changed.
const CHANGED: &[&str] = &["removed", "replaced", "damaged", "cut", "head-damaged", "head-missing"];

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
    /// The file; for a record that is missing, who knows of it: `audit-head`, `the running target`,
    /// `--head`.
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

/// A record that a log has to have, and how that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownHead {
    head: ChainHead,
    source: &'static str,
}

impl KnownHead {
    /// The last record of the target that writes the log.
    #[must_use]
    pub const fn of_target(head: ChainHead) -> Self {
        Self { head, source: "the running target" }
    }

    /// A record that somebody has written down.
    #[must_use]
    pub const fn given(head: ChainHead) -> Self {
        Self { head, source: GIVEN }
    }
}

/// What a finding names instead of a file for [`KnownHead::given`].
const GIVEN: &str = "--head";

/// A record that is looked for.
struct Wanted {
    head: ChainHead,
    /// Who knows of it, each once.
    sources: Vec<&'static str>,
    is_found: bool,
}

impl Wanted {
    fn all(known: impl Iterator<Item = KnownHead>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for KnownHead { head, source } in known {
            match all.iter_mut().find(|wanted| wanted.head == head) {
                Some(wanted) if wanted.sources.contains(&source) => {}
                Some(wanted) => wanted.sources.push(source),
                None => all.push(Self { head, sources: vec![source], is_found: false }),
            }
        }
        all
    }

    fn is_given(&self) -> bool {
        self.sources.contains(&GIVEN)
    }
}

/// Looks for all that is wrong with a log, which has to have the records that are `known`. Those
/// that have made room since are not looked for.
///
/// # Errors
/// The files cannot be read.
pub fn verify(source: &dyn Source, known: &[KnownHead]) -> io::Result<Report> {
    let mut report = Report {
        audit_schema: AUDIT_SCHEMA,
        records: 0,
        first: None,
        head: None,
        findings: Vec::new(),
        findings_left_out: 0,
    };
    let mut kept = files::kept(source);
    let stored = kept.as_ref().ok().copied().flatten();
    let stored = stored.map(|kept| KnownHead { head: kept.head, source: files::HEAD_FILE });
    let mut wanted = Wanted::all(stored.into_iter().chain(known.iter().copied()));
    for (first, name) in files::all(source)? {
        // It may have made room since.
        let Some(bytes) = source.lines(&name)? else { continue };
        verify_mode(&mut report, source, &name)?;
        verify_file(&mut report, &mut wanted, (first, &name), &bytes);
    }
    verify_mode(&mut report, source, files::HEAD_FILE)?;
    if matches!(kept, Ok(None)) && report.records > 0 {
        // A log that had no record a moment ago may have both by now.
        kept = files::kept(source);
    }
    verify_head(&mut report, &kept);
    verify_wanted(&mut report, &wanted);
    Ok(report)
}

fn verify_mode(report: &mut Report, source: &dyn Source, name: &str) -> io::Result<()> {
    if let Some(mode) = source.mode(name)?.filter(|mode| mode & 0o022 != 0) {
        report.note(name, None, format!("others than its owner may change it: it has mode {mode:04o}, and had 0600"));
    }
    Ok(())
}

/// Whether the file that says where the log ends is there, and the records from where it says that
/// the log begins.
fn verify_head(report: &mut Report, kept: &io::Result<Option<Kept>>) {
    match (kept, report.first) {
        (Err(error), _) => report.note(files::HEAD_FILE, None, format!("it cannot be read: {error}")),
        (Ok(None), Some(_)) => {
            let why = "it is missing: whether records were cut off at the end cannot be checked without it";
            let advice = "compare with the number and hash of a later record that are elsewhere, by `--head N:HASH`";
            report.note(files::HEAD_FILE, None, format!("{why}; {advice}"));
        }
        (Ok(Some(kept)), Some(first)) if kept.first < first && kept.head.n >= kept.first => {
            let last = first.saturating_sub(1).min(kept.head.n);
            let what = format!("records {} to {last} are missing at the beginning", kept.first);
            report.note(files::HEAD_FILE, None, what);
        }
        _ => {}
    }
}

fn verify_wanted(report: &mut Report, wanted: &[Wanted]) {
    let last = report.head.map_or(0, |head| head.n);
    let is_missing = |wanted: &&Wanted| {
        let has_made_room = report.first.is_some_and(|first| wanted.head.n < first);
        !wanted.is_found && wanted.head.n > 0 && !has_made_room
    };
    let missing: Vec<&Wanted> = wanted.iter().filter(is_missing).collect();
    // Of what a target remembers and has stored of one end, the later is enough.
    let end = missing.iter().filter(|wanted| !wanted.is_given()).map(|wanted| wanted.head.n).max();
    for Wanted { head, sources, .. } in
        missing.into_iter().filter(|wanted| wanted.is_given() || wanted.head.n <= last || Some(wanted.head.n) == end)
    {
        let what = match report.first {
            None => format!("all records are missing: there was record {head}"),
            Some(_) if head.n > last => {
                format!("the end is missing: the last record is {last}, and there was record {head}")
            }
            Some(_) => format!("record {} is another one than it was: it had the hash {}", head.n, head.hash),
        };
        report.note(&sources.join(", "), None, what);
    }
}

fn verify_file(report: &mut Report, wanted: &mut [Wanted], (first, name): (u64, &str), bytes: &[u8]) {
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
            let what = format!("the target has found it so ({}): {}", record.what, record.detail);
            report.note(name, Some(number), what);
        }
        let head = record.head();
        wanted.iter_mut().filter(|wanted| wanted.head == head).for_each(|wanted| wanted.is_found = true);
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
