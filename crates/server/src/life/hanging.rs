//! What did not end when a target was stopped, because a device does not answer.

use std::fmt;
use std::time::Duration;

/// How long commands at devices are waited for when all connections are closed, and then as long
/// again at most for drives to be closed in order.
pub(crate) const HANGING: Duration = Duration::from_secs(3);

/// What is left of a target that was stopped. The system keeps a process that has requests at a
/// device until that answers, whatever ends the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hanging {
    /// Threads whose commands are still at devices.
    pub threads: Vec<String>,
    /// Drives that could not be closed in order: the next start reads their journal.
    pub drives: Vec<String>,
}

impl fmt::Display for Hanging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threads, drives } = self;
        f.write_str("not everything has ended, because a device does not answer: ")?;
        if !threads.is_empty() {
            write!(f, "commands of {} are still there", threads.join(", "))?;
        }
        if !drives.is_empty() {
            let behind = if threads.is_empty() { "" } else { "; " };
            write!(f, "{behind}not closed in order: drive {}", drives.join(", "))?;
        }
        f.write_str("; no command was acknowledged that was not executed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_left() {
        let both =
            Hanging { threads: vec!["ebof-reactor0".to_owned()], drives: vec!["d0".to_owned(), "d1".to_owned()] };
        assert_eq!(
            both.to_string(),
            "not everything has ended, because a device does not answer: commands of ebof-reactor0 are still there; \
             not closed in order: drive d0, d1; no command was acknowledged that was not executed"
        );
        let drives = Hanging { threads: Vec::new(), ..both };
        assert!(drives.to_string().contains("answer: not closed in order"), "{drives}");
    }
}
