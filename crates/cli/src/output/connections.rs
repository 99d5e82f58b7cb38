//! Views of what `connect-all`, `disconnect` and `disconnect-all` did.

use std::fmt::Write as _;

use ebof_attach::Report;
use ebof_manage::Diagnostics;

use super::View;
use super::attached::ConnectView;
use super::json::{Json, Object};
use super::text::safe;
use crate::failure;

/// The result of `connect-all`.
#[derive(Default)]
pub(crate) struct ConnectAllView {
    /// Connected now.
    pub(crate) connected: Vec<ConnectView>,
    /// Subsystems that were skipped, and why.
    pub(crate) skipped: Vec<(String, String)>,
    /// Subsystems that could not be connected, and why.
    pub(crate) failed: Vec<(String, anyhow::Error)>,
    /// What is wrong with files that name what to connect. It was told when they were read.
    pub(crate) wrong: Vec<anyhow::Error>,
}

impl ConnectAllView {
    /// With what is wrong with files.
    pub(crate) fn with_wrong(self, wrong: Vec<anyhow::Error>) -> Self {
        Self { wrong, ..self }
    }

    /// Whether there is nothing to tell.
    pub(crate) fn is_empty(&self) -> bool {
        self.connected.is_empty() && self.skipped.is_empty() && self.failed.is_empty()
    }

    /// Whether all was connected that was to be.
    pub(crate) fn is_success(&self) -> bool {
        let is_error = |error: &anyhow::Error| error.downcast_ref::<Diagnostics>().is_none_or(|it| it.errors() > 0);
        self.failed.is_empty() && !self.wrong.iter().any(is_error)
    }
}

impl View for ConnectAllView {
    fn text(&self, verbose: bool) -> String {
        let mut text = String::new();
        for view in &self.connected {
            text += &view.text(verbose);
        }
        for (nqn, reason) in &self.skipped {
            let _infallible = writeln!(text, "{}: {reason}", safe(nqn));
        }
        for (nqn, error) in &self.failed {
            let _infallible = writeln!(text, "{}: failed: {}", safe(nqn), failure::text(error));
        }
        if text.is_empty() { "nothing to connect\n".to_owned() } else { text }
    }

    fn json(&self, _verbose: bool) -> Object {
        let skipped = self
            .skipped
            .iter()
            .map(|(nqn, reason)| Object::new().with("nqn", safe(nqn)).with("reason", reason.as_str()));
        let failed = self
            .failed
            .iter()
            .map(|(nqn, error)| Object::new().with("nqn", safe(nqn)).with("error", failure::details(error)));
        Object::document("connect-all", 1)
            .with("connected", self.connected.iter().map(ConnectView::object).collect::<Vec<_>>())
            .with("skipped", skipped.collect::<Vec<_>>())
            .with("failed", failed.collect::<Vec<_>>())
            .with("wrong", self.wrong.iter().map(failure::details).collect::<Vec<_>>())
    }
}

/// The result of `disconnect` and `disconnect-all`.
#[derive(Default)]
pub(crate) struct DisconnectView {
    /// `disconnect` or `disconnect-all`.
    pub(crate) verb: &'static str,
    /// The subsystems that the user named.
    pub(crate) nqns: Vec<String>,
    /// Controllers that were disconnected, and their subsystems.
    pub(crate) disconnected: Vec<(String, String)>,
    /// Controllers that had been given up, and their subsystems: they are acknowledged now.
    pub(crate) acknowledged: Vec<(String, String)>,
    /// Controllers that could not be disconnected, and why.
    pub(crate) failed: Vec<(String, anyhow::Error)>,
    /// What was removed for attach daemons that had been killed.
    pub(crate) repaired: Vec<String>,
}

impl DisconnectView {
    /// Adds the result of one call.
    pub(crate) fn add(&mut self, report: Report) {
        self.disconnected.extend(report.disconnected);
        self.acknowledged.extend(report.acknowledged);
        self.failed.extend(report.failed.into_iter().map(|(name, error)| (name, anyhow::Error::new(error))));
        for repaired in report.repaired {
            self.repaired.extend(repaired.actions.iter().map(|action| format!("{}: {action}", repaired.name)));
        }
    }
}

impl View for DisconnectView {
    fn text(&self, _verbose: bool) -> String {
        let mut text = String::new();
        for nqn in &self.nqns {
            let count = self.disconnected.iter().filter(|(_, other)| other == nqn).count();
            let _infallible = writeln!(text, "NQN:{} disconnected {count} controller(s)", safe(nqn));
        }
        for (name, _) in self.disconnected.iter().filter(|(_, nqn)| !self.nqns.contains(nqn)) {
            let _infallible = writeln!(text, "Disconnected {name}");
        }
        for (name, _) in &self.acknowledged {
            let _infallible = writeln!(text, "{name} had been given up: its record is removed");
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let named = |(name, nqn): &(String, String)| Object::new().with("device", name.as_str()).with("nqn", safe(nqn));
        let failed = self
            .failed
            .iter()
            .map(|(name, error)| Object::new().with("device", name.as_str()).with("error", failure::details(error)));
        let repaired = self.repaired.iter().map(|action| Json::from(action.as_str()));
        Object::document(self.verb, 1)
            .with("disconnected", self.disconnected.iter().map(named).collect::<Vec<_>>())
            .with("acknowledged", self.acknowledged.iter().map(named).collect::<Vec<_>>())
            .with("failed", failed.collect::<Vec<_>>())
            .with("repaired", repaired.collect::<Vec<_>>())
    }
}
