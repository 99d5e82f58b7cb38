//! What changes of single keys do to hosts that are connected.

use ebof_nvme::log::AnaState;

use super::{Difference, Effect};
use crate::config::{AnaStates, TargetOptions};

/// Whether a host has to authenticate from now on, or has no key any more.
pub(super) fn alters_proof(difference: &Difference) -> bool {
    match difference.key.as_str() {
        "dhchap_key" => difference.from.is_none() || difference.to.is_none(),
        "tls_psk" => difference.to.is_none(),
        _ => false,
    }
}

pub(super) fn target_effect(difference: &Difference) -> Effect {
    // Threads, tables and the connection log are made for the others at the start.
    if TargetOptions::LIVE_KEYS.contains(&difference.key.as_str()) { Effect::Live } else { Effect::Restart }
}

/// Whether what hosts did not see is there from now on.
pub(super) fn enables(difference: &Difference) -> bool {
    difference.key == "enabled" && difference.to.as_deref() != Some("false")
}

/// Whether it is not there any more.
pub(crate) fn disables(difference: &Difference) -> bool {
    difference.key == "enabled" && !enables(difference)
}

pub(super) fn port_effect(difference: &Difference) -> Effect {
    match difference.key.as_str() {
        "enabled" if enables(difference) => Effect::Live,
        "enabled" => Effect::Disruptive,
        // Part of the discovery log; hosts receive an event.
        "name" | "advertise" | "referrals" | "mdns" => Effect::Live,
        // A controller belongs to a PORTID. One that serves discovery only has no subsystem any
        // more.
        "id" | "discovery_only" => Effect::Disruptive,
        // Hosts lose a namespace on this path where its group leaves it no command.
        "ana" if leaves_no_command(difference) => Effect::Disruptive,
        "ana" => Effect::Live,
        // Connections without TLS end.
        "tls" if difference.to.as_deref() == Some("\"required\"") => Effect::Disruptive,
        _ => Effect::NewConnections,
    }
}

/// Whether an ANA group gets a state in which commands are refused.
fn leaves_no_command(difference: &Difference) -> bool {
    let states = |text: &Option<String>| -> AnaStates {
        text.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    };
    let (from, to) = (states(&difference.from), states(&difference.to));
    let is_open = |state: AnaState| matches!(state, AnaState::OPTIMIZED | AnaState::NON_OPTIMIZED);
    to.iter().any(|(group, state)| !is_open(state) && is_open(from.of(group)))
}

pub(super) fn drive_effect(difference: &Difference) -> Effect {
    let Difference { key, from, to } = difference;
    let changed = from.is_some() && to.is_some();
    match key.as_str() {
        // Without a size the drive is taken as it is.
        "size" if to.is_none() => Effect::Live,
        "size" if changed => Effect::Impossible,
        // Memory is its size; what differs between two files at one path is how they are opened.
        "backing" if !to.as_ref().is_some_and(|to| to.starts_with('{')) => Effect::Impossible,
        // Whether the size is the one that the drive has is found out when it is opened; what the
        // profile says of firmware slots and queues is fixed when a drive is.
        // Controller ids of connected hosts depend on whether there are functions, and what they
        // know these as on `one_subsystem`.
        "size" | "backing" | "profile" | "key_file" | "functions" | "one_subsystem" => Effect::Restart,
        // Identify Controller says them: hosts read it when they connect, and compare serial and
        // model numbers between paths.
        "namespaces" => Effect::NewConnections,
        "serial" | "model" => Effect::Disruptive,
        _ => Effect::Live,
    }
}
