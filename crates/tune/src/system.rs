//! The machine that this process runs on.

use std::cell::{Cell, OnceCell};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command as Program, Stdio};
use std::time::Duration;

use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recvfrom, sendto, socket_with};

use crate::files::Files;
use crate::machine::{Channels, Coalescing, Machine, Pause};
use crate::netlink::{self, Attributes, Command, attribute};

/// This machine.
#[derive(Debug)]
pub struct System {
    files: Files,
    /// Opened when the first network card is asked about.
    ethtool: OnceCell<Ethtool>,
}

impl System {
    /// This machine.
    #[must_use]
    pub fn new() -> Self {
        Self { files: Files::below(Path::new("/")), ethtool: OnceCell::new() }
    }

    fn ask(&self, command: Command, attributes: &[u8]) -> io::Result<Attributes> {
        if self.ethtool.get().is_none() {
            let _first = self.ethtool.set(Ethtool::open()?);
        }
        let ethtool = self.ethtool.get().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        ethtool.exchange(ethtool.family, command, attributes)
    }
}

impl Default for System {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine for System {
    fn read(&self, path: &str) -> io::Result<String> {
        self.files.read(path)
    }

    fn names(&self, path: &str) -> io::Result<Vec<String>> {
        self.files.names(path)
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        self.files.write(path, value)
    }

    fn coalescing(&self, interface: &str) -> io::Result<Coalescing> {
        let answer = self.ask(Command::Coalescing, &netlink::about(interface))?;
        Ok(Coalescing {
            adaptive_rx: answer.number(attribute::ADAPTIVE_RX).map(|on| on != 0),
            rx_us: answer.number(attribute::RX_US),
            rx_frames: answer.number(attribute::RX_FRAMES),
        })
    }

    fn set_adaptive_rx(&self, interface: &str, on: bool) -> io::Result<()> {
        let value = netlink::attribute(attribute::ADAPTIVE_RX, &[u8::from(on)]);
        self.ask(Command::SetCoalescing, &[netlink::about(interface), value].concat()).map(|_acknowledged| ())
    }

    fn pause(&self, interface: &str) -> io::Result<Pause> {
        let answer = self.ask(Command::Pause, &netlink::about(interface))?;
        let is_on = |number| answer.number(number).is_some_and(|on| on != 0);
        Ok(Pause { rx: is_on(attribute::PAUSE_RX), tx: is_on(attribute::PAUSE_TX) })
    }

    fn channels(&self, interface: &str) -> io::Result<Channels> {
        let answer = self.ask(Command::Channels, &netlink::about(interface))?;
        let number = |number| answer.number(number).unwrap_or(0);
        Ok(Channels {
            combined: number(attribute::COMBINED_COUNT),
            combined_max: number(attribute::COMBINED_MAX),
            rx: number(attribute::RX_COUNT),
            rx_max: number(attribute::RX_MAX),
        })
    }

    fn switch_service(&self, service: &str, on: bool) -> io::Result<()> {
        let verb = if on { "start" } else { "stop" };
        let mut systemctl = Program::new("systemctl");
        systemctl.args([verb, "--", service]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let output = systemctl.output().map_err(|error| io::Error::new(error.kind(), format!("systemctl: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("it gave no reason");
        Err(io::Error::other(format!("systemctl {verb} {service}: {} ({})", said.escape_debug(), output.status)))
    }
}

/// A socket of generic netlink, and the number of the family `ethtool`.
#[derive(Debug)]
struct Ethtool {
    socket: OwnedFd,
    family: u16,
    /// Of the last request.
    sequence: Cell<u32>,
}

/// Answers have less than 1 KiB.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// Drivers ask their firmware.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Messages that are skipped while an answer is awaited.
const OTHERS_MAX: usize = 64;

impl Ethtool {
    fn open() -> io::Result<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(GENERIC))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
        let mut ethtool = Self { socket, family: 0, sequence: Cell::new(0) };
        let name = netlink::text(attribute::FAMILY_NAME, "ethtool");
        let answer = ethtool.exchange(netlink::CONTROLLER, Command::Family, &name).map_err(|error| {
            let without = error.kind() == io::ErrorKind::NotFound;
            let old = || io::Error::new(io::ErrorKind::NotFound, "this kernel has no netlink interface of ethtool");
            if without { old() } else { error }
        })?;
        let family = answer.number(attribute::FAMILY_ID).and_then(|number| u16::try_from(number).ok());
        ethtool.family = family.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(ethtool)
    }

    /// Sends a request and waits for its answer. There is one request at a time.
    fn exchange(&self, family: u16, command: Command, attributes: &[u8]) -> io::Result<Attributes> {
        let sequence = self.sequence.get().wrapping_add(1);
        self.sequence.set(sequence);
        let request = netlink::request(family, sequence, command, attributes);
        let _whole = sendto(&self.socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut buffer = vec![0; ANSWER_BYTES_MAX];
        for _ in 0..OTHERS_MAX {
            let (_, length, sender) = recvfrom(&self.socket, buffer.as_mut_slice(), RecvFlags::empty())?;
            let sender = sender.and_then(|address| SocketAddrNetlink::try_from(address).ok());
            if sender.is_none_or(|sender| sender.pid() != 0) {
                continue; // not from the kernel
            }
            if let Some(answer) = netlink::answer(buffer.get(..length).unwrap_or_default(), family, sequence) {
                return answer;
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel sends other messages than the answer"))
    }
}
