//! The measures by which a process gives up what it does not need: their names, and sets of them.
//!
//! What they do is `ebof_rights`'.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::diagnostic::nearest::names;

names! {
    /// One of them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Measure {
        /// No program that is started gets more rights (`PR_SET_NO_NEW_PRIVS`).
        Privileges = "privileges";
        /// Capabilities of root that are not needed.
        Capabilities = "capabilities";
        /// A filter of system calls.
        SystemCalls = "system-calls";
        /// Paths that may be opened.
        Paths = "paths";
        /// No core dump, and no debugger of the same user: both would have keys.
        Dumps = "dumps";
    }
}

/// Some of them: `all`, `none`, or names with commas between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measures(u8);

/// A text that names no measures.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a measure")]
pub struct NoMeasure(String);

impl NoMeasure {
    /// What is accepted.
    pub const ADVICE: &str = "accepted: all, none, or some of privileges, capabilities, system-calls, paths, dumps, with \
                              commas between them";
}

impl Measures {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self((1 << Measure::ALL.len()) - 1);

    /// Whether this is one of them.
    #[must_use]
    pub const fn has(self, measure: Measure) -> bool {
        self.0 & (1 << measure as u8) != 0
    }

    /// These, and that one.
    #[must_use]
    pub const fn with(self, measure: Measure) -> Self {
        Self(self.0 | (1 << measure as u8))
    }

    /// These without that one.
    #[must_use]
    pub const fn without(self, measure: Measure) -> Self {
        Self(self.0 & !(1 << measure as u8))
    }

    fn iter(self) -> impl Iterator<Item = Measure> {
        Measure::ALL.into_iter().filter(move |&measure| self.has(measure))
    }
}

impl fmt::Display for Measures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ALL => f.write_str("all"),
            Self::NONE => f.write_str("none"),
            some => f.write_str(&some.iter().map(Measure::name).collect::<Vec<_>>().join(",")),
        }
    }
}

impl FromStr for Measures {
    type Err = NoMeasure;

    fn from_str(text: &str) -> Result<Self, NoMeasure> {
        match text {
            "all" => return Ok(Self::ALL),
            "none" => return Ok(Self::NONE),
            _ => {}
        }
        let mut measures = Self::NONE;
        for name in text.split(',').map(str::trim) {
            let measure = Measure::ALL.into_iter().find(|measure| measure.name() == name);
            measures = measures.with(measure.ok_or_else(|| NoMeasure(name.to_owned()))?);
        }
        Ok(measures)
    }
}

impl Serialize for Measures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Measures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_is_read_as_it_is_written() {
        for bits in 0..=Measures::ALL.0 {
            let measures = Measures(bits);
            assert_eq!(measures.to_string().parse(), Ok(measures));
        }
        assert_eq!("dumps, paths".parse(), Ok(Measures::NONE.with(Measure::Paths).with(Measure::Dumps)));
        for wrong in ["", "path", "all,paths", "paths,", "Paths"] {
            assert!(wrong.parse::<Measures>().is_err(), "{wrong}");
        }
        assert!(Measure::ALL.iter().all(|measure| NoMeasure::ADVICE.contains(measure.name())));
    }
}
