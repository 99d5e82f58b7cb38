//! To whom a namespace is attached: a function, a host, or every host.

use std::fmt;
use std::str::FromStr;

use ebof_nvme::Nqn;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use super::name::FunctionName;

/// Who may have a namespace of a drive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Attachee {
    /// A function of the same drive: `d3/vf2`.
    Function(FunctionName),
    /// A host, by its NQN, over the drive's own subsystem. It need not have been there yet.
    Host(Nqn),
    /// Every host that may use the drive's own subsystem: `*`.
    Everyone,
}

/// A text names nobody that a namespace could be attached to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is neither a function (such as d3/vf2) nor a host's NQN (such as nqn.2014-08.org.example:h1) nor *")]
pub struct AttacheeError(String);

impl FromStr for Attachee {
    type Err = AttacheeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Ok(Self::Everyone);
        }
        if let Ok(function) = text.parse() {
            return Ok(Self::Function(function));
        }
        let shortened = || text.chars().filter(|c| !c.is_control()).take(64).collect();
        // Host names that are no NQNs are taken from hosts, but whoever writes one has made a
        // mistake.
        let nqn = Nqn::parse(text).ok().filter(|_| text.starts_with("nqn."));
        nqn.map(Self::Host).ok_or_else(|| AttacheeError(shortened()))
    }
}

impl fmt::Display for Attachee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(function) => function.fmt(f),
            Self::Host(nqn) => nqn.fmt(f),
            Self::Everyone => f.write_str("*"),
        }
    }
}

impl Serialize for Attachee {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Attachee {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_namespace_is_read_as_it_is_written() {
        for text in ["d3/vf2", "nqn.2014-08.org.example:host", "*"] {
            assert_eq!(text.parse::<Attachee>().unwrap().to_string(), text);
        }
        for text in
            ["", "d3", "d3/ns4", "d3/vf128", "host", "**", &format!("nqn.2014-08.org.example:{}", "a".repeat(300))]
        {
            let error = text.parse::<Attachee>().unwrap_err().to_string();
            assert!(error.contains("such as d3/vf2") && error.len() < 200, "{error}");
        }
    }
}
