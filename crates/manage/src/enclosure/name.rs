//! Names of objects: `d3/vf2` is a function of drive `d3`, `d3/ns4` a namespace of it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::config::is_drive_name;

/// The most functions of a drive.
pub const FUNCTIONS_MAX: u16 = 127;

/// A function of a drive: `d3/vf2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionName {
    /// The drive's name.
    pub drive: String,
    /// Its number, 1 to 127.
    pub number: u16,
}

/// A namespace of a drive: `d3/ns4`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceName {
    /// The drive's name.
    pub drive: String,
    /// Its NSID.
    pub nsid: u32,
}

/// Why a text names no object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// Not the name of a function.
    #[error("`{0}` does not name a function: want DRIVE/vfN with N from 1 to 127, such as d3/vf2")]
    Function(String),
    /// Not the name of a namespace.
    #[error("`{0}` does not name a namespace: want DRIVE/nsN, such as d3/ns4")]
    Namespace(String),
}

/// `DRIVE/` and a number behind `word`, without a sign or a leading zero.
fn split<'t>(text: &'t str, word: &str) -> Option<(&'t str, u32)> {
    let (drive, rest) = text.split_once('/')?;
    let digits = rest.strip_prefix(word)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    let number = digits.parse().ok().filter(|_| is_number)?;
    is_drive_name(drive).then_some((drive, number))
}

impl FromStr for FunctionName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = split(text, "vf").and_then(|(drive, number)| {
            let number = u16::try_from(number).ok().filter(|number| (1..=FUNCTIONS_MAX).contains(number))?;
            Some(Self { drive: drive.to_owned(), number })
        });
        parsed.ok_or_else(|| NameError::Function(shortened(text)))
    }
}

impl FromStr for NamespaceName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = split(text, "ns").map(|(drive, nsid)| Self { drive: drive.to_owned(), nsid });
        parsed.ok_or_else(|| NameError::Namespace(shortened(text)))
    }
}

/// As much of a text as a message repeats.
fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}

impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/vf{}", self.drive, self.number)
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/ns{}", self.drive, self.nsid)
    }
}

macro_rules! as_text {
    ($($name:ty),*) => {
        $(impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        })*
    };
}

as_text!(FunctionName, NamespaceName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["d3/vf2", "a.b-c_1/vf127", "d/vf1"] {
            assert_eq!(text.parse::<FunctionName>().unwrap().to_string(), text);
        }
        for text in ["d3/ns4", "d3/ns4294967295"] {
            assert_eq!(text.parse::<NamespaceName>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for text in ["", "d3", "d3/", "d3/vf", "d3/vf0", "d3/vf128", "d3/vf02", "d3/vf+2", "/vf2", "d 3/vf2", "d3/ns1"]
        {
            let error = text.parse::<FunctionName>().unwrap_err().to_string();
            assert!(error.contains("such as d3/vf2"), "{error}");
        }
        for text in ["d3/ns0", "d3/ns4294967296", "d3/vf2", "d3/ns-1", "d3/ns"] {
            text.parse::<NamespaceName>().unwrap_err();
        }
    }
}
