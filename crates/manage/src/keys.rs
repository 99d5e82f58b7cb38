//! Rows that describe the keys of a configuration: name, accepted values, default, meaning.
//!
//! Each table has its rows beside its type (`TargetOptions::KEYS` and the others). From them come
//! the names that its reader knows, the checks of ranges, where a value goes, and the tables of
//! `docs/config.md`. How values are read is in `read`.

use std::ops::RangeInclusive;
use std::time::Duration;

use ebof_nvme::Nqn;

/// A key of the table that is read into a `T`.
pub(crate) struct Key<T: 'static> {
    pub(crate) name: &'static str,
    pub(crate) form: Form<T>,
    pub(crate) default: Absent,
    /// The text of the manual after the accepted values: unit and meaning.
    pub(crate) text: &'static str,
}

/// The accepted values, and a setter. Without a setter the reader of the table reads the key
/// itself, because it depends on other keys.
pub(crate) enum Form<T: 'static> {
    /// An integer within a range.
    Integer { range: RangeInclusive<u64>, set: Option<fn(&mut T, u64)> },
    /// Bytes within a range, a multiple of `step`.
    Size { range: RangeInclusive<u64>, step: u64, set: Option<fn(&mut T, u64)> },
    /// A duration within a range.
    Duration { range: RangeInclusive<Duration>, set: fn(&mut T, Duration) },
    /// `true` or `false`.
    Boolean { set: Option<fn(&mut T, bool)> },
    /// One of some names.
    Name { names: &'static [&'static str], set: fn(&mut T, &str) },
    /// Several of some names, at least one, each once.
    Names { names: &'static [&'static str], set: fn(&mut T, &[&str]) },
    /// Printable ASCII of limited length, as Identify fields want it.
    Printable { chars_max: usize, set: Option<fn(&mut T, String)> },
    /// An NQN.
    Nqn { set: Option<fn(&mut T, Nqn)> },
    /// A text that the setter parses.
    Text { set: fn(&mut T, &str) -> Result<(), Refused> },
    /// Another type, as the manual calls it.
    Other(&'static str),
}

/// The default of a key.
pub(crate) enum Absent {
    /// The key is required.
    Required,
    /// The value that a new `T` has.
    Value,
    /// A default that depends on something else, in words for the manual.
    Words(&'static str),
}

/// The error of an invalid text, with advice.
pub(crate) struct Refused {
    pub(crate) message: String,
    pub(crate) help: &'static str,
}

/// Stores a number; the range of its key fits into the field.
pub(crate) fn store<N: TryFrom<u64>>(field: &mut N, number: u64) {
    if let Ok(number) = N::try_from(number) {
        *field = number;
    }
}
