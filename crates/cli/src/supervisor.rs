//! What systemd, or another supervisor with its protocol, is told: datagrams with lines
//! `NAME=VALUE` to the socket that `NOTIFY_SOCKET` names (sd_notify(3)).
//!
//! Without the variable nothing is told. A supervisor that cannot be reached is no reason to stop.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The longest status line, characters.
const STATUS_MAX: usize = 400;

/// The supervisor of this process.
#[derive(Debug)]
pub struct Supervisor {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// The one that the environment names.
    #[must_use]
    pub fn of_environment() -> Self {
        let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let socket = text("NOTIFY_SOCKET").and_then(|name| {
            let connected = connect(&name);
            connected.inspect_err(|error| tracing::warn!("NOTIFY_SOCKET {name}: {error}")).ok()
        });
        let own = text("WATCHDOG_PID").is_none_or(|pid| pid.parse() == Ok(std::process::id()));
        let watchdog = text("WATCHDOG_USEC").filter(|_| own).and_then(|us| us.parse().ok()).filter(|&us| us > 0);
        Self { socket, watchdog: watchdog.map(Duration::from_micros) }
    }

    /// One that is told nothing.
    #[must_use]
    pub fn none() -> Self {
        Self { socket: None, watchdog: None }
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// Within what time it wants a sign of life, if it wants any.
    #[must_use]
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.socket.is_some())
    }

    /// The start, or a change of the configuration, has ended.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// What the process does.
    pub fn status(&self, status: &str) {
        self.tell(&format!("STATUS={}", one_line(status)));
    }

    /// A change of the configuration begins; [`Supervisor::ready`] tells its end.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let us = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000);
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    /// The end begins.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping");
    }

    /// A sign of life.
    pub fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    fn tell(&self, lines: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = socket.send(lines.as_bytes()) {
            tracing::debug!("telling the supervisor: {error}");
        }
    }
}

fn connect(name: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A supervisor that does not read must not hold up this process.
    socket.set_nonblocking(true)?;
    match name.strip_prefix('@') {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(name)?,
    }
    Ok(socket)
}

/// A status is one line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(STATUS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(receiver: &UnixDatagram) -> String {
        let mut buffer = [0; 1024];
        let bytes = receiver.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..bytes].to_vec()).unwrap()
    }

    #[test]
    fn lines_are_those_of_the_protocol() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let receiver = UnixDatagram::bind(&path).unwrap();
        let supervisor = Supervisor { socket: Some(connect(path.to_str().unwrap()).unwrap()), watchdog: None };
        supervisor.ready("serving\n1 subsystem");
        assert_eq!(told(&receiver), "READY=1\nSTATUS=serving 1 subsystem");
        supervisor.reloading();
        let text = told(&receiver);
        let us = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(us.parse::<u64>().unwrap() > 0);
        supervisor.stopping();
        assert_eq!(told(&receiver), "STOPPING=1\nSTATUS=stopping");
        supervisor.alive();
        assert_eq!(told(&receiver), "WATCHDOG=1");
        supervisor.status(&"ä".repeat(500));
        assert_eq!(told(&receiver), format!("STATUS={}", "ä".repeat(STATUS_MAX)));
        // One that has gone away disturbs nobody.
        drop(receiver);
        supervisor.alive();
    }

    #[test]
    fn a_name_that_begins_with_an_at_sign_is_abstract() {
        let name = format!("ebof-test-{}", std::process::id());
        let receiver = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let socket = connect(&format!("@{name}")).unwrap();
        socket.send(b"READY=1").unwrap();
        assert_eq!(told(&receiver), "READY=1");
        assert!(connect("@ebof-test-nobody").is_err());
    }
}
