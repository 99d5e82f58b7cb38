//! Looks for what is missing, and tells what is and what has come.
//!
//! What is known of it is in `missing.rs`, and how it comes in is `reload.rs`' matter.

use ebof_manage::api::{Cause, MissingKind, MissingObject};
use ebof_manage::events::{EventKind, NewEvent};

use crate::life::missing::{Missing, MissingKey};
use crate::life::reload;
use crate::life::serve::Target;

impl Target {
    /// What cannot be had now, of the configuration and of what belongs to the program.
    #[must_use]
    pub fn missing(&self) -> Vec<MissingObject> {
        let of_configuration: Vec<MissingObject> = self.in_force().missing.iter().map(Missing::shown).collect();
        of_configuration.into_iter().chain(self.elsewhere().iter().cloned()).collect()
    }

    /// Tells of something that belongs to the program around the target, such as its management:
    /// it is missing for a reason, or there.
    pub fn tell_missing(&self, kind: MissingKind, name: &str, reason: Option<String>) {
        let mut elsewhere = self.elsewhere();
        let before = elsewhere.iter().position(|it| it.kind == kind && it.name == name);
        let before = before.map(|at| elsewhere.swap_remove(at));
        let since_unix_ms = before.as_ref().map_or_else(|| self.shared.clock.unix_ms(), |it| it.since_unix_ms);
        let now = reason.map(|reason| MissingObject { kind, name: name.to_owned(), reason, since_unix_ms });
        elsewhere.extend(now.clone());
        drop(elsewhere);
        match (before, now) {
            (None, Some(missing)) => self.report_missing(&missing),
            (Some(missing), None) => self.report_found(&missing),
            _ => {}
        }
    }

    /// Looks whether what is missing of the configuration can be had now; then hosts are shown it.
    pub fn look_for_missing(&self) {
        if self.in_force().missing.is_empty() {
            return;
        }
        if let Err(error) = reload::find_missing(self, &Cause::library()) {
            tracing::warn!("what is missing cannot be taken in: {error}");
        }
    }

    /// Reports what was missing before and is there now.
    pub(crate) fn report_found_since(&self, before: &[Missing]) {
        let state = self.in_force();
        let is_there = |missing: &&Missing| match &missing.key {
            MissingKey::Namespace(key) => state.devices.open.contains_key(key),
            MissingKey::Drive(name) => state.devices.actors.iter().any(|opened| opened.config.name == *name),
            MissingKey::Port(name) => state.ports.iter().any(|listening| listening.port.name == *name),
        };
        let found: Vec<MissingObject> = before.iter().filter(is_there).map(Missing::shown).collect();
        drop(state);
        found.iter().for_each(|missing| self.report_found(missing));
    }

    pub(crate) fn report_missing(&self, missing: &MissingObject) {
        let MissingObject { kind, name, reason, .. } = missing;
        tracing::error!("NOT SERVED: {kind} {name} is missing: {reason}; it is looked for again and again");
        let message = format!("{kind} {name} is missing: {reason}");
        self.shared.report(NewEvent::new(EventKind::ObjectMissing, name, message));
    }

    fn report_found(&self, missing: &MissingObject) {
        let MissingObject { kind, name, .. } = missing;
        tracing::info!("{kind} {name} is not missing any more");
        self.shared.report(NewEvent::new(EventKind::ObjectFound, name, format!("{kind} {name} is there")));
    }
}
