//! Records for syslog: RFC 5424, over a datagram socket of this machine or UDP. Nobody waits for a
//! receiver; what it does not take is counted, and the log says so.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

use crate::record::{AuditRecord, NewRecord, RecordKind, RecordOutcome};
use crate::time::date_time;

/// Facility 13, log audit (RFC 5424, 6.2.1).
const FACILITY: u8 = 13;

/// How long a receiver that is away is left alone, milliseconds.
const PAUSE_MS: u64 = 1000;

/// Where records are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A datagram socket of this machine, such as `/dev/log`.
    Unix(PathBuf),
    /// A receiver of UDP.
    Udp(SocketAddr),
}

/// A text is no [`Destination`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("want unix:PATH, such as unix:/dev/log, or udp:ADDRESS:PORT, such as udp:192.0.2.5:514")]
pub struct DestinationError;

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, DestinationError> {
        match text.split_once(':') {
            Some(("unix", path)) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(("udp", address)) => address.parse().map(Self::Udp).map_err(|_no_address| DestinationError),
            _ => Err(DestinationError),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Udp(address) => write!(f, "udp:{address}"),
        }
    }
}

#[derive(Debug)]
enum Socket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

impl Socket {
    fn to(destination: &Destination) -> io::Result<Self> {
        match destination {
            Destination::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_nonblocking(true)?;
                Ok(Self::Unix(socket))
            }
            Destination::Udp(address) => {
                let any: SocketAddr = match address {
                    SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
                    SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                socket.set_nonblocking(true)?;
                Ok(Self::Udp(socket))
            }
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        let sent = match self {
            Self::Unix(socket) => socket.send(message)?,
            Self::Udp(socket) => socket.send(message)?,
        };
        if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

/// What sends records to syslog.
#[derive(Debug)]
pub struct Syslog {
    destination: Destination,
    host: String,
    process: u32,
    socket: Option<Socket>,
    retry_at_ms: u64,
    /// When what was missed is told at the earliest: a receiver that takes a message now and then
    /// must not fill the log.
    tell_at_ms: u64,
    /// Records that were not sent, and why.
    missed: u64,
    error: Option<String>,
}

impl Syslog {
    /// To a destination, as this host and this process.
    #[must_use]
    pub fn new(destination: Destination, host: &str) -> Self {
        // HOSTNAME = 1*255PRINTUSASCII (RFC 5424, 6).
        let host: String = host.chars().filter(char::is_ascii_graphic).take(255).collect();
        let host = if host.is_empty() { "-".to_owned() } else { host };
        let process = std::process::id();
        Self { destination, host, process, socket: None, retry_at_ms: 0, tell_at_ms: 0, missed: 0, error: None }
    }

    /// Sends records. What was missed before is told as a record to be written, once the receiver
    /// takes them again: that record is sent, too, and would be missed by one that is there and
    /// reads nothing. Times are of a clock that only goes on.
    pub fn send(&mut self, records: &[AuditRecord], now_ms: u64) -> Option<NewRecord> {
        let mut is_last_sent = false;
        for record in records {
            is_last_sent = false;
            if self.socket.is_none() && now_ms >= self.retry_at_ms {
                self.retry_at_ms = now_ms + PAUSE_MS;
                match Socket::to(&self.destination) {
                    Ok(socket) => self.socket = Some(socket),
                    Err(error) => self.error = Some(error.to_string()),
                }
            }
            let Some(socket) = &self.socket else {
                self.missed += 1;
                continue;
            };
            if let Err(error) = socket.send(self.message(record).as_bytes()) {
                self.missed += 1;
                self.error = Some(error.to_string());
                // A receiver that was started again has another socket behind the same path.
                if error.kind() != io::ErrorKind::WouldBlock {
                    self.socket = None;
                }
            } else {
                is_last_sent = true;
            }
        }
        if !is_last_sent || self.missed == 0 || now_ms < self.tell_at_ms {
            return None;
        }
        self.tell_at_ms = now_ms + PAUSE_MS;
        let count = std::mem::take(&mut self.missed);
        let why = self.error.take().unwrap_or_default();
        let detail = format!("{count} records were not sent to {}: {why}", self.destination);
        Some(NewRecord::new(RecordKind::Log, "syslog-gap", RecordOutcome::Failed).detail(&detail).count(count))
    }

    /// `<109>1 2026-11-30T06:12:05.123Z box ebof 812 change - {...}`
    fn message(&self, record: &AuditRecord) -> String {
        // Notice, or warning for what was not done (RFC 5424, 6.2.1).
        let severity = if matches!(record.outcome, RecordOutcome::Done | RecordOutcome::Began) { 5 } else { 4 };
        let priority = FACILITY * 8 + severity;
        let (time, kind) = (date_time(record.time_unix_ms), record.kind.name());
        let json = serde_json::to_string(record).expect("texts and numbers become JSON");
        format!("<{priority}>1 {time} {} ebof {} {kind} - {json}", self.host, self.process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::ChainHead;

    fn record(n: u64) -> AuditRecord {
        let content = NewRecord::new(RecordKind::Change, "remove drive d3", RecordOutcome::Done).who("admin");
        AuditRecord::seal(&content, 1_796_019_125_123, ChainHead { n: n - 1, ..ChainHead::NONE }).0
    }

    #[test]
    fn destinations_are_read_as_they_are_written() {
        for text in ["unix:/dev/log", "udp:192.0.2.5:514", "udp:[2001:db8::5]:514"] {
            assert_eq!(text.parse::<Destination>().unwrap().to_string(), text);
        }
        for text in ["", "unix:", "unix:dev/log", "udp:box:514", "udp:192.0.2.5", "tcp:192.0.2.5:514"] {
            assert_eq!(text.parse::<Destination>(), Err(DestinationError), "{text}");
        }
    }

    #[test]
    fn a_receiver_gets_records_and_the_log_says_what_it_missed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let mut syslog = Syslog::new(Destination::Unix(path.clone()), "box\nx");
        assert_eq!(syslog.send(&[record(1), record(2)], 0), None, "nobody is there");
        let receiver = UnixDatagram::bind(&path).unwrap();
        assert_eq!(syslog.send(&[record(3)], 999), None, "not yet again");
        let gap = syslog.send(&[record(4)], 1000).unwrap();
        assert_eq!((gap.count, gap.what.as_str()), (3, "syslog-gap"));
        let mut buffer = [0; 4096];
        let bytes = receiver.recv(&mut buffer).unwrap();
        let text = std::str::from_utf8(&buffer[..bytes]).unwrap();
        let head = format!("<109>1 2026-11-30T06:12:05.123Z boxx ebof {} change - {{", std::process::id());
        assert!(text.starts_with(&head), "{text}");
        let json = text.split_once(" - ").unwrap().1;
        assert_eq!(serde_json::from_str::<AuditRecord>(json).unwrap(), record(4));
        // Started again, behind the same path.
        drop(receiver);
        std::fs::remove_file(&path).unwrap();
        let receiver = UnixDatagram::bind(&path).unwrap();
        assert_eq!(syslog.send(&[record(5)], 5000), None);
        assert_eq!(syslog.send(&[record(6)], 6000).unwrap().count, 1);
        assert!(receiver.recv(&mut buffer).unwrap() > 100);
    }

    #[test]
    fn a_receiver_that_takes_nothing_delays_nobody() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let receiver = UnixDatagram::bind(&path).unwrap();
        let mut syslog = Syslog::new(Destination::Unix(path), "box");
        let many: Vec<AuditRecord> = (1..10_000).map(record).collect();
        assert_eq!(syslog.send(&many, 0), None, "nothing is told while it takes nothing");
        assert_eq!(syslog.send(&[record(10_000)], 5000), None);
        receiver.recv(&mut [0; 8192]).unwrap();
        let gap = syslog.send(&[record(10_001)], 6000).unwrap();
        assert!(gap.count > 1000 && gap.detail.contains("unix:"), "{gap:?}");
        // It takes one now and then.
        assert_eq!(syslog.send(&[record(10_002)], 6001), None);
        receiver.recv(&mut [0; 8192]).unwrap();
        assert_eq!(syslog.send(&[record(10_003)], 6002), None, "not so soon again");
        receiver.recv(&mut [0; 8192]).unwrap();
        assert_eq!(syslog.send(&[record(10_004)], 7000).unwrap().count, 1);
    }
}
