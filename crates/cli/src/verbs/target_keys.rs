//! The actions of `target` on keys of hosts: they are made here, and go to the target, which gives
//! none back.
//!
//! Owns the arguments, where a new key comes from and goes to, and the question where hosts notice.
//! The output is in `output::host_keys`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ebof_authentication::{ConfiguredPsk, Hash, KeyMaterial, Secret};
use ebof_initiator::overrides::parse;
use ebof_manage::api::{AddKey, KeyKind, KeyStatus, KeyText, Keys, KeysChange, NoSuchKeyKind};
use ebof_state::{Existing, FileMode, WriteError, store_file};

use super::keys::{one_of_file, random};
use super::{Outcome, question};
use crate::control::ControlClient;
use crate::failure::Failure;
use crate::global::{Global, OutputFormat};
use crate::output::host_keys::{KeyOutcome, ShownKeyChange, ShownKeys, config_key, disturbed};
use crate::output::text::safe;
use crate::output::{say, show};

/// How often somebody is asked who does not answer before something else is there.
const ASKED_MAX: usize = 5;

/// `add key` and `rotate key`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct NewKey {
    /// The host's NQN
    host: String,
    /// What it is for: the host proves who it is (dhchap), subsystems prove to it who they are
    /// (dhchap-ctrl), or TLS (tls)
    #[arg(long, value_name = "KIND", default_value = "dhchap", value_parser = kind)]
    kind: KeyKind,
    /// The hash that a new key is bound to, and its length with it: 0 none, 1 SHA-256, 2 SHA-384,
    /// 3 SHA-512 (not for TLS)
    #[arg(short = 'm', long, value_name = "0|1|2|3", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=3))]
    hmac: u8,
    /// A file with the key, as gen-dhchap-key and gen-tls-key make it [default: a new one is made]
    #[arg(long, value_name = "FILE", value_parser = parse::given_key_file, conflicts_with_all = ["hmac", "output_file"])]
    key_file: Option<PathBuf>,
    /// Write the new key to this file, which must not be there yet [default: it is printed, once]
    #[arg(long, value_name = "FILE")]
    output_file: Option<PathBuf>,
}

/// `remove key`.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["ids", "old", "all"]))]
pub(super) struct RemoveKeys {
    /// The host's NQN
    host: String,
    /// The key, such as k3; several for several
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// All that are stored but the newest, of each kind
    #[arg(long)]
    old: bool,
    /// All that are stored
    #[arg(long)]
    all: bool,
    /// Only those of this kind: dhchap, dhchap-ctrl or tls
    #[arg(long, value_name = "KIND", conflicts_with = "ids", value_parser = kind)]
    kind: Option<KeyKind>,
}

/// Something that is rotated.
#[derive(Clone, Debug, clap::Subcommand)]
pub(super) enum Rotated {
    /// Give a host a new key; the old ones stay good until they are removed (dhchap-ctrl is
    /// replaced at once)
    Key(NewKey),
}

fn kind(text: &str) -> Result<KeyKind, NoSuchKeyKind> {
    text.parse()
}

/// Where a new key is stored on this side.
enum Kept {
    /// The user has it in a file.
    ByUser,
    /// In a file that was made for it.
    In(PathBuf),
    /// Nowhere: it is printed.
    Printed,
}

/// What is done with keys of hosts.
pub(super) enum KeyAction {
    Show,
    Add(NewKey),
    Rotate(NewKey),
    Remove(RemoveKeys),
}

impl KeyAction {
    /// Does it at a target; with `yes` without a question.
    pub(super) fn run(self, control: &ControlClient, yes: bool, global: &Global) -> Outcome {
        match self {
            Self::Show => show(global, &ShownKeys(control.keys()?))?,
            Self::Add(new) => new.carry_out(control, KeyOutcome::Added, None, yes, global)?,
            Self::Rotate(new) => new.rotate(control, yes, global)?,
            Self::Remove(keys) => keys.run(control, yes, global)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl NewKey {
    fn rotate(self, control: &ControlClient, yes: bool, global: &Global) -> anyhow::Result<()> {
        let keys = control.keys()?;
        let of_host: Vec<_> = keys.keys.iter().filter(|key| key.host == self.host && key.kind == self.kind).collect();
        if of_host.is_empty() {
            let message = format!("{} has no {} key that another one could follow", safe(&self.host), self.kind);
            let advice = "`ebof target add key HOST` gives it the first one; `ebof target show keys` lists all";
            return Err(Failure::usage(message, advice).into());
        }
        // What the target does not store itself, it cannot remove either.
        let places = of_host.iter().map(|key| key.place.as_deref());
        let place = places.collect::<Option<Vec<_>>>().map(|mut places| {
            // Several keys of one file.
            places.dedup();
            places.join(", ")
        });
        self.carry_out(control, KeyOutcome::Rotated, place.as_deref(), yes, global)
    }

    fn carry_out(
        self,
        control: &ControlClient,
        outcome: KeyOutcome,
        old_place: Option<&str>,
        yes: bool,
        global: &Global,
    ) -> anyhow::Result<()> {
        let (text, kept) = self.text()?;
        // There is one of that kind only, which the other one replaces.
        let replace = outcome == KeyOutcome::Rotated && self.kind == KeyKind::DhchapCtrl;
        let key = AddKey { host: self.host.clone(), kind: self.kind, key: text, replace };
        let change = self.added(control, &key, &kept, yes)?;
        let printed = matches!(kept, Kept::Printed).then(|| key.key.as_str());
        let file = match &kept {
            Kept::In(path) => Some(path.as_path()),
            _ => self.key_file.as_deref(),
        };
        let shown = ShownKeyChange { outcome, change: &change, file, printed, old_place };
        if let (OutputFormat::Normal, Some(_)) = (global.format, printed) {
            // The key is all that is on standard output, so that a script has it.
            say(shown.summary().trim_end());
        }
        show(global, &shown)
    }

    fn added(&self, control: &ControlClient, key: &AddKey, kept: &Kept, yes: bool) -> anyhow::Result<KeysChange> {
        let mut is_stored = false;
        let what = format!("This gives {} a {} key.", safe(&self.host), self.kind);
        let make = |planned: &KeysChange| {
            if let (Kept::In(path), false) = (kept, is_stored) {
                store(path, key.key.as_str())?;
                is_stored = true;
            }
            control.add_key(key, &planned.revision)
        };
        let made = bound(yes, &what, || control.plan_key(key), make);
        made.map_err(|error| {
            if matches!(kept, Kept::Printed) && error.is_outcome_unknown() {
                // The target may have it, and nobody else then.
                say(key.key.as_str());
                let look = "that is the key: `ebof target show keys` tells whether the target has it";
                return error.with_more_advice(look).into();
            }
            let Kept::In(path) = kept else { return error.into() };
            if is_stored && error.is_outcome_unknown() {
                let shown = safe(&path.display().to_string());
                let look = format!("{shown} has the key: `ebof target show keys` tells whether the target has it, too");
                return error.with_more_advice(&look).into();
            }
            if is_stored {
                // It was made a moment ago, and is good for nothing.
                let _gone = std::fs::remove_file(path);
            }
            error.into()
        })
    }

    /// A key of this kind: one that the user has, or a new one.
    fn text(&self) -> anyhow::Result<(KeyText, Kept)> {
        if let Some(path) = &self.key_file {
            return Ok((KeyText::new(one_of_file(path)?), Kept::ByUser));
        }
        let kept = self.output_file.clone().map_or(Kept::Printed, Kept::In);
        if let Kept::In(path) = &kept
            && path.symlink_metadata().is_ok()
        {
            let message =
                format!("{} is there already, and may be a key that is in use", safe(&path.display().to_string()));
            return Err(Failure::usage(message, "name another file").into());
        }
        let hash = Hash::from_id(self.hmac);
        let bytes = KeyMaterial::new(random(hash.map_or(32, Hash::bytes))?);
        let text = match self.kind {
            KeyKind::Dhchap | KeyKind::DhchapCtrl => Secret::new(bytes, hash).map(|secret| secret.to_text()),
            KeyKind::Tls => ConfiguredPsk::new(bytes, hash).map(|psk| psk.to_text()),
        };
        let text = text.map_err(|error| Failure::usage(error.to_string(), "for TLS use `-m 0`, `-m 1` or `-m 2`"))?;
        Ok((KeyText::new(text), kept))
    }
}

impl RemoveKeys {
    fn run(self, control: &ControlClient, yes: bool, global: &Global) -> anyhow::Result<()> {
        let keys = control.keys()?;
        let ids = self.chosen(&keys)?;
        let what = format!("This removes {} of {}.", ids.join(", "), safe(&self.host));
        let change = bound(
            yes,
            &what,
            || control.plan_without_keys(&ids),
            |planned| control.remove_keys(&ids, &planned.revision),
        )?;
        show(
            global,
            &ShownKeyChange {
                outcome: KeyOutcome::Removed,
                change: &change,
                file: None,
                printed: None,
                old_place: None,
            },
        )
    }

    /// The ids of the keys that are meant.
    fn chosen(&self, keys: &Keys) -> Result<Vec<String>, Failure> {
        let list = "`ebof target show keys` lists all";
        let host = safe(&self.host);
        let of_host: Vec<&KeyStatus> = keys.keys.iter().filter(|key| key.host == self.host).collect();
        let is_stored = |id: &&String| of_host.iter().any(|key| key.id.as_ref() == Some(id));
        if let Some(other) = self.ids.iter().find(|id| !is_stored(id)) {
            let message = format!("{host} has no stored key {}", safe(&other.chars().take(8).collect::<String>()));
            return Err(Failure::usage(message, list));
        }
        if !self.ids.is_empty() {
            return Ok(self.ids.clone());
        }
        let is_meant = |kind: KeyKind| self.kind.is_none_or(|only| only == kind);
        let mut chosen = Vec::new();
        for kind in KeyKind::ALL.into_iter().filter(|kind| is_meant(*kind)) {
            // The oldest first.
            let mut ids: Vec<&String> =
                of_host.iter().filter(|key| key.kind == kind).filter_map(|key| key.id.as_ref()).collect();
            if self.old {
                ids.pop();
            }
            chosen.extend(ids.into_iter().cloned());
        }
        if !chosen.is_empty() {
            return Ok(chosen);
        }
        let configured = of_host.iter().filter(|key| key.id.is_none() && is_meant(key.kind));
        let mut places: Vec<String> = configured
            .filter_map(|key| Some(format!("`{}` in {}", config_key(key.kind), safe(key.place.as_ref()?))))
            .collect();
        // Several keys of one file.
        places.dedup();
        let what = if self.old { "no old key" } else { "no key" };
        let message = format!("{what} of {host} is stored");
        if places.is_empty() {
            return Err(Failure::usage(message, list));
        }
        let advice = format!(
            "its configuration has {}: put the new key into the file in its place, or take the name of the file out of its \
             [[hosts]]; then `ebof target reload`",
            places.join(" and ")
        );
        Err(Failure::usage(message, advice))
    }
}

/// Makes a change that was planned, after a question where hosts notice it or something is
/// remarkable about what they lose. It is planned again where others were faster.
fn bound(
    yes: bool,
    what: &str,
    plan: impl Fn() -> Result<KeysChange, Failure>,
    mut make: impl FnMut(&KeysChange) -> Result<KeysChange, Failure>,
) -> Result<KeysChange, Failure> {
    let mut plans = 0;
    loop {
        plans += 1;
        let planned = plan()?;
        let mut lines = disturbed(&planned);
        if planned.added.is_none() {
            lines.extend(planned.notes.iter().map(|note| safe(note)));
        }
        if !yes && !lines.is_empty() {
            question::ask(what, &lines, "--yes")?;
        }
        match make(&planned) {
            Err(error) if error.is_outdated() && plans < ASKED_MAX => {
                say("something else has changed meanwhile: the plan is made again");
            }
            made => return made,
        }
    }
}

/// Stores a key in a file that is not there yet, and that nobody else can read.
fn store(path: &Path, key: &str) -> Result<(), Failure> {
    let line = format!("{key}\n");
    let stored = store_file(path, FileMode::Exactly(0o600), Existing::Kept, line.as_bytes());
    stored.map_err(|error| {
        let (WriteError::NotStored(source) | WriteError::Unknown(source)) = &error;
        let message = format!("storing the key in {}: {source}", safe(&path.display().to_string()));
        Failure::new("io", message, "nothing was changed: name another file")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "nqn.2014-08.org.example:a";

    fn status(id: Option<&str>, kind: KeyKind) -> KeyStatus {
        KeyStatus {
            id: id.map(str::to_owned),
            host: HOST.to_owned(),
            kind,
            place: id.is_none().then(|| "/etc/ebof/keys/a".to_owned()),
            hash: None,
            bits: 256,
            since_s: None,
            connected: None,
        }
    }

    fn chosen(keys: &[KeyStatus], words: &[&str]) -> Result<String, String> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            remove: RemoveKeys,
        }
        let line = ["remove", HOST].iter().chain(words).copied();
        let line = <Line as clap::Parser>::try_parse_from(line).map_err(|error| error.to_string())?;
        let keys = Keys { schema: 1, durable: true, keys: keys.to_vec() };
        line.remove.chosen(&keys).map(|ids| ids.join(" ")).map_err(|error| error.to_string())
    }

    #[test]
    fn old_keys_are_all_but_the_newest_of_each_kind() {
        let (dhchap, tls) = (KeyKind::Dhchap, KeyKind::Tls);
        let keys = [
            status(Some("k1"), dhchap),
            status(Some("k4"), dhchap),
            status(Some("k7"), dhchap),
            status(Some("k2"), tls),
        ];
        assert_eq!(chosen(&keys, &["--old"]).unwrap(), "k1 k4");
        assert_eq!(chosen(&keys, &["--old", "--kind", "dhchap"]).unwrap(), "k1 k4");
        assert_eq!(chosen(&keys, &["--all"]).unwrap(), "k1 k4 k7 k2");
        assert_eq!(chosen(&keys, &["--all", "--kind", "tls"]).unwrap(), "k2");
        assert_eq!(chosen(&keys, &["k4", "k2"]).unwrap(), "k4 k2");
        assert!(chosen(&keys, &["--old", "--kind", "tls"]).unwrap_err().contains("no old key"));
        assert!(chosen(&keys, &["k9"]).unwrap_err().contains("has no stored key k9"));
        assert!(chosen(&keys, &[]).unwrap_err().contains("<ID|--old|--all>"), "{:?}", chosen(&keys, &[]));
        assert!(chosen(&keys, &["k1", "--kind", "tls"]).unwrap_err().contains("cannot be used with"));
    }

    #[test]
    fn keys_of_the_configuration_are_removed_where_they_are() {
        let keys = [status(None, KeyKind::Dhchap), status(Some("k1"), KeyKind::Dhchap)];
        let told = chosen(&keys, &["--old"]).unwrap_err();
        assert!(told.contains("`dhchap_key` in /etc/ebof/keys/a") && told.contains("ebof target reload"), "{told}");
        assert!(told.contains("in its place") && told.contains("[[hosts]]"), "{told}");
        let told = chosen(&[status(None, KeyKind::Dhchap), status(None, KeyKind::Tls)], &["--all"]).unwrap_err();
        assert!(told.contains("`dhchap_key` in ") && told.contains("`tls_psk` in "), "{told}");
        assert_eq!(chosen(&keys, &["--all"]).unwrap(), "k1");
    }
}
