//! The program that serves, and the machine that it is on.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The program around the target: where it listens for management, how it is started again, and
/// what it knows of its machine.
pub trait Program: Send + Sync {
    /// Where management listens.
    fn doors(&self) -> Doors;

    /// Why a new start would not serve what is served now, as a sentence; `None` if it would.
    fn forgets(&self) -> Option<String>;

    /// Has the program stop as a signal does, after a moment in which answers are sent, and start
    /// again. `by` is told in its log.
    ///
    /// # Errors
    /// Why it cannot be, as a sentence.
    fn restart(&self, by: &str) -> Result<(), String>;

    /// The interfaces of the machine that have a network behind them.
    fn interfaces(&self) -> Vec<NetworkInterface>;

    /// Processors and memory of the machine.
    fn machine(&self) -> MachineSize;
}

/// Where management listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doors {
    /// With TLS.
    pub https: Door,
    /// Without, for this machine only.
    pub http: Door,
}

/// An address of management.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Door {
    /// Where it listens; `None`: it does not.
    pub port: Option<u16>,
    /// Whether the command line names the address, which the configuration cannot change then.
    pub by_command_line: bool,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkInterface {
    /// As the system calls it.
    pub name: String,
    /// As `02:00:00:00:00:01`.
    pub mac: Option<String>,
    /// Whether it is in use.
    pub is_up: bool,
    /// Whether there is a link.
    pub has_link: bool,
    /// In megabits per second.
    pub speed_mbps: Option<u32>,
    /// Whether both directions are used at the same time.
    pub full_duplex: Option<bool>,
    /// The largest packet, bytes.
    pub mtu: Option<u32>,
    /// Its addresses, each with the length of its network's prefix.
    pub ipv4: Vec<(Ipv4Addr, u8)>,
    /// Likewise.
    pub ipv6: Vec<(Ipv6Addr, u8)>,
}

/// How large a machine is, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineSize {
    /// Processors that threads may run on.
    pub processors: Option<u32>,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
}

/// What a service is that no program is around: it listens nowhere, and is not started again.
#[derive(Clone, Copy, Debug)]
pub struct NoProgram;

impl Program for NoProgram {
    fn doors(&self) -> Doors {
        Doors::default()
    }

    fn forgets(&self) -> Option<String> {
        None
    }

    fn restart(&self, _by: &str) -> Result<(), String> {
        Err("no program is around this service that could start it again".to_owned())
    }

    fn interfaces(&self) -> Vec<NetworkInterface> {
        Vec::new()
    }

    fn machine(&self) -> MachineSize {
        MachineSize::default()
    }
}
