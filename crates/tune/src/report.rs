//! What a survey has found.

use std::fmt;

use crate::knob::Knob;
use crate::tunable::Tunable;

/// What has a setting: a card, a core, a queue, a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whose {
    /// Its name, or the beginning of it.
    pub name: String,
    /// The number at its end, for those that are many.
    pub number: Option<u32>,
}

impl Whose {
    /// One with a name of its own.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), number: None }
    }

    /// One of many.
    #[must_use]
    pub fn numbered(name: &str, number: u32) -> Self {
        Self { name: name.to_owned(), number: Some(number) }
    }
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            Some(number) => write!(f, "{}{number}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

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
