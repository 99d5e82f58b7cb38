//! Logs an error to the system's log, for events without an audience: a device that ends. Does
//! nothing without a system log, and never blocks.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// The socket of syslog daemons and journald.
const SOCKET: &str = "/dev/log";
/// RFC 5424: facility 3 (daemons), severity 3 (error).
const PRIORITY: u32 = 3 << 3 | 3;

/// Logs an error.
pub(crate) fn error(message: &str) {
    if let Err(error) = send(Path::new(SOCKET), message) {
        tracing::debug!(%error, "the system log takes nothing");
    }
}

fn send(socket: &Path, message: &str) -> io::Result<()> {
    let log = UnixDatagram::unbound()?;
    // Never wait for a daemon that does not read.
    log.set_nonblocking(true)?;
    // The form of syslog(3); the daemon adds the time.
    let line = format!("<{PRIORITY}>ebof[{}]: {}", std::process::id(), message.replace(char::is_control, " "));
    log.send_to(line.as_bytes(), socket).map(|_sent| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    // @test host.given-up
    #[test]
    fn a_line_has_syslogs_format_and_a_missing_log_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        assert!(send(&path, "x").is_err());
        let log = UnixDatagram::bind(&path).unwrap();
        send(&path, "nvme0:\ngone").unwrap();
        let mut line = [0; 100];
        let bytes = log.recv(&mut line).unwrap();
        let expected = format!("<27>ebof[{}]: nvme0: gone", std::process::id());
        assert_eq!(std::str::from_utf8(&line[..bytes]).unwrap(), expected);
    }
}
