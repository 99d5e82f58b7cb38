//! The views of keys of hosts, and of what became of one. A key itself is shown where it was made a
//! moment ago, and nowhere else.

use std::path::Path;

use ebof_manage::api::{KeyKind, KeyStatus, Keys, KeysChange};

use super::View;
use super::history::utc;
use super::json::Object;
use super::text::{safe, table};

/// All keys.
pub(crate) struct ShownKeys(pub(crate) Keys);

/// A key that was added, or keys that were removed.
pub(crate) struct ShownKeyChange<'a> {
    pub(crate) outcome: KeyOutcome,
    pub(crate) change: &'a KeysChange,
    /// Where the user has the key.
    pub(crate) file: Option<&'a Path>,
    /// The key, if it is in no file.
    pub(crate) printed: Option<&'a str>,
    /// Where the keys of the configuration are that it follows, if there are no others.
    pub(crate) old_place: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOutcome {
    Added,
    Rotated,
    Removed,
}

impl View for ShownKeys {
    fn text(&self, _verbose: bool) -> String {
        let columns = [
            ("HOST", 4),
            ("KIND", 4),
            ("ID", 2),
            ("HASH", 4),
            ("BITS", 4),
            ("SINCE", 5),
            ("CONNECTED", 9),
            ("STORED", 6),
        ];
        let rows: Vec<Vec<String>> = self.0.keys.iter().map(|key| row(key, self.0.durable)).collect();
        if rows.is_empty() {
            "no host has a key: `ebof target add key HOST`\n".to_owned()
        } else {
            table(&columns, &rows)
        }
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("target-keys", 1).with("durable", self.0.durable).with("keys", value(&self.0.keys))
    }
}

fn row(key: &KeyStatus, durable: bool) -> Vec<String> {
    let none = || "-".to_owned();
    let stored = match (&key.place, durable) {
        (Some(place), _) => safe(place),
        (None, true) => "by the target".to_owned(),
        (None, false) => "in its memory only".to_owned(),
    };
    vec![
        safe(&key.host),
        key.kind.to_string(),
        key.id.as_ref().map_or_else(none, |id| safe(id)),
        key.hash.as_ref().map_or_else(none, |hash| safe(hash)),
        key.bits.to_string(),
        key.since_s.map_or_else(none, |since| utc(since.saturating_mul(1000))),
        key.connected.map_or_else(none, |connected| connected.to_string()),
        stored,
    ]
}

/// The hosts that notice a change, a line for each.
pub(crate) fn disturbed(change: &KeysChange) -> Vec<String> {
    let line = |host: &ebof_manage::enclosure::DisturbedHost| {
        safe(&format!("{} (controller {} through {}): {}", host.host_nqn, host.cntlid, host.port, host.why))
    };
    let mut lines: Vec<String> = change.disturbed.iter().map(line).collect();
    if change.disturbed_left_out > 0 {
        lines.push(format!("and {} more", change.disturbed_left_out));
    }
    lines
}

impl ShownKeyChange<'_> {
    /// What was done, without the key.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        if let Some(key) = &self.change.added {
            let hash = key.hash.as_ref().map(|hash| format!(", {hash}")).unwrap_or_default();
            text +=
                &format!("{}: {} key of {} ({} bits{hash}) is in force\n", named(key), key.kind, key.host, key.bits);
        }
        for key in &self.change.removed {
            let done = if self.change.added.is_some() { "was replaced" } else { "was removed" };
            text += &format!("{}: {} key of {} {done}\n", named(key), key.kind, key.host);
        }
        if let Some(key) = &self.change.added {
            text += &format!("  on the host: ebof connect ... -q {} {}\n", key.host, self.option(key.kind));
            if self.outcome == KeyOutcome::Rotated && key.kind != KeyKind::DhchapCtrl {
                text += &match self.old_place {
                    Some(place) => {
                        let name = config_key(key.kind);
                        format!(
                            "  the old key is good until the new one takes its place in {place}, or `{name}` is taken out \
                             of its [[hosts]]; then `ebof target reload`\n"
                        )
                    }
                    None => {
                        let command = format!("ebof target remove key {} --old --kind {}", key.host, key.kind);
                        format!("  the old key is good until it is removed: {command}\n")
                    }
                };
            }
        }
        for note in disturbed(self.change).iter().chain(&self.change.notes) {
            text += &format!("  {note}\n");
        }
        text.lines().map(|line| safe(line) + "\n").collect()
    }

    /// How a host names the key.
    fn option(&self, kind: KeyKind) -> String {
        let option = match kind {
            KeyKind::Dhchap => "--dhchap-secret-file",
            KeyKind::DhchapCtrl => "--dhchap-secret-file OWN_FILE --dhchap-ctrl-secret-file",
            KeyKind::Tls => "--tls --tls-key-file",
        };
        format!("{option} {}", self.file.map_or_else(|| "FILE".to_owned(), |file| file.display().to_string()))
    }
}

/// What a configuration calls the place of such a key.
pub(crate) fn config_key(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::Dhchap => "dhchap_key",
        KeyKind::DhchapCtrl => "dhchap_ctrl_key",
        KeyKind::Tls => "tls_psk",
    }
}

fn named(key: &KeyStatus) -> &str {
    key.id.as_deref().unwrap_or("-")
}

impl View for ShownKeyChange<'_> {
    fn text(&self, _verbose: bool) -> String {
        self.printed.map_or_else(|| self.summary(), |key| format!("{key}\n"))
    }

    fn json(&self, _verbose: bool) -> Object {
        let outcome = match self.outcome {
            KeyOutcome::Added => "added",
            KeyOutcome::Rotated => "rotated",
            KeyOutcome::Removed => "removed",
        };
        let KeysChange { durable, added, removed, disturbed, disturbed_left_out, notes, .. } = self.change;
        let mut object = Object::document("target-key-change", 1).with("outcome", outcome).with("durable", *durable);
        if let Some(added) = added {
            object.push("added", value(added));
        }
        object.push("removed", value(removed));
        object.push("disturbed", value(disturbed));
        object.push("disturbed_left_out", *disturbed_left_out as u64);
        object.push("notes", value(notes));
        if let Some(file) = self.file {
            object.push("file", file.display().to_string());
        }
        if let Some(key) = self.printed {
            object.push("key", key);
        }
        object
    }
}

fn value(of: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(of).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "nqn.2014-08.org.example:blade1";

    fn status(id: &str, kind: KeyKind) -> KeyStatus {
        KeyStatus {
            id: Some(id.to_owned()),
            host: HOST.to_owned(),
            kind,
            place: None,
            hash: Some("SHA-256".to_owned()),
            bits: 256,
            since_s: Some(1_764_500_000),
            connected: Some(1),
        }
    }

    #[test]
    fn keys_are_shown_by_what_is_known_of_them() {
        let configured = KeyStatus {
            id: None,
            place: Some("/etc/ebof/keys/blade1".to_owned()),
            hash: None,
            since_s: None,
            ..status("", KeyKind::Dhchap)
        };
        let ctrl = KeyStatus { connected: None, ..status("k2", KeyKind::DhchapCtrl) };
        let keys = vec![configured, status("k1", KeyKind::Dhchap), ctrl];
        let shown = ShownKeys(Keys { schema: 1, durable: true, keys });
        insta::assert_snapshot!(shown.text(false));
        let memory = ShownKeys(Keys { durable: false, ..shown.0 });
        assert!(memory.text(false).contains("in its memory only"));
        assert!(ShownKeys(Keys { keys: Vec::new(), ..memory.0 }).text(false).contains("ebof target add key"));
    }

    #[test]
    fn a_change_says_what_to_do_next_and_has_the_key_only_where_there_is_no_file() {
        let notes = vec!["no subsystem admits it".to_owned()];
        let change = KeysChange::new(Some(status("k2", KeyKind::Dhchap)), Vec::new(), true, Vec::new(), notes);
        let file = Some(Path::new("blade1.key"));
        let rotated =
            ShownKeyChange { outcome: KeyOutcome::Rotated, change: &change, file, printed: None, old_place: None };
        insta::assert_snapshot!(rotated.text(false));
        let of_configuration = ShownKeyChange { old_place: Some("/etc/ebof/keys/blade1"), ..rotated };
        let told = of_configuration.summary();
        assert!(told.contains("takes its place in /etc/ebof/keys/blade1") && !told.contains("--old"), "{told}");
        assert!(told.contains("`dhchap_key` is taken out of its [[hosts]]"), "{told}");
        let ctrl = KeysChange::new(Some(status("k3", KeyKind::DhchapCtrl)), Vec::new(), true, Vec::new(), Vec::new());
        let told = ShownKeyChange { outcome: KeyOutcome::Added, change: &ctrl, ..of_configuration }.summary();
        assert!(told.contains("--dhchap-secret-file OWN_FILE --dhchap-ctrl-secret-file blade1.key"), "{told}");
        let rotated =
            ShownKeyChange { outcome: KeyOutcome::Rotated, change: &change, file, printed: None, old_place: None };
        let printed = ShownKeyChange {
            outcome: KeyOutcome::Added,
            change: &change,
            file: None,
            printed: Some("DHHC-1:x"),
            old_place: None,
        };
        assert_eq!(printed.text(false), "DHHC-1:x\n");
        assert!(!printed.summary().contains("DHHC"), "{}", printed.summary());
        assert!(printed.json(false).to_text().unwrap().contains("\"key\": \"DHHC-1:x\""));
        assert!(!rotated.json(false).to_text().unwrap().contains("\"key\""));
    }
}
