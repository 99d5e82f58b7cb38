//! Who may use one subsystem at two targets, and what is demanded of them. Keys are compared by
//! what is told of them: their kind, hash and length.

use std::collections::BTreeSet;

use super::{ComparedTarget, Grade, Pair, Served};
use crate::api::KeyKind;
use crate::config::Host;

pub(super) fn compare(pair: &mut Pair<'_>) {
    let [a, b] = [pair.a.subsystem, pair.b.subsystem];
    let words = ("allow-any-host", "any host may connect at one target only", "set `allow_any_host` to the same");
    pair.differ(Grade::Contradiction, "", words, &[a.allow_any_host, b.allow_any_host]);
    let words = ("security", "they demand other proofs of hosts", "set `security` to the same at both targets");
    pair.differ(Grade::Contradiction, "", words, &[a.security, b.security]);
    let hosts = |served: &Served<'_>| -> BTreeSet<String> {
        served.subsystem.allowed_hosts.iter().map(ToString::to_string).collect()
    };
    let [of_a, of_b] = [hosts(&pair.a), hosts(&pair.b)];
    for host in of_a.symmetric_difference(&of_b) {
        // Where any host may connect, the list says nothing.
        if (of_a.contains(host) || a.allow_any_host) && (of_b.contains(host) || b.allow_any_host) {
            continue;
        }
        let words = (
            "allowed-hosts",
            "only one target admits it: it loses access with that target",
            "`ebof target add host NQN --subsystem NQN` at the other one",
        );
        let admits = |of: &BTreeSet<String>| Some(if of.contains(host) { "admitted" } else { "refused" }.to_owned());
        pair.add(Grade::Contradiction, &format!("host {host}"), words, [admits(&of_a), admits(&of_b)]);
    }
    let known = |served: &Served<'_>| -> BTreeSet<String> {
        served.side.config.hosts.iter().map(|host| host.nqn.to_string()).collect()
    };
    let both: BTreeSet<String> = if a.allow_any_host && b.allow_any_host {
        known(&pair.a).union(&known(&pair.b)).cloned().collect()
    } else {
        of_a.union(&of_b).cloned().collect()
    };
    both.iter().for_each(|host| compare_keys(pair, host));
}

/// What is told of a host's keys of each kind, sorted.
fn keys_told(side: &ComparedTarget<'_>, host: &str, kind: KeyKind) -> Vec<String> {
    if let Some(keys) = side.keys {
        let own = keys.keys.iter().filter(|key| key.host == host && key.kind == kind);
        let mut told: Vec<_> = own
            .map(|key| match &key.hash {
                Some(hash) => format!("{} bits for {hash}", key.bits),
                None => format!("{} bits", key.bits),
            })
            .collect();
        told.sort();
        return told;
    }
    let own = side.config.hosts.iter().find(|it| it.nqn.as_str() == host);
    let place = |host: &Host| match kind {
        KeyKind::Dhchap => host.dhchap_key.is_some(),
        KeyKind::DhchapCtrl => host.dhchap_ctrl_key.is_some(),
        KeyKind::Tls => host.tls_psk.is_some(),
    };
    if own.is_some_and(place) { vec!["configured".to_owned()] } else { Vec::new() }
}

fn compare_keys(pair: &mut Pair<'_>, host: &str) {
    let object = format!("host {host}");
    let mut is_any = false;
    for kind in KeyKind::ALL {
        let [a, b] = [&pair.a.side, &pair.b.side].map(|side| keys_told(side, host, kind));
        // One that is configured says only that there is one.
        let has_both = pair.a.side.keys.is_some() && pair.b.side.keys.is_some();
        let is_same = if has_both { a == b } else { a.is_empty() == b.is_empty() };
        if is_same {
            is_any |= !a.is_empty();
            continue;
        }
        let message = format!("its keys of the kind `{kind}` differ");
        let advice = "give both targets the same keys of it (`ebof target add key HOST`): it proves itself with one key, \
                      whatever the path";
        let values = [a, b].map(|keys| Some(if keys.is_empty() { "none".to_owned() } else { keys.join(", ") }));
        pair.add(Grade::Contradiction, &object, ("keys", &message, advice), values);
    }
    if is_any {
        let words = (
            "keys",
            "whether its keys are the same is not told by targets",
            "make sure of it, such as by connecting to both (`ebof check-dhchap-key`, `ebof check-tls-key` look at files)",
        );
        pair.add(Grade::Unknown, &object, words, [None, None]);
    }
}
