//! Whether a target lives and serves what it is to serve: for its supervisor, and for those who
//! send hosts to it.

use std::sync::atomic::Ordering::Relaxed;

use crate::life::serve::Target;

impl Target {
    /// What keeps the target from serving all that it is to serve, for people; nothing when all is
    /// well. Threads that hang are [`Target::check_threads`]'s.
    #[must_use]
    pub fn unready(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.shared.stopping.load(Relaxed) {
            reasons.push("the target is being stopped".to_owned());
        }
        let missing = self.missing().into_iter();
        reasons
            .extend(missing.map(|missing| format!("{} {} is missing: {}", missing.kind, missing.name, missing.reason)));
        let deaf = self.listening().into_iter().filter(|(_, is_listening)| !is_listening);
        reasons.extend(deaf.map(|(port, _)| format!("port {port} accepts no connections")));
        for (_, actor) in self.shared.drives.actors() {
            reasons.extend(actor.trouble().map(|trouble| format!("drive {}: {trouble}", actor.name())));
        }
        reasons
    }

    /// The ports by name, and whether they accept connections.
    pub(crate) fn listening(&self) -> Vec<(String, bool)> {
        let state = self.in_force();
        let ports = state.ports.iter().map(|listening| &listening.port);
        ports.map(|port| (port.name.clone(), port.counts.is_listening.load(Relaxed))).collect()
    }
}
