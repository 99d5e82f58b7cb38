//! What a survey has found.

use crate::knob::Knob;
use crate::tunable::Tunable;
use crate::whose::Whose;

/// A setting, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its kind.
    pub tunable: Tunable,
    /// What has it.
    pub whose: Whose,
    /// What was found.
    pub state: State,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is as recommended.
    Right {
        /// The value.
        current: String,
    },
    /// It is not, and can be changed here.
    Differs {
        /// The value.
        current: String,
        /// The recommended one.
        recommended: String,
        /// Where it is.
        knob: Knob,
    },
    /// It is not, and a person has to decide or to do more.
    ByHand {
        /// The value.
        current: String,
        /// The recommended one.
        recommended: String,
        /// Why it is not changed here.
        reason: String,
        /// A command that changes it.
        command: String,
    },
    /// It cannot be seen.
    Unseen {
        /// What prevented it: a permission, a missing file, a kernel without it.
        reason: String,
    },
    /// This machine has no such setting.
    NotApplicable {
        /// What this machine has instead, or lacks.
        reason: String,
    },
}

impl State {
    /// Its name, for programs and for people. Stable.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Right { .. } => "right",
            Self::Differs { .. } => "differs",
            Self::ByHand { .. } => "by-hand",
            Self::Unseen { .. } => "unseen",
            Self::NotApplicable { .. } => "not-applicable",
        }
    }
}

/// All settings, in the order in which they are changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The settings.
    pub settings: Vec<Setting>,
}

impl Report {
    /// Those that differ and can be changed: where, the value now, the recommended one.
    pub fn differing(&self) -> impl Iterator<Item = (&Knob, &str, &str)> {
        self.settings.iter().filter_map(|setting| match &setting.state {
            State::Differs { current, recommended, knob } => Some((knob, current.as_str(), recommended.as_str())),
            _ => None,
        })
    }
}
