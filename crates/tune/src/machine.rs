//! What the rest of the crate needs of a machine.

use std::io;

/// The most bytes that are read of a file of `/proc` or `/sys`.
pub(crate) const FILE_BYTES_MAX: usize = 64 << 10;

/// The most entries of a directory that are looked at.
pub(crate) const ENTRIES_MAX: usize = 1 << 16;

/// How a network card delays the interrupts of received packets. `None` for what its driver does
/// not offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalescing {
    /// Whether the delay follows the load.
    pub adaptive_rx: Option<bool>,
    /// The delay in microseconds, where it does not.
    pub rx_us: Option<u32>,
    /// Packets after which it ends early.
    pub rx_frames: Option<u32>,
}

/// Pause frames of a link (IEEE 802.3x).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// Whether the other end may pause us.
    pub rx: bool,
    /// Whether we pause the other end.
    pub tx: bool,
}

/// Queues of a network card. 0 for kinds that it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Pairs that are in use.
    pub combined: u32,
    /// Pairs that there can be.
    pub combined_max: u32,
    /// Queues for receiving only that are in use.
    pub rx: u32,
    /// Queues for receiving only that there can be.
    pub rx_max: u32,
}

impl Channels {
    /// Queues that receive.
    #[must_use]
    pub fn receiving(&self) -> u32 {
        self.combined.saturating_add(self.rx)
    }

    /// How many could.
    #[must_use]
    pub fn receiving_max(&self) -> u32 {
        self.combined_max.max(self.rx_max)
    }
}

/// A machine: its `/proc` and `/sys`, its network cards, its services.
///
/// Paths are absolute. Errors have the system's number where it gave one, so that they can be told
/// from each other.
pub trait Machine {
    /// The content of a file, which is UTF-8 and not larger than 64 KiB.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self, path: &str) -> io::Result<String>;

    /// The names in a directory, in order.
    ///
    /// # Errors
    /// It cannot be read.
    fn names(&self, path: &str) -> io::Result<Vec<String>>;

    /// Writes a value into a file that exists.
    ///
    /// # Errors
    /// It does not exist, or refuses the value.
    fn write(&self, path: &str, value: &str) -> io::Result<()>;

    /// How an interface coalesces interrupts.
    ///
    /// # Errors
    /// The driver or the kernel does not tell.
    fn coalescing(&self, interface: &str) -> io::Result<Coalescing>;

    /// Switches adaptive coalescing of received packets on or off.
    ///
    /// # Errors
    /// It is not permitted, or the driver refuses.
    fn set_adaptive_rx(&self, interface: &str, on: bool) -> io::Result<()>;

    /// The pause frames of an interface.
    ///
    /// # Errors
    /// As [`Machine::coalescing`].
    fn pause(&self, interface: &str) -> io::Result<Pause>;

    /// The queues of an interface.
    ///
    /// # Errors
    /// As [`Machine::coalescing`].
    fn channels(&self, interface: &str) -> io::Result<Channels>;

    /// Has systemd start or stop a service, and waits until it has.
    ///
    /// # Errors
    /// There is no systemd, or it refuses.
    fn switch_service(&self, service: &str, on: bool) -> io::Result<()>;
}
