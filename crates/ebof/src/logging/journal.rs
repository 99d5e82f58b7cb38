//! Logs to systemd's journal in its own protocol, with fields: what a line is about can be asked
//! for (`journalctl EBOF_DRIVE=d3`), and its level is a priority.
//!
//! Used where standard error leads to the journal anyway, as for a service. Owns the form of an
//! entry; which lines there are is decided where they are written.

use std::fmt::{self, Write as _};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use ebof_cli::output::say;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Where the journal listens.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// Bytes of one value: an entry has to fit into a datagram.
const VALUE_BYTES_MAX: usize = 16 << 10;

/// Fields of one entry.
const FIELDS_MAX: usize = 32;

/// Whether standard error leads to the journal: `JOURNAL_STREAM` has its device and inode.
pub(super) fn is_on_standard_error() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").ok();
    let here = rustix::fs::fstat(io::stderr()).ok();
    stream.zip(here).is_some_and(|(stream, here)| stream == format!("{}:{}", here.st_dev, here.st_ino))
}

/// Writes events to the journal.
pub(super) struct Journal(UnixDatagram);

impl Journal {
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Self(socket))
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let entry = entry(*event.metadata().level(), &fields);
        if self.0.send(&entry).is_err() {
            // The journal is being restarted, or the entry is too long for it.
            say(&fields.line());
        }
    }
}

/// The fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, String)>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.keep(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.keep(field, value.to_owned());
    }
}

impl Fields {
    fn keep(&mut self, field: &Field, mut value: String) {
        let end = (0..=VALUE_BYTES_MAX).rev().find(|&at| value.is_char_boundary(at)).unwrap_or(0);
        value.truncate(end);
        match field.name() {
            "message" => self.message = value,
            name if self.others.len() < FIELDS_MAX => self.others.push((name, value)),
            _ => {}
        }
    }

    /// As a line of text.
    fn line(&self) -> String {
        let mut line = self.message.clone();
        for (name, value) in &self.others {
            let _infallible = write!(line, " {name}={value}");
        }
        line
    }
}

/// An entry in the journal's protocol: a line for each field, and those with several lines with
/// their length.
fn entry(level: Level, fields: &Fields) -> Vec<u8> {
    let priority = match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    };
    let mut entry = Vec::new();
    push(&mut entry, "PRIORITY", priority);
    push(&mut entry, "SYSLOG_IDENTIFIER", "ebof");
    push(&mut entry, "MESSAGE", &fields.line());
    for (name, value) in &fields.others {
        let name = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
        push(&mut entry, &format!("EBOF_{}", name.collect::<String>()), value);
    }
    entry
}

fn push(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend_from_slice(value.as_bytes());
    entry.push(b'\n');
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn an_entry_has_a_priority_and_fields() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let journal = UnixDatagram::bind(&path).unwrap();
        let subscriber = tracing_subscriber::registry().with(Journal::at(&path).unwrap());
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(drive = "d3", peer = %"192.0.2.1:50000", nsid = 4, "two\nlines");
            tracing::info!("one");
        });
        let mut entry = [0; 1024];
        let bytes = journal.recv(&mut entry).unwrap();
        let message = "two\nlines drive=d3 peer=192.0.2.1:50000 nsid=4";
        let mut wanted = b"PRIORITY=4\nSYSLOG_IDENTIFIER=ebof\nMESSAGE\n".to_vec();
        wanted.extend_from_slice(&(message.len() as u64).to_le_bytes());
        wanted.extend_from_slice(message.as_bytes());
        wanted.extend_from_slice(b"\nEBOF_DRIVE=d3\nEBOF_PEER=192.0.2.1:50000\nEBOF_NSID=4\n");
        assert_eq!(String::from_utf8_lossy(&entry[..bytes]), String::from_utf8_lossy(&wanted));
        let bytes = journal.recv(&mut entry).unwrap();
        assert_eq!(entry[..bytes], *b"PRIORITY=6\nSYSLOG_IDENTIFIER=ebof\nMESSAGE=one\n");
    }

    #[test]
    fn long_values_are_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let journal = UnixDatagram::bind(&path).unwrap();
        let subscriber = tracing_subscriber::registry().with(Journal::at(&path).unwrap());
        tracing::subscriber::with_default(subscriber, || tracing::info!("{}", "é".repeat(1 << 20)));
        let mut entry = vec![0; 1 << 20];
        let bytes = journal.recv(&mut entry).unwrap();
        assert!(bytes < VALUE_BYTES_MAX + 100, "{bytes}");
    }
}
