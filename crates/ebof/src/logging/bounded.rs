//! The log file of an attach daemon, which lies on a file system in memory and is written for as
//! long as a target misbehaves: bounded in lines of a kind (of one place in the code) and in bytes.
//! The first lines of a kind in a minute are written; the others are counted, and told with the
//! last of them when the minute is over. A full file is renamed, and one such is kept.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::Metadata;
use tracing::callsite::Identifier;
use tracing_subscriber::fmt::MakeWriter;

/// How long lines of a kind are counted together.
const WINDOW: Duration = Duration::from_secs(60);
/// Lines of a kind that are written in that time.
const LINES_MAX: u32 = 10;
/// The size of a full file, bytes.
const FILE_BYTES_MAX: u64 = 512 << 10;
/// The most of a line that is kept for later, bytes.
const KEPT_BYTES_MAX: usize = 2048;

/// The log file. Clones are one.
#[derive(Clone, Debug)]
pub(super) struct BoundedLog(Arc<Mutex<Written>>);

#[derive(Debug)]
struct Written {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    kinds: HashMap<Identifier, Counted>,
}

/// Lines of one kind.
#[derive(Debug)]
struct Counted {
    since: Instant,
    written: u32,
    left_out: u64,
    last: Vec<u8>,
}

impl BoundedLog {
    /// Appends to the file at `path`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::with_limit(path, FILE_BYTES_MAX)
    }

    fn with_limit(path: &Path, bytes_max: u64) -> io::Result<Self> {
        let file = append_to(path)?;
        let bytes = file.metadata()?.len();
        let written = Written { path: path.to_owned(), file, bytes, bytes_max, kinds: HashMap::new() };
        Ok(Self(Arc::new(Mutex::new(written))))
    }

    fn write_line(&self, kind: Option<Identifier>, line: &[u8], now: Instant) -> io::Result<()> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        written.tell_left_out(now)?;
        if kind.is_some_and(|kind| !written.admit(kind, line, now)) {
            return Ok(());
        }
        written.append(line)
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

impl Written {
    /// Whether a line of this kind is written now.
    fn admit(&mut self, kind: Identifier, line: &[u8], now: Instant) -> bool {
        let new = || Counted { since: now, written: 0, left_out: 0, last: Vec::new() };
        let counted = self.kinds.entry(kind).or_insert_with(new);
        if counted.written < LINES_MAX {
            counted.written += 1;
            return true;
        }
        counted.left_out += 1;
        counted.last.clear();
        counted.last.extend_from_slice(&line[..line.len().min(KEPT_BYTES_MAX)]);
        false
    }

    /// Tells what was left out in minutes that are over, and forgets them.
    fn tell_left_out(&mut self, now: Instant) -> io::Result<()> {
        let over: Vec<Counted> = self
            .kinds
            .extract_if(|_, counted| now.saturating_duration_since(counted.since) >= WINDOW)
            .map(|(_, counted)| counted)
            .filter(|counted| counted.left_out > 0)
            .collect();
        for Counted { left_out, last, .. } in over {
            let mut told = format!("{left_out} more like this were left out in a minute: ").into_bytes();
            told.extend_from_slice(last.trim_ascii_end());
            told.push(b'\n');
            self.append(&told)?;
        }
        Ok(())
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.bytes >= self.bytes_max {
            self.begin_anew()?;
        }
        self.bytes += line.len() as u64;
        self.file.write_all(line)
    }

    /// Renames the file and begins another one, to which panics are written from now on, too.
    fn begin_anew(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, self.path.with_extension("log.old"))?;
        self.file = append_to(&self.path)?;
        self.bytes = 0;
        #[cfg(not(test))]
        rustix::stdio::dup2_stderr(&self.file)?;
        Ok(())
    }
}

/// Writes one line.
#[derive(Debug)]
pub(super) struct Line {
    log: BoundedLog,
    kind: Option<Identifier>,
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.log.write_line(self.kind.clone(), line, Instant::now()).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for BoundedLog {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line { log: self.clone(), kind: None }
    }

    fn make_writer_for(&self, line: &Metadata<'_>) -> Line {
        Line { log: self.clone(), kind: Some(line.callsite()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_a_maximum_and_lines_of_a_kind_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("holder.log");
        let log = BoundedLog::with_limit(&path, 4096).unwrap();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..10_000 {
                tracing::warn!(number, "an I/O error");
            }
            tracing::warn!("something else");
        });
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 11, "{text}");
        assert!(text.ends_with("something else\n"), "{text}");
        log.write_line(None, b"later\n", Instant::now() + WINDOW).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let told = text.lines().nth(11).unwrap();
        assert!(told.starts_with("9990 more like this were left out in a minute: "), "{text}");
        assert!(told.contains("an I/O error number=9999") && text.ends_with("later\n"), "{text}");
        // Whatever is written, there are two files of about the maximum.
        for _ in 0..1000 {
            log.write_line(None, &[b'x'; 100], Instant::now()).unwrap();
        }
        let bytes = |name: &str| std::fs::metadata(directory.path().join(name)).unwrap().len();
        assert!(bytes("holder.log") <= 4196 && bytes("holder.log.old") <= 4196);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
