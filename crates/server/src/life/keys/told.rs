//! Keys as those are told of them who manage the target: never the keys themselves.

use ebof_authentication::{Hash, HostPsk, Secret};
use ebof_manage::Config;
use ebof_manage::api::{ControllerStatus, KeyKind, KeyStatus};
use ebof_manage::config::{Host, KeyPlace, Subsystem};
use ebof_nvme::Nqn;

use super::HostKeys;
use crate::environment::stored_keys::{KeyList, StoredKey};

/// The most names in a note.
const NAMES_MAX: usize = 3;

/// What is told about keys goes by the configuration in force and by who is connected.
pub(super) struct Told<'t> {
    pub(super) config: &'t Config,
    /// The keys of the configuration.
    pub(super) configured: &'t HostKeys,
    pub(super) controllers: &'t [ControllerStatus],
}

impl Told<'_> {
    /// All keys: by host and kind, those of the configuration first.
    pub(super) fn all(&self, stored: &KeyList) -> Vec<KeyStatus> {
        let configured = self.config.hosts.iter().flat_map(|host| self.of_configuration(host));
        let stored = stored.keys.iter().map(|key| self.stored(key));
        let mut all: Vec<KeyStatus> = configured.chain(stored).collect();
        // Stable: the rest of the order is that of the lists.
        all.sort_by(|one, other| (&one.host, one.kind).cmp(&(&other.host, other.kind)));
        all
    }

    pub(super) fn stored(&self, key: &StoredKey) -> KeyStatus {
        let kind = key.key.kind();
        KeyStatus {
            id: Some(key.id()),
            host: key.host.to_string(),
            kind,
            place: None,
            hash: key.key.hash().map(|hash| hash.to_string()),
            bits: bits(key.key.bytes()),
            since_s: Some(key.since_s),
            connected: self.connected(&key.host, kind),
        }
    }

    fn of_configuration(&self, host: &Host) -> Vec<KeyStatus> {
        let key = |kind, place: &Option<KeyPlace>, hash: Option<Hash>, bytes| KeyStatus {
            id: None,
            host: host.nqn.to_string(),
            kind,
            place: place.as_ref().map(ToString::to_string),
            hash: hash.map(|hash| hash.to_string()),
            bits: bits(bytes),
            since_s: None,
            connected: self.connected(&host.nqn, kind),
        };
        let secret = |kind, place, secret: &Secret| key(kind, place, secret.transform(), secret.key_bytes());
        let mut keys = Vec::new();
        if let Some(secrets) = self.configured.secrets.get(&host.nqn) {
            keys.extend(secrets.host.iter().map(|it| secret(KeyKind::Dhchap, &host.dhchap_key, it)));
            let controller = secrets.controller.iter();
            keys.extend(controller.map(|it| secret(KeyKind::DhchapCtrl, &host.dhchap_ctrl_key, it)));
        }
        for psk in self.configured.tls_psks.get(&host.nqn).into_iter().flat_map(|psks| psks.iter()) {
            let (hash, bytes) = match psk {
                HostPsk::Configured(psk) => (psk.hash(), psk.key_bytes()),
                HostPsk::Derived { identity, key } => (Some(identity.hash), key.bytes().len()),
            };
            keys.push(key(KeyKind::Tls, &host.tls_psk, hash, bytes));
        }
        keys
    }

    fn connected(&self, host: &Nqn, kind: KeyKind) -> Option<u32> {
        let has_proven = |controller: &&ControllerStatus| match kind {
            KeyKind::Dhchap => controller.proof.wants_authentication(),
            KeyKind::Tls => controller.proof.wants_tls(),
            KeyKind::DhchapCtrl => false,
        };
        let of_host = self.controllers.iter().filter(|controller| controller.host_nqn == host.as_str());
        let count = || u32::try_from(of_host.filter(has_proven).count()).unwrap_or(u32::MAX);
        (kind != KeyKind::DhchapCtrl).then(count)
    }

    /// Where the configuration has the keys of a host.
    pub(super) fn place(&self, host: &Nqn, kind: KeyKind) -> Option<&KeyPlace> {
        let host = self.config.hosts.iter().find(|it| it.nqn == *host)?;
        match kind {
            KeyKind::Dhchap => host.dhchap_key.as_ref(),
            KeyKind::DhchapCtrl => host.dhchap_ctrl_key.as_ref(),
            KeyKind::Tls => host.tls_psk.as_ref(),
        }
    }

    /// What is remarkable about a key that is added.
    pub(super) fn notes_of_added(&self, key: &StoredKey) -> Vec<String> {
        let mut notes = Vec::new();
        let host = &key.host;
        let is_known = self.config.hosts.iter().any(|it| it.nqn == *host);
        match (is_known, self.admitting(host).next().is_some()) {
            (true, true) => {}
            (true, false) => {
                let command = format!("ebof target set subsystem NQN allowed_hosts+={host}");
                notes.push(format!("a key says who the host is; no subsystem admits it yet: `{command}`"));
            }
            (false, false) => {
                let command = format!("ebof target add host {host} --subsystem NQN");
                notes.push(format!(
                    "the configuration has no host of this NQN, and no subsystem admits it yet: if it is spelt right, `{command}`"
                ));
            }
            (false, true) => {
                notes.push(
                    "the configuration has no host of this NQN: if it is spelt right, it connects where any host may"
                        .to_owned(),
                );
            }
        }
        if key.key.kind() == KeyKind::Tls && self.config.enabled_ports().all(|port| port.tls.is_off()) {
            notes.push("no port has TLS yet: `ebof target set port NAME tls=allowed`".to_owned());
        }
        notes
    }

    /// What is remarkable about keys that are removed, where these are left.
    pub(super) fn notes_of_removed(&self, removed: &[&StoredKey], left: &KeyList) -> Vec<String> {
        let all = self.configured.with(left);
        let mut notes = Vec::new();
        let mut noted: Vec<(&Nqn, KeyKind)> = Vec::new();
        for key in removed {
            let (host, kind) = (&key.host, key.key.kind());
            if noted.contains(&(host, kind)) {
                continue;
            }
            noted.push((host, kind));
            match kind {
                KeyKind::Dhchap if !all.secrets.contains_key(host) => notes.extend(self.notes_of_nobody(host, left)),
                KeyKind::Tls if !all.tls_psks.contains_key(host) => {
                    let closed = names(self.admitting(host).filter(|subsystem| subsystem.security.wants_tls()));
                    let note =
                        |names| format!("{host} has no tls key any more, without which nobody connects to {names}");
                    notes.extend(closed.map(note));
                }
                _ => {}
            }
        }
        notes
    }

    /// Of a host that loses its last key for authentication.
    fn notes_of_nobody(&self, host: &Nqn, left: &KeyList) -> Vec<String> {
        let wants = |subsystem: &&Subsystem| subsystem.security.wants_authentication();
        let closed = names(self.admitting(host).filter(wants));
        // Over TLS a name is proven by its key.
        let open = names(self.admitting(host).filter(|subsystem| subsystem.security.is_anyone()));
        let idle = left.keys_of(host, KeyKind::DhchapCtrl).next();
        let lost = format!("{host} has no dhchap key any more");
        let notes = [
            closed.map(|names| format!("{lost}, and cannot connect to {names}")),
            open.map(|names| format!("{lost}: whoever gives its name is taken for it at {names}")),
            idle.map(|key| format!("{}, the dhchap-ctrl key of {host}, is of no use then", key.id())),
        ];
        notes.into_iter().flatten().collect()
    }

    /// The subsystems that admit a host.
    fn admitting(&self, host: &Nqn) -> impl Iterator<Item = &Subsystem> {
        let admits = move |subsystem: &&Subsystem| {
            subsystem.allow_any_host || subsystem.allowed_hosts.iter().any(|it| it == host)
        };
        self.config.enabled_subsystems().filter(admits)
    }
}

fn bits(bytes: usize) -> u32 {
    u32::try_from(bytes.saturating_mul(8)).unwrap_or(u32::MAX)
}

/// The NQNs of subsystems; `None` without any.
fn names<'s>(subsystems: impl Iterator<Item = &'s Subsystem>) -> Option<String> {
    let all: Vec<&str> = subsystems.map(|subsystem| subsystem.nqn.as_str()).collect();
    let first = all.get(..NAMES_MAX.min(all.len())).unwrap_or_default().join(", ");
    match all.len().saturating_sub(NAMES_MAX) {
        _ if all.is_empty() => None,
        0 => Some(first),
        more => Some(format!("{first} and {more} more")),
    }
}
