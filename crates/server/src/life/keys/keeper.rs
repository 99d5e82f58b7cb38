//! Keys that are added to a running target, and removed: what is checked, whom it disturbs, and how
//! it comes into force.
//!
//! A change is stored first, and in force then, both under the lock of changes of the
//! configuration: a key that a host can use is there after the next start, too.

use std::sync::{Arc, PoisonError};

use ebof_fabrics::CloseReason;
use ebof_manage::api::{
    AddKey, Asker, ConfigStoreError, ControllerStatus, KEYS_SCHEMA, KeyKeeper, KeyKind, KeyStatus, Keys, KeysChange,
    Revision, STORED_KEYS_MAX,
};
use ebof_manage::enclosure::{DisturbedHost, Mistake, MistakeKind, Refused};
use ebof_manage::events::{EventKind, NewEvent};
use ebof_nvme::{ControllerId, Nqn};

use super::told::Told;
use super::{HostKeys, maker};
use crate::environment::stored_keys::{HostKey, KeyList, StoredKey, StoredKeys};
use crate::life::in_force::InForce;
use crate::life::serve::Target;
use crate::life::status::InForceStatus;

/// A change that could be made.
struct Prepared {
    list: KeyList,
    change: KeysChange,
}

impl KeyKeeper for Target {
    fn keys(&self) -> Keys {
        Keeper::new(self).keys()
    }

    fn plan_add(&self, key: &AddKey) -> Result<KeysChange, Refused> {
        Ok(Keeper::new(self).prepare_add(key)?.change)
    }

    fn add(&self, key: &AddKey, planned: Option<&Revision>, by: &Asker) -> Result<KeysChange, Refused> {
        let keeper = Keeper::new(self);
        keeper.make(planned, by, || keeper.prepare_add(key))
    }

    fn plan_remove(&self, ids: &[String]) -> Result<KeysChange, Refused> {
        Ok(Keeper::new(self).prepare_remove(ids)?.change)
    }

    fn remove(&self, ids: &[String], planned: Option<&Revision>, by: &Asker) -> Result<KeysChange, Refused> {
        let keeper = Keeper::new(self);
        keeper.make(planned, by, || keeper.prepare_remove(ids))
    }
}

/// The keys of a target, and what it has in force.
struct Keeper<'t> {
    target: &'t Target,
    stored: &'t StoredKeys,
}

impl<'t> Keeper<'t> {
    fn new(target: &'t Target) -> Self {
        Self { target, stored: &target.shared.settings.environment.stored_keys }
    }

    fn keys(&self) -> Keys {
        let stored = self.stored.list();
        let (state, controllers) = self.with_controllers();
        let told = known_keys(&state, &controllers);
        Keys { schema: KEYS_SCHEMA, durable: self.stored.are_durable(), keys: told.all(&stored) }
    }

    fn with_controllers(&self) -> (InForce, Vec<ControllerStatus>) {
        let state = self.target.in_force().clone();
        let controllers = InForceStatus::new(&self.target.shared, &state).controllers();
        (state, controllers)
    }

    /// Makes a change that nothing else changes meanwhile.
    fn make(
        &self,
        planned: Option<&Revision>,
        by: &Asker,
        prepare: impl FnOnce() -> Result<Prepared, Refused>,
    ) -> Result<KeysChange, Refused> {
        let _alone = self.target.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let Prepared { list, change } = prepare()?;
        if planned.is_some_and(|planned| *planned != change.revision) {
            let message = "the keys or the connected hosts have changed since the plan";
            return Err(Refused::because(
                MistakeKind::Outdated,
                message,
                "plan again (`?plan=1`), and send its `revision`",
            ));
        }
        self.stored.replace(list).map_err(not_stored)?;
        self.show_keys();
        events(&change).for_each(|event| self.target.shared.report(event.by(by)));
        Ok(change)
    }

    /// Has hosts prove themselves by the keys that there are now.
    fn show_keys(&self) {
        let configured = self.target.in_force().devices.keys.clone();
        let HostKeys { secrets, tls_psks } = configured.with(&self.stored.list());
        // Delivered under the lock, so that no queue hears of older keys later.
        let mut registry = self.target.shared.registry();
        let model = registry.model().with_keys(secrets, tls_psks);
        let notices = registry.replace_model(Arc::new(model));
        self.target.shared.deliver(notices);
    }

    fn prepare_add(&self, add: &AddKey) -> Result<Prepared, Refused> {
        let (host, key) = parsed(&add.host, add.kind, add.key.as_str())?;
        let (state, controllers) = self.with_controllers();
        let told = known_keys(&state, &controllers);
        let before = self.stored.list();
        let is_removed = |key: &&StoredKey| add.replace && key.is_of(&host, add.kind);
        let removed: Vec<&StoredKey> = before.keys.iter().filter(is_removed).collect();
        let kept = before.without(&numbers(&removed));
        check(&told, &kept, &host, &key)?;
        let now_s = self.target.shared.clock.unix_ms() / 1000;
        let (list, added) = kept.with(host, key, now_s);
        let mut notes = told.notes_of_added(&added);
        notes.extend(self.note_of_memory());
        let removed = removed.iter().map(|key| told.stored(key)).collect();
        let change = self.change(&told, &list, (Some(told.stored(&added)), removed), notes);
        Ok(Prepared { list, change })
    }

    fn prepare_remove(&self, ids: &[String]) -> Result<Prepared, Refused> {
        let (state, controllers) = self.with_controllers();
        let told = known_keys(&state, &controllers);
        let before = self.stored.list();
        let mut removed: Vec<&StoredKey> = Vec::new();
        for id in ids {
            let key = before.keys.iter().find(|key| key.id() == *id).ok_or_else(|| no_such_key(id))?;
            if !removed.contains(&key) {
                removed.push(key);
            }
        }
        let list = before.without(&numbers(&removed));
        let notes = told.notes_of_removed(&removed, &list);
        let removed = removed.iter().map(|key| told.stored(key)).collect();
        let change = self.change(&told, &list, (None, removed), notes);
        Ok(Prepared { list, change })
    }

    /// What becomes of hosts with this list, in which keys were added and removed.
    fn change(
        &self,
        told: &Told<'_>,
        list: &KeyList,
        (added, removed): (Option<KeyStatus>, Vec<KeyStatus>),
        notes: Vec<String>,
    ) -> KeysChange {
        let HostKeys { secrets, tls_psks } = told.configured.with(list);
        let registry = self.target.shared.registry();
        let ended = registry.ended_by(&registry.model().with_keys(secrets, tls_psks));
        drop(registry);
        let why = if added.is_some() {
            "its connection ends: the host has to prove who it is"
        } else {
            "its connection ends: the host has no key any more for what is demanded of it"
        };
        let disturbed = |(subsystem, cntlid, _): &(Nqn, ControllerId, CloseReason)| {
            let is_it = |it: &&ControllerStatus| it.subsystem_nqn == subsystem.as_str() && it.cntlid == cntlid.0;
            let found = told.controllers.iter().find(is_it)?;
            Some(DisturbedHost {
                host_nqn: found.host_nqn.clone(),
                subsystem_nqn: found.subsystem_nqn.clone(),
                cntlid: found.cntlid,
                port: found.port.clone(),
                why: why.to_owned(),
            })
        };
        let disturbed = ended.iter().filter_map(disturbed).collect();
        KeysChange::new(added, removed, self.stored.are_durable(), disturbed, notes)
    }

    fn note_of_memory(&self) -> Option<String> {
        let text = "the target has no state directory: the key is in its memory, and gone when it ends";
        (!self.stored.are_durable()).then(|| text.to_owned())
    }
}

fn known_keys<'t>(state: &'t InForce, controllers: &'t [ControllerStatus]) -> Told<'t> {
    Told { config: &state.config, configured: &state.devices.keys, controllers }
}

fn numbers(keys: &[&StoredKey]) -> Vec<u64> {
    keys.iter().map(|key| key.number).collect()
}

/// What keys begin with.
const PREFIXES: [&str; 2] = ["DHHC-1:", "NVMeTLSkey-1:"];

/// What is sent, read. Messages have nothing of it but the host's name.
fn parsed(host: &str, kind: KeyKind, key: &str) -> Result<(Nqn, HostKey), Refused> {
    if PREFIXES.iter().any(|prefix| host.contains(prefix)) {
        let advice = "put the key where it belongs, and replace it if others may have seen it";
        return Err(Refused::because(MistakeKind::Value, "the host's NQN is a key", advice));
    }
    let host = Nqn::parse(host).map_err(|error| {
        let advice = "an NQN is like nqn.2014-08.org.example:host";
        Refused::because(MistakeKind::Value, format!("the host's NQN: {error}"), advice)
    })?;
    let key = HostKey::parse(kind, key).map_err(|error| {
        let maker = maker(kind == KeyKind::Tls);
        refusal(MistakeKind::Value, &host, format!("the {kind} key: {error}"), format!("{maker} makes one"))
    })?;
    Ok((host, key))
}

/// Whether a host may be given a key beside those that are kept.
fn check(told: &Told<'_>, kept: &KeyList, host: &Nqn, key: &HostKey) -> Result<(), Refused> {
    let kind = key.kind();
    let place = told.place(host, kind).map(ToString::to_string).unwrap_or_default();
    let (configured, stored) = (told.configured.count(host, kind), kept.keys_of(host, kind).count());
    let (message, advice) = if told.configured.has(host, key) {
        (format!("its configuration has this key already ({place})"), "nothing was changed".to_owned())
    } else if let Some(same) = kept.keys_of(host, kind).find(|it| it.key == *key) {
        (format!("it has this key already: {}", same.id()), "nothing was changed".to_owned())
    } else if kind == KeyKind::DhchapCtrl && configured > 0 {
        let message = format!("its dhchap-ctrl key is that of the configuration ({place})");
        (message, "replace it there, and put it in force: `ebof target reload`".to_owned())
    } else if kind == KeyKind::DhchapCtrl && stored > 0 {
        let advice = format!("replace it: `ebof target rotate key {host} --kind dhchap-ctrl`");
        ("it has a dhchap-ctrl key, and there can be one only".to_owned(), advice)
    } else if kind == KeyKind::DhchapCtrl && !told.configured.with(kept).secrets.contains_key(host) {
        let advice = format!("give it one first: `ebof target add key {host}`");
        ("it has no dhchap key, and only a host that proves itself can ask for a proof".to_owned(), advice)
    } else if configured + stored >= kind.most() {
        let advice =
            format!("remove those that are not used any more: `ebof target remove key {host} --old --kind {kind}`");
        (format!("it has {} {kind} keys, as many as it may have", configured + stored), advice)
    } else if !kept.has_room() {
        let advice = "remove those of hosts that are gone: `ebof target show keys`".to_owned();
        (format!("the target stores {STORED_KEYS_MAX} keys, as many as it may"), advice)
    } else {
        return Ok(());
    };
    Err(refusal(MistakeKind::Conflict, host, message, advice))
}

fn refusal(kind: MistakeKind, host: &Nqn, message: String, advice: String) -> Refused {
    Refused { mistakes: vec![Mistake::new(kind, &format!("host {host}"), message, advice)] }
}

fn no_such_key(id: &str) -> Refused {
    // As much as an id may have: it may be a key that was put in the wrong place.
    let id: String = id.chars().take(8).collect();
    let advice = "`ebof target show keys` lists those that there are; keys of the configuration have no id: take them out of \
                  their file, and `ebof target reload`";
    let mistake = Mistake::new(MistakeKind::NotFound, &format!("key {id}"), "no such key is stored", advice);
    Refused { mistakes: vec![mistake] }
}

fn not_stored(error: ConfigStoreError) -> Refused {
    match error {
        ConfigStoreError::NotStored(error) => {
            let advice = "nothing was changed: see that the state directory can be written and has room";
            Refused::because(MistakeKind::NotStored, format!("the keys cannot be stored: {error}"), advice)
        }
        ConfigStoreError::Unknown(error) => {
            let message = format!(
                "it is not known whether the keys are stored: the change is not in force, and may be after the next start: {error}"
            );
            let advice = "see to the medium of the state directory, and look at what is in force";
            Refused::because(MistakeKind::Unknown, message, advice)
        }
    }
}

/// What whoever follows what happens is told of a change.
fn events(change: &KeysChange) -> impl Iterator<Item = NewEvent> {
    let event = |kind, key: &KeyStatus, done: &str| {
        let id = key.id.as_deref().unwrap_or_default();
        NewEvent::new(kind, key.host.as_str(), format!("{id}, a {} key of {}, was {done}", key.kind, key.host))
    };
    let added = change.added.iter().map(move |key| event(EventKind::KeyAdded, key, "added"));
    added.chain(change.removed.iter().map(move |key| event(EventKind::KeyRemoved, key, "removed")))
}
