//! Names of network interfaces and block devices, which become parts of paths.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of a network interface or a block device: it is one component of a path, and means
/// nothing else to a shell or a terminal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Names that the kernel gives are shorter: interfaces have 15 bytes, block devices 31.
const BYTES_MAX: usize = 31;

/// A text that is no [`Name`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no name of a network interface or a block device", .0.escape_debug())]
pub struct NotAName(String);

impl Name {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = NotAName;

    fn try_from(text: String) -> Result<Self, NotAName> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:@".contains(&byte);
        let begins = text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
        if begins && text.len() <= BYTES_MAX && text.bytes().all(is_good) {
            Ok(Self(text))
        } else {
            Err(NotAName(text))
        }
    }
}

impl TryFrom<&str> for Name {
    type Error = NotAName;

    fn try_from(text: &str) -> Result<Self, NotAName> {
        Self::try_from(text.to_owned())
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_component_of_a_path() {
        for good in ["eth0", "enp1s0f1np1", "eth0.100", "nvme0n1", "7bond"] {
            assert!(Name::try_from(good).is_ok(), "{good}");
        }
        let long = "x".repeat(BYTES_MAX + 1);
        for bad in ["", ".", "..", "../x", "a/b", "a b", "$(x)", "-n", "a\n", "é", &long] {
            assert!(Name::try_from(bad).is_err(), "{bad}");
        }
    }
}
