//! The configuration space of the function: what the host's bus driver reads and writes.
//!
//! ```text
//! 00h  header: vendor, device, command, status, class 010802h, BAR0 (64 bits, 16 KiB)
//! 40h  power management
//! 50h  MSI-X: table at BAR0 + 2000h, pending bits at BAR0 + 3000h
//! 60h  PCI Express: an endpoint with function-level reset
//! ```

use crate::errno::Errno;

/// Bytes of the space.
pub const CONFIG_BYTES: usize = 256;
/// Bytes of BAR0.
pub const BAR_BYTES: u64 = 0x4000;
/// Where the table of interrupt vectors begins in BAR0.
pub const VECTOR_TABLE: u64 = BAR_TABLE as u64;
/// Where their pending bits begin in BAR0.
pub const PENDING_BITS: u64 = BAR_PENDING as u64;
/// Interrupt vectors at most.
pub const VECTORS_MAX: u16 = 128;

/// Both in BAR0, whose number is 0, as the capability says it.
const BAR_TABLE: u32 = 0x2000;
const BAR_PENDING: u32 = 0x3000;

const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const BAR0: usize = 0x10;
const POWER: usize = 0x40;
const MSIX: usize = 0x50;
const EXPRESS: usize = 0x60;

const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_BUS_MASTER: u16 = 1 << 2;
const COMMAND_PARITY: u16 = 1 << 6;
const COMMAND_SERR: u16 = 1 << 8;
const COMMAND_INTERRUPT_DISABLE: u16 = 1 << 10;
const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Power Management Control: PowerState.
const POWER_STATE: u16 = 3;
const MSIX_ENABLE: u16 = 1 << 15;
const MSIX_MASK: u16 = 1 << 14;
/// Device Control, second byte: Initiate Function Level Reset.
const FUNCTION_RESET: u8 = 1 << 7;

/// What tells one kind of device from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor and subsystem vendor.
    pub vendor: u16,
    /// Device and subsystem.
    pub device: u16,
    /// Revision.
    pub revision: u8,
}

/// What follows from a write to the configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigEffect {
    /// The host resets the function: everything but the connection begins anew.
    FunctionReset,
    /// The function may access memory and interrupt from now on, or may not any more (Bus Master
    /// Enable, and D0).
    BusMaster(bool),
    /// The host's bus driver finds out how large BAR0 is, as it does when it meets a device: no
    /// driver that knew the function before uses it any more.
    ///
    /// No other step of a host says so. Drivers keep their commands over resets of the controller
    /// and of the function, over one of the bus, which a client passes on as a reset of the device,
    /// and while they take bus mastering away and give it back.
    Found,
}

/// The configuration space.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: [u8; CONFIG_BYTES],
    /// Bits that a host can change.
    writable: [u8; CONFIG_BYTES],
    identity: Identity,
    vectors: u16,
}

impl ConfigSpace {
    /// After power-on, with so many interrupt vectors: 1 to [`VECTORS_MAX`], others are clamped.
    #[must_use]
    pub fn new(identity: Identity, vectors: u16) -> Self {
        let vectors = vectors.clamp(1, VECTORS_MAX);
        let mut space = Self { bytes: [0; CONFIG_BYTES], writable: [0; CONFIG_BYTES], identity, vectors };
        space.header();
        space.capabilities();
        space
    }

    fn header(&mut self) {
        let Identity { vendor, device, revision } = self.identity;
        self.put16(0x00, vendor, 0);
        self.put16(0x02, device, 0);
        let command = COMMAND_MEMORY | COMMAND_BUS_MASTER | COMMAND_PARITY | COMMAND_SERR | COMMAND_INTERRUPT_DISABLE;
        self.put16(COMMAND, 0, command);
        self.put16(STATUS, STATUS_CAPABILITIES, 0);
        // Mass storage, non-volatile memory, NVM Express.
        self.put32(0x08, 0x0108_0200 | u32::from(revision), 0);
        self.put32(0x0c, 0, 0xff);
        // 64 bits, not prefetchable. The bits below its size stay as they are, which tells the
        // size.
        self.put32(BAR0, 0x4, !0x3fff);
        self.put32(BAR0 + 4, 0, u32::MAX);
        self.put16(0x2c, vendor, 0);
        self.put16(0x2e, device, 0);
        self.put32(0x34, 0x40, 0);
        // Interrupt line; no pin.
        self.put16(0x3c, 0, 0xff);
    }

    fn capabilities(&mut self) {
        // Power management 1.2, No_Soft_Reset: coming back from D3hot resets nothing.
        self.put32(POWER, 0x0003_5001, 0);
        self.put32(POWER + 4, 1 << 3, POWER_STATE.into());
        let table = u32::from(self.vectors - 1) << 16;
        let control = u32::from(MSIX_ENABLE | MSIX_MASK) << 16;
        self.put32(MSIX, 0x6011 | table, control);
        self.put32(MSIX + 4, BAR_TABLE, 0);
        self.put32(MSIX + 8, BAR_PENDING, 0);
        // Version 2, an endpoint; no other capability follows.
        self.put32(EXPRESS, 0x0002_0010, 0);
        // Device capabilities: role-based error reporting, function-level reset.
        self.put32(EXPRESS + 4, 1 << 15 | 1 << 28, 0);
        // Device control: enables, payload and read request sizes, relaxed ordering, no snoop.
        self.put32(EXPRESS + 8, 0x2810, 0x7fff);
        // Link capabilities and status: 8 GT/s, four lanes.
        self.put32(EXPRESS + 0xc, 0x43, 0);
        self.put32(EXPRESS + 0x10, 0x0043_0000, 0x0fc3);
        // Device capabilities 2: completion timeouts can be disabled. Link control 2: 8 GT/s.
        self.put32(EXPRESS + 0x24, 0x10, 0);
        self.put32(EXPRESS + 0x28, 0, 0x1f);
        self.put32(EXPRESS + 0x2c, 0xe, 0);
        self.put32(EXPRESS + 0x30, 0x3, 0xf);
    }

    /// As after a function-level or device reset: what the host configured is gone.
    pub fn reset(&mut self) {
        *self = Self::new(self.identity, self.vectors);
    }

    /// Interrupt vectors.
    #[must_use]
    pub const fn vectors(&self) -> u16 {
        self.vectors
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// They are not all within the space.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        into.copy_from_slice(&self.bytes[within(offset, into.len())?]);
        Ok(())
    }

    /// Writes bytes; bits that cannot be changed stay as they are.
    ///
    /// # Errors
    /// They are not all within the space.
    pub fn write(&mut self, offset: u64, from: &[u8]) -> Result<Option<ConfigEffect>, Errno> {
        let range = within(offset, from.len())?;
        let begin = range.start;
        let was_master = self.is_bus_master();
        let power = self.bytes[POWER + 4];
        // The bit is no state: it reads as 0.
        let control = EXPRESS + 8 + 1;
        let resets = range.contains(&control) && from[control - range.start] & FUNCTION_RESET != 0;
        for (at, &byte) in range.zip(from) {
            let mask = self.writable[at];
            self.bytes[at] = self.bytes[at] & !mask | byte & mask;
        }
        // Power management, PowerState: a state that the function does not have is discarded.
        if !matches!(self.get16(POWER + 4) & POWER_STATE, 0 | POWER_STATE) {
            self.bytes[POWER + 4] = power;
        }
        if resets {
            self.reset();
            return Ok(Some(ConfigEffect::FunctionReset));
        }
        // PCI, Base Address Registers: a host writes ones to learn the size. What it read before is
        // never all ones, so that no state that is put back looks like this.
        if begin == BAR0 && matches!(from.len(), 4 | 8) && from.iter().all(|&byte| byte == u8::MAX) {
            return Ok(Some(ConfigEffect::Found));
        }
        let is_master = self.is_bus_master();
        Ok((is_master != was_master).then_some(ConfigEffect::BusMaster(is_master)))
    }

    /// The function may access the host's memory, and interrupt, which is a write to it: in D3hot
    /// it may not, either.
    #[must_use]
    #[inline]
    pub fn is_bus_master(&self) -> bool {
        self.get16(COMMAND) & COMMAND_BUS_MASTER != 0 && self.get16(POWER + 4) & POWER_STATE == 0
    }

    /// The registers can be accessed.
    #[must_use]
    pub fn is_memory_enabled(&self) -> bool {
        self.get16(COMMAND) & COMMAND_MEMORY != 0
    }

    /// Interrupts by MSI-X are on, and not masked as a whole. A client of vfio-user that connects
    /// vectors to descriptors delivers interrupts by itself, whatever this says.
    #[must_use]
    pub fn delivers_vectors(&self) -> bool {
        self.get16(MSIX + 2) & (MSIX_ENABLE | MSIX_MASK) == MSIX_ENABLE
    }

    fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn put16(&mut self, at: usize, value: u16, writable: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 2].copy_from_slice(&writable.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32, writable: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 4].copy_from_slice(&writable.to_le_bytes());
    }
}

/// The bytes as a range of the space.
fn within(offset: u64, length: usize) -> Result<core::ops::Range<usize>, Errno> {
    let begin = usize::try_from(offset).map_err(|_large| Errno::INVALID)?;
    let end = begin.checked_add(length).filter(|&end| end <= CONFIG_BYTES).ok_or(Errno::INVALID)?;
    Ok(begin..end)
}
