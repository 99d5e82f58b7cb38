//! Why changes are refused: all mistakes at once.

use std::borrow::Cow;
use std::fmt;

use ebof_grammar::keys::without_keys;
use serde::{Deserialize, Serialize};

/// Everything that is wrong with a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The mistakes, by change.
    pub mistakes: Vec<Mistake>,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mistake {
    /// The sort, for programs.
    pub kind: MistakeKind,
    /// The index of the change in its transaction, from 0; `None` for the transaction as a whole.
    pub change: Option<usize>,
    /// The object that it is about: `d3/vf2`.
    pub object: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub advice: String,
}

/// The sort of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MistakeKind {
    /// It does not exist.
    NotFound,
    /// It contradicts what there is, or another change.
    Conflict,
    /// Another task is changing it: later it may be possible.
    Busy,
    /// A value is not accepted.
    Value,
    /// It was planned from what is not there any more: another look may help.
    Outdated,
    /// It is not known whether it is stored: it is not in force, and may be after a restart.
    Unknown,
    /// It cannot be stored, and nothing was changed.
    NotStored,
    /// Whoever asks may not have it done.
    NotAllowed,
}

impl Refused {
    /// Of a single mistake that is no change's. The message may repeat what somebody has sent: of
    /// that, control characters and what is beyond 4096 bytes are left out.
    #[must_use]
    pub fn because(kind: MistakeKind, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { mistakes: vec![Mistake::new(kind, "", message, advice)] }
    }

    /// Whether the same changes may be possible later.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.mistakes.iter().all(|mistake| mistake.kind == MistakeKind::Busy)
    }
}

impl Mistake {
    /// Of no change. The object and the message may repeat what somebody has sent: of that, control
    /// characters, keys and what is beyond 4096 bytes are left out.
    #[must_use]
    pub fn new(
        kind: MistakeKind,
        object: &(impl fmt::Display + ?Sized),
        message: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (object, message) = (printable(object.to_string()), printable(message.into()));
        Self { kind, change: None, object, message, advice: advice.into() }
    }
}

/// A text without control characters, but for ends of lines, and its beginning if it is long.
fn printable(text: String) -> String {
    const BYTES_MAX: usize = 4096;
    let text = match without_keys(&text) {
        Cow::Owned(shown) => shown,
        Cow::Borrowed(_) => text,
    };
    if text.len() <= BYTES_MAX && !text.contains(char::is_control) {
        return text;
    }
    let is_printed = |c: &char| *c == '\n' || !c.is_control();
    let mut left = BYTES_MAX;
    let fits = |c: &char| left.checked_sub(c.len_utf8()).map(|less| left = less).is_some();
    text.chars().filter(is_printed).take_while(fits).collect()
}

/// `d3/vf2: there is no such function; drive d3 has vf1 to vf5`
impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.object.is_empty() {
            write!(f, "{}: ", self.object)?;
        }
        write!(f, "{}; {}", self.message, self.advice)
    }
}

/// One mistake to a line.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, mistake) in self.mistakes.iter().enumerate() {
            write!(f, "{}{mistake}", if at > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repeated_of_a_request_is_printable_and_bounded() {
        let told = |text: &str| Refused::because(MistakeKind::Value, text, "").mistakes.remove(0).message;
        assert_eq!(told("`x\r\ny\u{1b}[2J\0` is ä"), "`x\ny[2J` is ä");
        assert_eq!(told("unknown field `DHHC-1:01:AAEC:` at 1"), "unknown field `DHHC-1:***` at 1");
        assert_eq!(told(&"ä".repeat(4096)), "ä".repeat(2048));
        assert_eq!(told(&format!("a{}", "ä".repeat(4096))).len(), 4095);
    }
}
