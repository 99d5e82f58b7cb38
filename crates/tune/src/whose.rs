//! Whose a setting is.

use std::fmt;

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
