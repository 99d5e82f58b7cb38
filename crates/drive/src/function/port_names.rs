//! The ports that a function is given to: a set of names with limits, and its form on the medium.
//! Whether there are such ports is not known here.

use alloc::collections::BTreeSet;
use alloc::string::String;
use core::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

/// The names of the ports that a function is given to.
///
/// On the medium it is a list in ascending order. Earlier versions had one port, and wrote its
/// name as text: that is read as a set of one. They refuse a list, and with it the drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PortNames(BTreeSet<String>);

/// Why names are not those of a function's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PortNamesError {
    /// A name is empty or too long.
    #[error("the name of a port has 1 to {} characters", PortNames::NAME_CHARS_MAX)]
    Name,
    /// There are too many.
    #[error("a function is given to at most {} ports", PortNames::MAX)]
    TooMany,
    /// A name is there twice.
    #[error("a port of a function is named once")]
    Twice,
    /// The list on the medium is not in order.
    #[error("the ports of a function are in ascending order on the medium")]
    Order,
}

impl PortNames {
    /// Ports of a function at most: two adapters with four ports each, which is more than hosts
    /// use paths to a namespace. However many functions a drive has, and however long their names,
    /// the state in its checkpoint has room for that (`change/budget/tests.rs`).
    pub const MAX: usize = 8;
    /// Characters of a name at most.
    pub const NAME_CHARS_MAX: usize = 64;

    /// These ports, in any order.
    ///
    /// # Errors
    /// A name is empty, too long or there twice, or there are too many.
    pub fn new<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Result<Self, PortNamesError> {
        let mut all = Self::default();
        for name in names {
            all.insert(name.into())?;
        }
        Ok(all)
    }

    fn insert(&mut self, name: String) -> Result<(), PortNamesError> {
        if name.is_empty() || name.chars().count() > Self::NAME_CHARS_MAX {
            return Err(PortNamesError::Name);
        }
        if self.0.len() == Self::MAX {
            return Err(PortNamesError::TooMany);
        }
        if self.0.insert(name) { Ok(()) } else { Err(PortNamesError::Twice) }
    }

    /// Whether it is given to no port.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is given to this port.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Whether `other` has all of these ports.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Whether both have a port.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        !self.0.is_disjoint(&other.0)
    }

    /// The names, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl<'de> Deserialize<'de> for PortNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FromMedium)
    }
}

/// Reads the list, or the text that earlier versions wrote.
struct FromMedium;

impl<'de> Visitor<'de> for FromMedium {
    type Value = PortNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of ports, or the name of one")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<PortNames, E> {
        PortNames::new([name]).map_err(E::custom)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<PortNames, E> {
        Ok(PortNames::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PortNames, A::Error> {
        let mut all = PortNames::default();
        while let Some(name) = list.next_element::<String>()? {
            if all.0.last().is_some_and(|last| *last >= name) {
                return Err(A::Error::custom(PortNamesError::Order));
            }
            all.insert(name).map_err(A::Error::custom)?;
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests;
