//! Whether a target serves all that it is to serve: for its supervisor, and for those who send
//! hosts to it.

use std::sync::atomic::Ordering::Relaxed;

use ebof_manage::api::MissingObject;

use crate::shared::Shared;

/// What keeps a target from serving all that it is to serve, for people: what is `missing`, ports
/// that are not `listening`, drives with troubles.
pub(crate) fn unready(shared: &Shared, missing: &[MissingObject], listening: &[(String, bool)]) -> Vec<String> {
    let mut reasons = Vec::new();
    if shared.stopping.load(Relaxed) {
        reasons.push("the target is being stopped".to_owned());
    }
    reasons.extend(
        missing.iter().map(|missing| format!("{} {} is missing: {}", missing.kind, missing.name, missing.reason)),
    );
    let deaf = listening.iter().filter(|(_, is_listening)| !is_listening);
    reasons.extend(deaf.map(|(port, _)| format!("port {port} accepts no connections")));
    for (_, actor) in shared.drives.actors() {
        reasons.extend(actor.trouble().map(|trouble| format!("drive {}: {trouble}", actor.name())));
    }
    reasons
}
