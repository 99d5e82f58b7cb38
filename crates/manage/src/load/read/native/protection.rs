//! Remarks about what is to be protected and is not, or cannot be reached, as it is written.

use ebof_nvme::Nqn;

use super::places;
use crate::config::{Config, KeyPlace, Port, PortTls, Subsystem, TargetOptions};
use crate::diagnostic::{Collector, Severity};
use crate::load::read::tree::Node;

/// What was found at the place of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFinding {
    /// How bad it is: with an error, the configuration is refused.
    pub severity: Severity,
    /// In words.
    pub message: String,
    /// What to do about it.
    pub help: String,
}

/// Looks at the key that a key of the configuration, such as `tls_psk`, names.
pub type LookAtKey<'l> = dyn FnMut(&'static str, &KeyPlace) -> Option<KeyFinding> + 'l;

/// Warns of what is set about TLS and leads nowhere.
pub(super) fn remark_on_tls(root: &Node, config: &Config, out: &mut Collector<'_>) {
    let has_tls = |port: &&Port| !port.tls.is_off();
    let has_psk = config.hosts.iter().any(|host| host.tls_psk.is_some());
    for subsystem in config.subsystems.iter().filter(|subsystem| subsystem.security.wants_tls()) {
        if !config.ports.iter().filter(has_tls).any(|port| subsystem.ports.contains(&port.name)) {
            let message = format!("{} wants TLS, and none of its ports has it: no host can connect", subsystem.nqn);
            let place = places::of_nqn(root, "subsystems", subsystem.nqn.as_str(), &["security"]);
            out.warning(place, message, "set `tls` of a port to \"required\" or \"allowed\"");
        }
    }
    if let Some(port) = config.ports.iter().find(|port| port.tls.is_off() && !port.tls_records.is_own()) {
        let message = format!("port {} has `tls_records`, and no TLS", port.name);
        let place = places::of_port(root, port, &["tls_records"]);
        out.warning(place, message, "set its `tls` to \"required\" or \"allowed\"");
    }
    // Where connections without TLS are allowed, authentication may generate a key.
    let has_secret = config.hosts.iter().any(|host| host.dhchap_key.is_some());
    let is_unused = |port: &&Port| has_tls(port) && !has_psk && !(has_secret && port.tls == PortTls::Allowed);
    if let Some(port) = config.ports.iter().find(is_unused) {
        let message = format!("port {} has TLS, and no host has a key for it here", port.name);
        out.warning(
            places::of_port(root, port, &["tls"]),
            message,
            "`ebof target add key HOST --kind tls` gives one to a running target; or set `tls_psk` of hosts",
        );
    }
    // What a host without a key for TLS gets one by.
    let concatenates = |port: &Port| port.tls == PortTls::Allowed && has_secret && !has_psk;
    let TargetOptions { dhchap_hashes, dhchap_groups, .. } = &config.target;
    let seals_hash = dhchap_hashes.iter().any(|hash| hash.seals());
    let seals = seals_hash && dhchap_groups.iter().any(|group| group.seals());
    if let Some(port) = config.ports.iter().find(|port| concatenates(port)).filter(|_| !seals) {
        let message = format!("port {} has TLS, and no host can get a key for it by authentication", port.name);
        let help = "`dhchap_hashes` needs sha256 or sha384 for that, and `dhchap_groups` one that is not null";
        let place = places::of_target(root, if seals_hash { &["dhchap_groups"] } else { &["dhchap_hashes"] });
        out.warning(place.unwrap_or_else(|| places::of_port(root, port, &["tls"])), message, help);
    }
    if let Some(host) = config.hosts.iter().find(|host| host.tls_psk.is_some())
        && !config.ports.iter().any(|port| has_tls(&port))
    {
        let message = "hosts have keys for TLS, and no port has it: they connect without";
        let place = places::of_nqn(root, "hosts", host.nqn.as_str(), &["tls_psk"]);
        out.warning(place, message, "set `tls` of a port to \"required\" or \"allowed\"");
    }
}

/// Warns of hosts that a subsystem allows, and that have no key by which they could be what it
/// demands. A running target may have been given one: whoever reads the configuration alone does
/// not know.
pub(crate) fn remark_on_proofs(root: &Node, config: &Config, out: &mut Collector<'_>) {
    let host_of = |nqn: &Nqn| config.hosts.iter().find(|host| host.nqn == *nqn);
    for subsystem in config.subsystems.iter().filter(|subsystem| !subsystem.security.is_anyone()) {
        let Subsystem { nqn, security, .. } = subsystem;
        for host in &subsystem.allowed_hosts {
            let (secret, psk) =
                host_of(host).map_or((false, false), |host| (host.dhchap_key.is_some(), host.tls_psk.is_some()));
            // With a secret, a host may get a key for TLS by authentication.
            let (lacks, kind) = match (security.wants_authentication(), security.wants_tls()) {
                (true, _) if !secret => ("`dhchap_key`", "dhchap"),
                (false, true) if !secret && !psk => ("`tls_psk`", "tls"),
                _ => continue,
            };
            let message = format!(
                "{host} has no {lacks} here, and {nqn} demands one (security = \"{security}\"): it connects only if the target has \
                 been given one for it"
            );
            let help = format!("`ebof target show keys` tells; `ebof target add key {host} --kind {kind}` gives one");
            out.warning(places::of_allowed(root, nqn.as_str(), host.as_str()), message, help);
        }
    }
}

/// What `look` finds at the places of keys.
pub(crate) fn look_at_keys(root: &Node, config: &Config, look: &mut LookAtKey<'_>, out: &mut Collector<'_>) {
    for host in &config.hosts {
        for (key, place) in
            [("dhchap_key", &host.dhchap_key), ("dhchap_ctrl_key", &host.dhchap_ctrl_key), ("tls_psk", &host.tls_psk)]
        {
            let Some(KeyFinding { severity, message, help }) = place.as_ref().and_then(|place| look(key, place)) else {
                continue;
            };
            let place = places::of_nqn(root, "hosts", host.nqn.as_str(), &[key]);
            match severity {
                Severity::Error => out.error(place, message, help),
                Severity::Warning => out.warning(place, message, help),
                Severity::Note => out.note(place, message, help),
            }
        }
    }
}
