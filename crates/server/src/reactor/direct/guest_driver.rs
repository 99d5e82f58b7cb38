//! Which function a guest's driver knows, and what the guest sees when its port has it no more.
//!
//! ```text
//!            enabled                      taken away, or another one is there
//! none known --------> known, at the port -----------------------------------> unplugged
//!     ^                                   <-----------------------------------    |
//!     |                                    the same one is back                   |
//!     +---------------------------------------------------------------------------+
//!                            found again by the guest's bus driver
//! ```
//! A driver repeats what it has not been answered as soon as it has a controller again, and looks
//! at identities afterwards. So nothing that it writes may reach a function that it does not know:
//! for it, the controller is unplugged. Its registers read as ones, and it cannot be enabled. A new
//! client knows no function.

use ebof_drive::FunctionId;
use ebof_fabrics::{PortId, Registry, Subsystem};
use ebof_nvme::Nqn;

/// A function, or whatever else a direct port has, by what tells its data from those of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) subsystem: Nqn,
    /// The drive's own UUID: another drive may have the name of one that was removed.
    drive: Option<[u8; 16]>,
    function: Option<FunctionId>,
}

impl Given {
    fn from_subsystem(subsystem: &Subsystem) -> Self {
        Self {
            subsystem: subsystem.nqn.clone(),
            drive: subsystem.drive.as_ref().map(|drive| drive.uuid),
            function: subsystem.function.as_ref().map(|function| function.id),
        }
    }

    /// What a port has now.
    pub(super) fn at(registry: &Registry, port: PortId) -> Option<Self> {
        registry.subsystem_at(port).map(|subsystem| Self::from_subsystem(subsystem))
    }
}

/// What the driver of a guest knows: nothing else may be enabled by it.
#[derive(Debug, Default)]
pub(super) struct GuestDriver {
    known: Option<Given>,
}

impl GuestDriver {
    /// It has enabled a function, and knows it from now on.
    pub(super) fn learn(&mut self, given: Given) {
        self.known = Some(given);
    }

    /// Its bus driver has found a function: whoever knew one before has let go of it.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    /// The subsystem of the function that it knows.
    pub(super) fn subsystem(&self) -> Option<&Nqn> {
        self.known.as_ref().map(|known| &known.subsystem)
    }

    /// Whether it may enable what its port has.
    pub(super) fn may_enable(&self, given: &Given) -> bool {
        self.known.as_ref().is_none_or(|known| known == given)
    }

    /// Whether the function that it knows is unplugged for it: its port has another one, or none
    /// and `is_returning` does not say that it is on its way back. Nobody else has its place then.
    pub(super) fn is_unplugged(&self, given: Option<&Given>, is_returning: impl FnOnce(&Nqn) -> bool) -> bool {
        self.known.as_ref().is_some_and(|known| match given {
            Some(given) => given != known,
            None => !is_returning(&known.subsystem),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(drive: u8) -> Given {
        let subsystem = Nqn::parse("nqn.2014-08.org.example:function").unwrap();
        Given { subsystem, drive: Some([drive; 16]), function: None }
    }

    #[test]
    fn a_driver_that_knows_none_may_enable_any_and_nothing_is_unplugged_for_it() {
        let mut driver = GuestDriver::default();
        assert!(driver.may_enable(&given(1)) && driver.subsystem().is_none());
        assert!(!driver.is_unplugged(None, |_| false) && !driver.is_unplugged(Some(&given(1)), |_| false));
        driver.learn(given(1));
        driver.forget();
        assert!(driver.may_enable(&given(2)) && !driver.is_unplugged(None, |_| false));
    }

    #[test]
    fn a_driver_may_enable_only_what_it_knows_and_sees_anything_else_as_unplugged() {
        let mut driver = GuestDriver::default();
        driver.learn(given(1));
        assert!(driver.may_enable(&given(1)) && !driver.is_unplugged(Some(&given(1)), |_| false));
        // The drive was replaced by another one of its name.
        assert!(!driver.may_enable(&given(2)) && driver.is_unplugged(Some(&given(2)), |_| true));
        assert!(driver.is_unplugged(None, |_| false));
        assert!(!driver.is_unplugged(None, |subsystem| Some(subsystem) == driver.subsystem()), "it comes back");
    }
}
