//! Looks at every setting, and says what it should be.
//!
//! Owns the order of the settings, which is that of changing them, and what they have in common.
//! What is recommended for each is in the modules below.

mod drives;
mod interface;
mod interrupts;
mod roce;
mod shared;

use std::io;

use crate::cores::Cores;
use crate::knob::Knob;
use crate::machine::Machine;
use crate::name::Name;
use crate::report::{Report, Setting, State};
use crate::whose::Whose;
use crate::{Tunable, apply};
use interface::Card;
use rustix::io::Errno;

/// What the machine is to be good at, where both cannot be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goal {
    /// Bandwidth, and commands in a second.
    #[default]
    Throughput,
    /// Time for a command.
    Latency,
}

/// Which cores serve the interrupts of a network card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interrupts {
    /// [`Self::OneCore`] for cards with RDMA, [`Self::Spread`] for others.
    #[default]
    ByCard,
    /// One core for all of them.
    OneCore,
    /// A core for each queue.
    Spread,
}

/// The smallest MTU that can be asked for, IPv6's.
pub const MTU_MIN: u32 = 1280;
/// The largest, an IP packet's.
pub const MTU_MAX: u32 = 65535;

/// What is looked at, and how it is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SurveyOptions {
    /// What the machine is to be good at.
    pub goal: Goal,
    /// The network interfaces; if it is empty, all that have a card and a link.
    pub interfaces: Vec<Name>,
    /// The block devices; if it is empty, all NVMe drives.
    pub devices: Vec<Name>,
    /// Which cores serve interrupts.
    pub interrupts: Interrupts,
    /// The one core, if it is not to be chosen here.
    pub core: Option<u32>,
    /// The MTU, which is not changed otherwise.
    pub mtu: Option<u32>,
}

/// What was asked for is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SurveyError {
    /// There is no such interface.
    #[error("there is no network interface {name}")]
    NoInterface {
        /// Its name.
        name: Name,
        /// Those that there are.
        known: Vec<String>,
    },
    /// There is no such device, or it is a part of one.
    #[error("there is no block device {name} in /sys/block")]
    NoDevice {
        /// Its name.
        name: Name,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The core is not online.
    #[error("core {core} is not online")]
    NoCore {
        /// The core.
        core: u32,
        /// Those that are, as a list.
        online: String,
    },
}

/// Looks at all settings.
///
/// # Errors
/// What the options name is not there.
pub fn survey(machine: &dyn Machine, options: &SurveyOptions) -> Result<Report, SurveyError> {
    let online = machine.read("/sys/devices/system/cpu/online").ok().and_then(|text| Cores::from_list(&text));
    let online = online.filter(|online| !online.is_empty());
    if let (Some(core), Some(online)) = (options.core, &online)
        && !online.contains(core)
    {
        return Err(SurveyError::NoCore { core, online: online.to_list() });
    }
    let mut survey = Survey { machine, options, online, settings: Vec::new() };
    let interfaces = interface::chosen(&survey)?;
    let devices = drives::chosen(&survey)?;
    interrupts::inspect(&mut survey, &interfaces);
    shared::governors(&mut survey);
    for interface in &interfaces {
        interface::inspect(&mut survey, interface);
    }
    shared::busy_polling(&mut survey);
    shared::socket_buffers(&mut survey);
    roce::inspect(&mut survey, &interfaces);
    drives::inspect(&mut survey, &devices);
    Ok(Report { settings: survey.settings })
}

/// A survey that is under way.
struct Survey<'a> {
    machine: &'a dyn Machine,
    options: &'a SurveyOptions,
    /// The cores that are online, if they can be seen.
    online: Option<Cores>,
    settings: Vec<Setting>,
}

impl Survey<'_> {
    fn push(&mut self, tunable: Tunable, whose: Whose, state: State) {
        self.settings.push(Setting { tunable, whose, state });
    }

    fn not_applicable(&mut self, tunable: Tunable, whose: Whose, reason: impl Into<String>) {
        self.push(tunable, whose, State::NotApplicable { reason: reason.into() });
    }

    fn unseen(&mut self, tunable: Tunable, whose: Whose, reason: impl Into<String>) {
        self.push(tunable, whose, State::Unseen { reason: reason.into() });
    }

    /// Compares the value of a knob with what `recommend` makes of it.
    fn check(&mut self, knob: &Knob, recommend: impl FnOnce(&str) -> String) {
        let state = match knob.read(self.machine) {
            Ok(current) => {
                let recommended = recommend(&current);
                if current == recommended {
                    State::Right { current }
                } else {
                    State::Differs { current, recommended, knob: knob.clone() }
                }
            }
            Err(error) => missing(&error),
        };
        self.push(knob.tunable(), knob.whose(), state);
    }

    /// Compares the value of a knob with a fixed one.
    fn expect(&mut self, knob: &Knob, recommended: &str) {
        self.check(knob, |_| recommended.to_owned());
    }
}

/// What an error of reading means: there is no such setting, or it cannot be seen.
fn missing(error: &io::Error) -> State {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    if errno == Some(Errno::OPNOTSUPP) || error.kind() == io::ErrorKind::Unsupported {
        return State::NotApplicable { reason: "the driver does not offer it".to_owned() };
    }
    State::Unseen { reason: apply::explain(error) }
}

/// The cores in the order in which queues are given to them: those near the card first.
fn order(online: &Cores, card: &Card) -> Vec<u32> {
    let near = online.iter().filter(|&core| card.near.contains(core));
    let far = online.iter().filter(|&core| !card.near.contains(core));
    near.chain(far).collect()
}
