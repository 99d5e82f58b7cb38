//! The mistakes that were found so far, and the words of those that several checks find.

use std::fmt;

use crate::diagnostic::nearest::nearest;
use crate::enclosure::refusal::{Mistake, MistakeKind};

/// What is wrong with the changes so far.
#[derive(Default)]
pub(super) struct Mistakes {
    /// The index of the change that is checked; `None` for the transaction as a whole.
    at: Option<usize>,
    found: Vec<Mistake>,
}

impl Mistakes {
    /// What is found from now on is wrong with the change at this index.
    pub(super) fn begin(&mut self, at: usize) {
        self.at = Some(at);
    }

    pub(super) fn count(&self) -> usize {
        self.found.len()
    }

    pub(super) fn into_list(self) -> Vec<Mistake> {
        self.found
    }

    pub(super) fn note(
        &mut self,
        kind: MistakeKind,
        object: &dyn fmt::Display,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.found.push(Mistake { change: self.at, ..Mistake::new(kind, object, message, advice) });
    }

    pub(super) fn missing(&mut self, name: &str, kind: &str, names: &[&str]) {
        let advice = match nearest(name, names) {
            Some(near) => format!("did you mean {near}?"),
            None if names.is_empty() => format!("the target has no {kind}"),
            None => format!("there are {}", names.join(", ")),
        };
        self.note(MistakeKind::NotFound, &name, format!("there is no such {kind}"), advice);
    }

    pub(super) fn busy(&mut self, object: &dyn fmt::Display, task: u64) {
        let advice = format!("`ebof target tasks {task} --wait` waits for its end");
        self.note(MistakeKind::Busy, object, format!("task {task} is changing it"), advice);
    }
}
