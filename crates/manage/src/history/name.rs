//! Names of objects that have a history: `function:d3/vf2`, `port:fabric0`, `target`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::diagnostic::nearest::names;

names! {
    /// What an object is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum SeriesKind {
        /// The target as a whole. It has no name.
        Target = "target";
        /// A drive: `d3`.
        Drive = "drive";
        /// A function of a drive: `d3/vf2`; `d3/pf` is its primary controller.
        Function = "function";
        /// A port, by its name.
        Port = "port";
        /// A namespace: `d3/ns4` of a drive, `NQN/ns1` of a subsystem that is no drive's.
        Namespace = "namespace";
        /// A host, by its NQN.
        Host = "host";
    }
}

/// The name of an object that has a history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesName {
    /// What it is.
    pub kind: SeriesKind,
    /// Its name; empty for the target.
    pub name: String,
}

/// Why a text names no object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` does not name an object: want target, drive:d3, function:d3/vf2, port:NAME, namespace:d3/ns4 or host:NQN"
)]
pub struct SeriesNameError(String);

impl SeriesKind {
    /// The object of this kind and name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> SeriesName {
        SeriesName { kind: self, name: name.into() }
    }
}

impl SeriesName {
    /// The target as a whole.
    #[must_use]
    pub fn target() -> Self {
        SeriesKind::Target.named("")
    }

    /// Among whom its share is told: the kind, and for a function its drive.
    pub(super) fn group(&self) -> String {
        match (self.kind, self.name.split_once('/')) {
            (SeriesKind::Function, Some((drive, _))) => format!("function:{drive}"),
            _ => self.kind.name().to_owned(),
        }
    }
}

impl fmt::Display for SeriesName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            SeriesKind::Target => f.write_str(self.kind.name()),
            kind => write!(f, "{kind}:{}", self.name),
        }
    }
}

impl FromStr for SeriesName {
    type Err = SeriesNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == SeriesKind::Target.name() {
            return Ok(Self::target());
        }
        let named = text.split_once(':').and_then(|(kind, name)| {
            let kind = SeriesKind::ALL.into_iter().skip(1).find(|known| known.name() == kind)?;
            (!name.is_empty()).then(|| kind.named(name))
        });
        named.ok_or_else(|| SeriesNameError(text.chars().filter(|c| !c.is_control()).take(64).collect()))
    }
}

impl Serialize for SeriesName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SeriesName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let host = "host:nqn.2014-08.org.example:host";
        for text in ["target", "drive:d3", "function:d3/vf2", "port:tcp://[::1]:4420", "namespace:d3/ns4", host] {
            assert_eq!(text.parse::<SeriesName>().unwrap().to_string(), text);
        }
        for text in ["", "drive", "drive:", "target:x", "disk:d3", "d3/vf2"] {
            text.parse::<SeriesName>().unwrap_err();
        }
    }
}
