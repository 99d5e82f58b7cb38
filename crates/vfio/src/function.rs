//! The PCI function as a client of vfio-user sees it: its regions and interrupts, and the answers
//! to everything that needs neither sockets, descriptors nor the host's memory.

use alloc::vec::Vec;

use ebof_nvme::property::{Cap, Version};

use crate::errno::Errno;
use crate::interrupts::{KINDS, Vectors};
use crate::message::{Area, Call, Command, DmaMap, DmaUnmap, Proposal, RegionInfo, SetInterrupts};
use crate::pci::{BAR_BYTES, CONFIG_BYTES, ConfigEffect, ConfigSpace, Identity, PENDING_BITS, VECTOR_TABLE};
use crate::registers::{DOORBELL_BYTES, DOORBELLS, Effect, Registers};

/// Regions that a PCI device has for a client: six BARs, the ROM, the configuration space, VGA.
pub const REGIONS: u32 = 9;
/// The region that is BAR0.
pub const BAR0: u32 = 0;
/// The region that is the configuration space.
pub const CONFIG: u32 = 7;

/// The function.
#[derive(Debug)]
pub struct PciFunction {
    /// Its configuration space.
    pub config: ConfigSpace,
    /// Its registers.
    pub registers: Registers,
    /// Its interrupts.
    pub vectors: Vectors,
    /// There is nothing behind BAR0: it reads as ones, and what is written to it is dropped. The
    /// configuration space answers, so that a host can find what comes in its place.
    pub is_absent: bool,
}

/// What follows from a write of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// To a register.
    Register(Effect),
    /// To the configuration space.
    Config(ConfigEffect),
}

/// What is left to do for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Nothing: it is answered.
    Answered,
    /// It is answered, and this follows.
    Event(Event),
    /// The answer, the last one in the buffer, goes with the descriptor of the doorbells' page.
    SendDoorbells,
    /// The version is agreed on, and the answer is in the buffer.
    Opened(Proposal),
    /// To be answered by [`Call::succeed`] or [`Call::refuse`].
    Map(Call, DmaMap),
    /// To be answered by [`Call::unmapped`] or [`Call::refuse`].
    Unmap(Call, DmaUnmap),
    /// To be given to [`Vectors::set`], and answered by [`Call::succeed`] or [`Call::refuse`].
    SetInterrupts(Call, SetInterrupts<'a>),
    /// The function [is reset](PciFunction::reset), and the client waits for
    /// [`Call::succeed`] until that is over.
    Reset(Call),
}

impl PciFunction {
    /// After power-on, with so many interrupt vectors and queue pairs (the Admin Queue among them).
    #[must_use]
    pub fn new(identity: Identity, cap: Cap, version: Version, vectors: u16, queues: u16) -> Self {
        let config = ConfigSpace::new(identity, vectors);
        let vectors = Vectors::new(config.vectors());
        Self { config, registers: Registers::new(cap, version, queues), vectors, is_absent: false }
    }

    /// A function-level or device reset: registers, configuration space and interrupts begin anew.
    pub fn reset(&mut self) {
        self.config.reset();
        self.registers.reset();
        self.vectors.reset();
    }

    /// Answers a command as far as it can. `maps_doorbells`: the page of doorbells is offered for
    /// mapping.
    pub fn handle<'a>(
        &mut self,
        call: Call,
        command: Command<'a>,
        maps_doorbells: bool,
        out: &mut Vec<u8>,
    ) -> Action<'a> {
        match command {
            Command::RegionWrite { region, offset, data } => return self.on_write(call, (region, offset), data, out),
            Command::RegionRead { region, offset, count } => self.on_read(call, (region, offset, count), out),
            Command::Version(proposal) => {
                call.agree(&proposal, out);
                return Action::Opened(proposal);
            }
            Command::DmaMap(map) => return Action::Map(call, map),
            Command::DmaUnmap(unmap) => return Action::Unmap(call, unmap),
            Command::DeviceInfo => call.device_info(REGIONS, KINDS, out),
            Command::RegionInfo { index, room } => {
                if Self::region_info(call, index, room, maps_doorbells, out) {
                    return Action::SendDoorbells;
                }
            }
            Command::InterruptInfo { index } => match self.vectors.count_of(index) {
                Some(count) => call.interrupt_info(index, count, out),
                None => call.refuse(Errno::INVALID, out),
            },
            Command::SetInterrupts(set) => return Action::SetInterrupts(call, set),
            Command::Reset => {
                self.reset();
                return Action::Reset(call);
            }
        }
        Action::Answered
    }

    fn region_info(call: Call, index: u32, room: u32, maps_doorbells: bool, out: &mut Vec<u8>) -> bool {
        const AREAS: &[Area] = &[Area { offset: DOORBELLS, size: DOORBELL_BYTES }];
        let areas = if index == BAR0 && maps_doorbells { AREAS } else { &[] };
        let size = match index {
            BAR0 => BAR_BYTES,
            CONFIG => CONFIG_BYTES as u64,
            index if index < REGIONS => 0,
            _ => {
                call.refuse(Errno::INVALID, out);
                return false;
            }
        };
        call.region_info(room, &RegionInfo { index, size, is_accessible: size > 0, areas }, out)
    }

    fn on_read(&self, call: Call, (region, offset, count): (u32, u64, u32), out: &mut Vec<u8>) {
        let begin = out.len();
        let Some(into) = call.read(region, offset, count, out) else { return };
        if let Err(errno) = self.read(region, offset, into) {
            out.truncate(begin);
            call.refuse(errno, out);
        }
    }

    fn on_write<'a>(&mut self, call: Call, (region, offset): (u32, u64), data: &[u8], out: &mut Vec<u8>) -> Action<'a> {
        match self.write(region, offset, data) {
            Ok(event) => {
                let count = u32::try_from(data.len()).expect("less than a message, which has a size");
                call.written(region, offset, count, out);
                event.map_or(Action::Answered, Action::Event)
            }
            Err(errno) => {
                call.refuse(errno, out);
                Action::Answered
            }
        }
    }

    /// Reads bytes of a region.
    ///
    /// # Errors
    /// There is no such region, or the bytes are not all within it.
    pub fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        match region {
            CONFIG => return self.config.read(offset, into),
            BAR0 => within_bar(offset, into.len())?,
            _ => return Err(Errno::INVALID),
        }
        match offset {
            _ if self.is_absent => into.fill(u8::MAX),
            PENDING_BITS.. => self.vectors.read_pending(offset - PENDING_BITS, into),
            VECTOR_TABLE.. => self.vectors.read_table(offset - VECTOR_TABLE, into),
            _ => self.registers.read(offset, into),
        }
        Ok(())
    }

    /// Writes bytes of a region. A function-level reset, which is an event, resets it here.
    ///
    /// # Errors
    /// There is no such region, or the bytes are not all within it.
    #[inline]
    pub fn write(&mut self, region: u32, offset: u64, from: &[u8]) -> Result<Option<Event>, Errno> {
        match region {
            BAR0 => within_bar(offset, from.len())?,
            CONFIG => {
                let effect = self.config.write(offset, from)?;
                if effect == Some(ConfigEffect::FunctionReset) {
                    self.reset();
                }
                return Ok(effect.map(Event::Config));
            }
            _ => return Err(Errno::INVALID),
        }
        Ok(match offset {
            _ if self.is_absent => None,
            PENDING_BITS.. => None,
            VECTOR_TABLE.. => {
                self.vectors.write_table(offset - VECTOR_TABLE, from);
                None
            }
            _ => self.registers.write(offset, from).map(Event::Register),
        })
    }
}

#[inline]
fn within_bar(offset: u64, length: usize) -> Result<(), Errno> {
    let end = offset.checked_add(length as u64).ok_or(Errno::INVALID)?;
    if end > BAR_BYTES { Err(Errno::INVALID) } else { Ok(()) }
}
