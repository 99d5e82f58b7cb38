//! The log as it is written: appended in batches that are on the medium before anybody is told, in
//! files of a bounded size and number, with the chain going on from one to the next.

use std::io;
use std::sync::Arc;

use ebof_state::{Appended, Standing, StateDirectory, StateError};
use thiserror::Error;

use crate::chain::ChainHead;
use crate::files::{self, HEAD_FILE, Kept};
use crate::record::{AuditRecord, NewRecord, RecordKind, RecordOutcome};
use crate::verify::{FileLine, lines_of};

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of a file; the record that reaches them is the last one of it.
    pub file_bytes: u64,
    /// Files that are kept, 2 or more.
    pub files: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { file_bytes: 4 << 20, files: 8 }
    }
}

/// The log cannot be opened.
#[derive(Debug, Error)]
#[error("the audit log: {0}")]
pub struct AuditError(#[from] io::Error);

impl From<StateError> for AuditError {
    fn from(error: StateError) -> Self {
        Self(io::Error::other(error))
    }
}

/// A log that is written to.
#[derive(Debug)]
pub struct AuditLog {
    directory: Arc<StateDirectory>,
    sizes: Sizes,
    /// `None`: the next record begins a file.
    file: Option<Appended>,
    head: ChainHead,
    /// The records that the kept files begin with, in order.
    firsts: Vec<u64>,
    /// Whether the stored head is the one above.
    is_head_stored: bool,
    /// Whether there is a stored head at all.
    has_head_file: bool,
    /// What somebody did to the files since the last record, to be recorded with the next ones.
    found: Vec<NewRecord>,
}

/// Where a log goes on, and what is wrong with what is there.
struct End {
    head: ChainHead,
    /// The last file, if records can be appended to it, and its valid bytes.
    file: Option<(String, u64)>,
    notes: Vec<NewRecord>,
}

impl AuditLog {
    /// Opens the log of a state directory, or begins one. With what is wrong with it, to be
    /// recorded: what a crash has left of a record is cut off, and everything else stays as it is
    /// found, for those who look into it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(directory: Arc<StateDirectory>, sizes: Sizes) -> Result<(Self, Vec<NewRecord>), AuditError> {
        let mut all = files::all(&*directory)?;
        let kept = files::kept(&*directory);
        let is_head_damaged = kept.is_err();
        let has_head_file = is_head_damaged || matches!(kept, Ok(Some(_)));
        let known = kept.unwrap_or_default().map_or(ChainHead::NONE, |kept| kept.head);
        let End { head, file, mut notes } = end(&directory, &mut all, known)?;
        if is_head_damaged {
            notes.push(note("head-damaged", "where the log ended could not be read: its end may be missing"));
        }
        // It is stored before the first record is: no crash leaves records without it.
        if !has_head_file && !all.is_empty() {
            let what = "was missing, which says where the log ends: records behind it may have been cut off";
            notes.push(note("head-missing", &format!("{HEAD_FILE} {what} (the last one was {})", head.n)));
        }
        if head.n == 0 && notes.is_empty() {
            notes.push(note("began", &format!("a new log begins: there was neither a record nor {HEAD_FILE}")));
        }
        let file = match file {
            None => None,
            Some((name, bytes)) => {
                let mut file = Appended::open(&directory, &name)?;
                if file.bytes() > bytes {
                    let rest = file.bytes() - bytes;
                    file.cut(&directory, bytes)?;
                    notes.push(note("unfinished", &format!("{rest} bytes of a record that was not finished were cut")));
                }
                Some(file)
            }
        };
        let firsts = all.into_iter().map(|(first, _)| first).collect();
        Ok((
            Self { directory, sizes, file, head, firsts, is_head_stored: false, has_head_file, found: Vec::new() },
            notes,
        ))
    }

    /// The last record.
    #[must_use]
    pub const fn head(&self) -> ChainHead {
        self.head
    }

    /// Where it is.
    #[must_use]
    pub const fn directory(&self) -> &Arc<StateDirectory> {
        &self.directory
    }

    /// Appends records, all or none. When this returns, they are on the medium. If somebody has
    /// removed, replaced or cut the file since, what is known of it is written again, and a record
    /// of that comes first.
    ///
    /// # Errors
    /// None is in the log.
    pub fn append(&mut self, time_unix_ms: u64, contents: &[NewRecord]) -> io::Result<Vec<AuditRecord>> {
        if contents.is_empty() {
            return Ok(Vec::new());
        }
        if !self.has_head_file {
            self.store_head()?;
        }
        self.look_after_file()?;
        let (mut head, mut text, mut records) = (self.head, String::new(), Vec::new());
        for content in self.found.iter().chain(contents) {
            let (record, line) = AuditRecord::seal(content, time_unix_ms, head);
            head = record.head();
            text += &line;
            records.push(record);
        }
        let first = self.head.n + 1;
        let is_full = |file: &Appended| file.bytes() > 0 && file.bytes() + text.len() as u64 > self.sizes.file_bytes;
        if self.file.as_ref().is_some_and(is_full) {
            self.file = None;
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => Appended::open(&self.directory, &files::name_of(first)).map_err(io::Error::other)?,
        };
        let appended = file.append(&self.directory, text.as_bytes());
        if file.bytes() > 0 && self.firsts.last().is_none_or(|last| files::name_of(*last) != file.name()) {
            self.firsts.extend(files::first_of(file.name()));
        }
        self.file = Some(file);
        appended?;
        self.found.clear();
        self.head = head;
        self.is_head_stored = false;
        self.make_room();
        Ok(records)
    }

    /// What would be appended to a file that was removed, or replaced by another one, would be
    /// nowhere: its records are written again under its name. The other file is put aside.
    ///
    /// # Errors
    /// They cannot be written now.
    fn look_after_file(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let standing = file.standing(&self.directory)?;
        let (name, last) = (file.name().to_owned(), self.head.n);
        let mut aside = String::new();
        let what = match standing {
            Standing::InPlace => return Ok(()),
            Standing::Removed => "removed",
            Standing::Shorter => {
                let detail = format!("{name} was cut while the target ran, and had records up to {last}");
                self.found.push(note("cut", &detail));
                self.file = None;
                return Ok(());
            }
            Standing::Replaced => match self.directory.set_aside(&name) {
                Ok(path) => {
                    let path = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    aside = format!("; the other file is {path}");
                    "replaced"
                }
                Err(error) => {
                    let detail = format!("another file took the place of {name}, which had records up to {last}");
                    self.found.push(note("replaced", &format!("{detail}, and stays: {error}")));
                    self.file = None;
                    return Ok(());
                }
            },
        };
        file.restore(&self.directory)?;
        let again = format!("its records up to {last} were written again");
        self.found.push(note(what, &format!("{name} was {what} while the target ran, and {again}{aside}")));
        Ok(())
    }

    /// Removes the oldest files, as many as there are too many.
    fn make_room(&mut self) {
        while self.firsts.len() > self.sizes.files.max(2) {
            // What is missing by then is known to have made room, before it is gone.
            let first = self.firsts[1];
            let is_known = self.store(first).is_ok();
            if !is_known || Appended::remove(&self.directory, &files::name_of(self.firsts[0])).is_err() {
                return;
            }
            self.firsts.remove(0);
        }
    }

    /// Stores where the log ends, so that an end that is cut off is noticed at the next start. To
    /// be called after records were appended; nobody has to wait for it.
    ///
    /// # Errors
    /// It is not stored: what is stored tells of fewer records.
    pub fn store_head(&mut self) -> io::Result<()> {
        if self.is_head_stored {
            return Ok(());
        }
        let first = self.firsts.first().copied().unwrap_or(self.head.n + 1);
        self.store(first)
    }

    fn store(&mut self, first: u64) -> io::Result<()> {
        let text = serde_json::to_string(&Kept { first, head: self.head })?;
        self.directory.replace(HEAD_FILE, text.as_bytes()).map_err(io::Error::other)?;
        (self.is_head_stored, self.has_head_file) = (true, true);
        Ok(())
    }
}

/// Where the log of a directory ends. A file without a finished record is removed: a crash has left
/// it.
fn end(directory: &StateDirectory, all: &mut Vec<(u64, String)>, known: ChainHead) -> Result<End, AuditError> {
    let mut notes = Vec::new();
    while let Some((begin, name)) = all.last().cloned() {
        let bytes = Appended::read(directory, &name, files::FILE_BYTES_MAX)?.unwrap_or_default();
        if bytes.contains(&b'\n') {
            return Ok(end_of_file(begin, name, &bytes, known, notes));
        }
        if !bytes.is_empty() {
            notes
                .push(note("unfinished", &format!("{} bytes of a record that was not finished were cut", bytes.len())));
        }
        Appended::remove(directory, &name).map_err(io::Error::other)?;
        all.pop();
    }
    if known.n > 0 {
        notes.push(note("removed", &format!("the log was removed: records up to {} are missing", known.n)));
    }
    Ok(End { head: known, file: None, notes })
}

/// Where a file ends that has a line.
fn end_of_file(begin: u64, name: String, bytes: &[u8], known: ChainHead, mut notes: Vec<NewRecord>) -> End {
    let (mut last, mut valid, mut is_damaged, mut is_known) = (None::<ChainHead>, 0, false, known.n < begin);
    for FileLine { text, .. } in lines_of(bytes).take_while(|line| line.is_whole) {
        let follows = |record: &AuditRecord| match last {
            Some(before) => record.n == before.n + 1 && record.prev == before.hash,
            None => record.n == begin,
        };
        let Some(record) = AuditRecord::unseal(text).ok().filter(follows) else {
            is_damaged = true;
            break;
        };
        is_known |= record.head() == known;
        last = Some(record.head());
        valid += text.len() as u64 + 1;
    }
    match last {
        Some(head) if is_known && !is_damaged => End { head, file: Some((name, valid)), notes },
        _ => {
            let own = last.map_or(begin.saturating_sub(1), |last| last.n);
            let what = if is_damaged { "damaged" } else { "cut" };
            let detail = format!("record {own} is the last good one of {name}, and there was record {}", known.n);
            notes.push(note(what, &detail));
            // Numbers go on behind all that there was, and in a file of its own.
            let head = last.filter(|last| last.n > known.n).unwrap_or(known);
            let is_taken = files::name_of(head.n + 1) == name;
            End { head: ChainHead { n: head.n + u64::from(is_taken), ..head }, file: None, notes }
        }
    }
}

fn note(what: &str, detail: &str) -> NewRecord {
    let outcome = if matches!(what, "unfinished" | "began") { RecordOutcome::Done } else { RecordOutcome::Failed };
    NewRecord::new(RecordKind::Log, what, outcome).detail(detail)
}

#[cfg(test)]
mod tests;
