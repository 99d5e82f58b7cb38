//! The controller's properties: CAP, VS, CC, CSTS and CRTO, and what writing CC does.
//!
//! ```text
//!            EN 0->1               SHN set             quiesced
//! Disabled ----------> Ready -----------> ShuttingDown ---------> ShutDown
//!    ^                   |                     |                     |
//!    |     quiesced      |       EN 1->0       |                     |
//!    +--- Resetting <----+---------------------+---------------------+
//! ```
//! It owns no queue: what has to happen to them is returned as an [`Effect`].

use ebof_nvme::Status;
use ebof_nvme::connect::Property;
use ebof_nvme::property::{Cap, Cc, Csts, Version, offset};

use crate::association::Association;
use crate::task::outcome::{Fault, byte};

/// The version of the Base specification that is announced (VS, and VER of Identify Controller).
pub(crate) const VERSION: Version = Version::V2_1;

/// CC and what follows from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(crate) cc: Cc,
    pub(crate) phase: EnablingPhase,
    /// Resets and shutdowns that are not [`Registers::quiesced`]: a reset may begin during a
    /// shutdown, and is complete when both are.
    quiescing: u8,
}

/// Where the controller is between CC.EN and CSTS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EnablingPhase {
    /// CSTS.RDY is 0.
    #[default]
    Disabled,
    /// CSTS.RDY is 1.
    Ready,
    /// CSTS.SHST is 01b.
    ShuttingDown,
    /// CSTS.SHST is 10b; RDY still follows EN.
    ShutDown,
    /// EN is 0, RDY not yet.
    Resetting,
}

/// What writing CC sets off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// The controller became ready.
    Enabled,
    /// Controller level reset: I/O queues are to be closed, then [`Registers::quiesced`].
    Reset,
    /// Shutdown: I/O queues are to be closed, caches flushed if it is a normal one, then
    /// [`Registers::quiesced`].
    Shutdown {
        /// SHN is 01b.
        normal: bool,
    },
}

impl Registers {
    /// CSTS.
    pub(crate) fn csts(self) -> Csts {
        let ready = if self.cc.enabled() { Csts::READY } else { 0 };
        Csts(match self.phase {
            EnablingPhase::Disabled => 0,
            EnablingPhase::Ready | EnablingPhase::Resetting => Csts::READY,
            EnablingPhase::ShuttingDown => ready | Csts::SHUTDOWN_OCCURRING,
            EnablingPhase::ShutDown => ready | Csts::SHUTDOWN_COMPLETE,
        })
    }

    /// The value of a property.
    pub(crate) fn read(self, property: Property, association: &Association) -> Result<u64, Fault> {
        let cap = cap(association);
        let (bytes, value) = match property.offset {
            offset::CAP => (8, cap.0),
            offset::VS => (4, u64::from(VERSION.0)),
            offset::CC => (4, u64::from(self.cc.0)),
            offset::CSTS => (4, u64::from(self.csts().0)),
            // CRWMT, in the units of CAP.TO.
            offset::CRTO => (4, u64::from(cap.timeout_ms() / 500)),
            // NSSR is absent: CAP.NSSRS is 0.
            _ => return Err(Fault::field(byte::CDW11)),
        };
        if property.bytes == Some(bytes) { Ok(value) } else { Err(Fault::field(byte::CDW10)) }
    }

    /// Writes a property; `io` says whether the controller has I/O queues, whose settings are
    /// checked only then.
    pub(crate) fn write(&mut self, property: Property, io: bool) -> Result<Effect, Fault> {
        if property.offset != offset::CC {
            return Err(Fault::field(byte::CDW11));
        }
        if property.bytes != Some(4) {
            return Err(Fault::field(byte::CDW10));
        }
        let [a, b, c, d, ..] = property.value.to_le_bytes();
        let (next, effect) = self.transition(Cc(u32::from_le_bytes([a, b, c, d])), io)?;
        *self = next;
        Ok(effect)
    }

    /// The transition that writing `cc` makes.
    fn transition(self, cc: Cc, io: bool) -> Result<(Self, Effect), Fault> {
        if cc.0 & !Cc::DEFINED != 0 {
            return Err(Fault::field(byte::CDW12));
        }
        match (self.cc.enabled(), cc.enabled()) {
            (false, true) => self.enable(cc, io),
            (true, false) => Ok((self.quiesce(cc, EnablingPhase::Resetting), Effect::Reset)),
            (false, false) => {
                // There is nothing to shut down: SHST follows SHN at once.
                let phase = match self.phase {
                    EnablingPhase::Disabled if cc.shutdown() != 0 => EnablingPhase::ShutDown,
                    phase => phase,
                };
                Ok((Self { cc, phase, ..self }, Effect::None))
            }
            (true, true) => self.shut_down(cc),
        }
    }

    fn enable(self, cc: Cc, io: bool) -> Result<(Self, Effect), Fault> {
        // The host must wait for CSTS.RDY to become 0 before it sets EN again.
        if self.phase == EnablingPhase::Resetting {
            return Err(Fault::new(Status::COMMAND_SEQUENCE_ERROR));
        }
        // Controllers without I/O queues have no use for IOSQES, IOCQES and CSS.
        let entry_sizes = cc.iosqes() == 6 && cc.iocqes() == 4;
        let legal = cc.shutdown() == 0 && cc.arbitration() == 0 && cc.page_shift() == 0;
        // Both say the same here, where there is one command set. Linux and SPDK select all where
        // CAP has it, TrueNAS' client always.
        let command_set = matches!(cc.command_set(), Cc::COMMAND_SET_NVM | Cc::COMMAND_SET_ALL);
        if !legal || io && !(entry_sizes && command_set) {
            return Err(Fault::field(byte::CDW12));
        }
        Ok((Self { cc, phase: EnablingPhase::Ready, ..self }, Effect::Enabled))
    }

    fn shut_down(self, cc: Cc) -> Result<(Self, Effect), Fault> {
        // CSS, MPS, AMS, IOSQES and IOCQES may change only while the controller is disabled.
        if cc.with_shutdown(0) != self.cc.with_shutdown(0) {
            return Err(Fault::field(byte::CDW12));
        }
        match (self.phase, cc.shutdown()) {
            (EnablingPhase::Ready, shn @ (1 | 2)) => {
                Ok((self.quiesce(cc, EnablingPhase::ShuttingDown), Effect::Shutdown { normal: shn == 1 }))
            }
            (_, 3) => Err(Fault::field(byte::CDW12)),
            // SHST stays as it is until the controller is reset.
            _ => Ok((Self { cc, ..self }, Effect::None)),
        }
    }

    /// One more reset or shutdown is under way.
    fn quiesce(self, cc: Cc, phase: EnablingPhase) -> Self {
        assert!(self.quiescing < 2, "no shutdown begins during another, and nothing but the end of both after a reset");
        Self { cc, phase, quiescing: self.quiescing + 1 }
    }

    /// A reset or shutdown is over: its I/O queues are closed and caches flushed.
    ///
    /// # Panics
    /// None was under way: what ends one is the completion of the command that began it.
    pub(crate) fn quiesced(&mut self) {
        self.quiescing = self.quiescing.checked_sub(1).expect("a reset or shutdown that is over has begun");
        if self.quiescing > 0 {
            return;
        }
        self.phase = match self.phase {
            EnablingPhase::Resetting => EnablingPhase::Disabled,
            EnablingPhase::ShuttingDown => EnablingPhase::ShutDown,
            phase @ (EnablingPhase::Disabled | EnablingPhase::Ready | EnablingPhase::ShutDown) => {
                unreachable!("no write of CC leads from a reset or shutdown that is under way to {phase:?}")
            }
        };
    }
}

/// CAP of a controller.
pub(crate) fn cap(association: &Association) -> Cap {
    cap_of(association.max_queue_entries(), association.limits.ready_timeout_ms, !association.discovery)
}

/// CAP of a controller with queues of so many entries; `io` says whether it has I/O queues.
pub(crate) fn cap_of(queue_entries: u16, ready_timeout_ms: u32, io: bool) -> Cap {
    let units = ready_timeout_ms.div_ceil(500).clamp(1, 255);
    let cap = Cap::new(queue_entries.into(), u8::try_from(units).unwrap_or(u8::MAX));
    // Base, CC: for discovery controllers CSS is 000b.
    let cap = if io { cap.with_all_command_sets() } else { cap };
    // CRMS.CRWMS: the controller is ready with its media, in the time that CRTO says.
    Cap(cap.0 | 1 << 59)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec;
    use alloc::vec::Vec;
    use core::fmt::Write;

    const PHASES: [(bool, EnablingPhase); 6] = [
        (false, EnablingPhase::Disabled),
        (true, EnablingPhase::Ready),
        (true, EnablingPhase::ShuttingDown),
        (true, EnablingPhase::ShutDown),
        (false, EnablingPhase::ShutDown),
        (false, EnablingPhase::Resetting),
    ];

    fn registers(enabled: bool, phase: EnablingPhase) -> Registers {
        let quiescing = u8::from(matches!(phase, EnablingPhase::ShuttingDown | EnablingPhase::Resetting));
        Registers { cc: if enabled { Cc::ENABLE } else { Cc(0) }, phase, quiescing }
    }

    // @test data.reset-and-shutdown
    #[test]
    fn a_reset_during_a_shutdown_is_complete_when_both_are() {
        let ready = registers(true, EnablingPhase::Ready);
        let (shutting, _) = ready.transition(Cc::ENABLE.with_shutdown(1), true).unwrap();
        let (mut resetting, effect) = shutting.transition(Cc(0), true).unwrap();
        assert_eq!(effect, Effect::Reset);
        resetting.quiesced();
        assert_eq!(resetting.csts().0 & Csts::READY, Csts::READY, "the reset is under way");
        resetting.quiesced();
        assert_eq!((resetting.phase, resetting.csts().0), (EnablingPhase::Disabled, 0));
    }

    #[test]
    fn both_entry_sizes_are_to_be_what_they_can_be() {
        let ready = registers(false, EnablingPhase::Disabled);
        let sizes = |iosqes: u32, iocqes: u32| Cc(1 | iosqes << 16 | iocqes << 20);
        assert!(ready.transition(sizes(6, 4), true).is_ok());
        for (iosqes, iocqes) in [(6, 5), (6, 0), (5, 4), (0, 4)] {
            assert!(ready.transition(sizes(iosqes, iocqes), true).is_err(), "{iosqes}, {iocqes}");
        }
    }

    // @test wire.enable-and-shutdown
    #[test]
    fn the_transition_table() {
        let writes = [
            ("0", Cc(0)),
            ("EN", Cc::ENABLE),
            ("EN, no sizes", Cc(1)),
            ("EN, CSS 6", Cc(Cc::ENABLE.0 | 6 << 4)),
            ("EN, CSS 7", Cc(Cc::ENABLE.0 | 7 << 4)),
            ("EN, MPS 1", Cc(Cc::ENABLE.0 | 1 << 7)),
            ("EN, SHN 1", Cc::ENABLE.with_shutdown(1)),
            ("EN, SHN 2", Cc::ENABLE.with_shutdown(2)),
            ("EN, SHN 3", Cc::ENABLE.with_shutdown(3)),
            ("SHN 1", Cc(0).with_shutdown(1)),
            ("reserved bit 1", Cc(2)),
        ];
        let mut table = String::new();
        for (enabled, phase) in PHASES {
            let state = registers(enabled, phase);
            writeln!(table, "{phase:?} (EN {}, CSTS {:#x})", u8::from(enabled), state.csts().0).unwrap();
            for (name, cc) in writes {
                let line = match state.transition(cc, true) {
                    Ok((next, effect)) => format!("{:?} (CSTS {:#x}), {effect:?}", next.phase, next.csts().0),
                    Err(fault) => format!("{} at byte {:?}", fault.status, fault.location.map(|at| at.byte)),
                };
                writeln!(table, "  {name:16} -> {line}").unwrap();
            }
            if state.quiescing > 0 {
                let mut quiesced = state;
                quiesced.quiesced();
                writeln!(table, "  (quiesced)       -> {:?} (CSTS {:#x})", quiesced.phase, quiesced.csts().0).unwrap();
            }
        }
        insta::assert_snapshot!(table);
    }

    /// Whatever a host writes, and however late what it waits for is done.
    #[test]
    fn no_sequence_of_writes_begins_more_than_can_end() {
        let writes = (0..16).map(|bits: u32| {
            let enable = if bits & 1 != 0 { Cc::ENABLE } else { Cc(0) };
            if bits & 8 != 0 { Cc(enable.0 | 2) } else { enable.with_shutdown((bits >> 1 & 3) as u8) }
        });
        let mut known = vec![Registers::default()];
        let mut at = 0;
        while let Some(&state) = known.get(at) {
            at += 1;
            let mut next: Vec<_> = writes.clone().filter_map(|cc| Some(state.transition(cc, true).ok()?.0)).collect();
            if state.quiescing > 0 {
                let mut quiesced = state;
                quiesced.quiesced();
                next.push(quiesced);
            }
            for state in next {
                if !known.contains(&state) {
                    known.push(state);
                }
            }
        }
        assert!(known.iter().any(|state| state.quiescing == 2) && known.len() < 100, "{}", known.len());
    }

    #[test]
    fn a_discovery_controller_needs_no_entry_sizes() {
        assert_eq!(registers(false, EnablingPhase::Disabled).transition(Cc(1), false).unwrap().1, Effect::Enabled);
    }
}
