//! Whoever has the keys of hosts, for those who have none of them.

use ebof_manage::api::{AddKey, Asker, KEYS_SCHEMA, KeyKeeper, Keys, KeysChange, Revision};
use ebof_manage::enclosure::{MistakeKind, Refused};

/// What a service is that keeps no keys, and what all are to whom they are not shown.
#[derive(Clone, Copy, Debug)]
pub struct NoKeys;

impl NoKeys {
    fn refused() -> Refused {
        let message = "keys of hosts are not kept here, or not for this account";
        Refused::because(MistakeKind::NotAllowed, message, "ask an Administrator")
    }
}

impl KeyKeeper for NoKeys {
    fn keys(&self) -> Keys {
        Keys { schema: KEYS_SCHEMA, durable: false, keys: Vec::new() }
    }

    fn plan_add(&self, _key: &AddKey) -> Result<KeysChange, Refused> {
        Err(Self::refused())
    }

    fn add(&self, _key: &AddKey, _planned: Option<&Revision>, _by: &Asker) -> Result<KeysChange, Refused> {
        Err(Self::refused())
    }

    fn plan_remove(&self, _ids: &[String]) -> Result<KeysChange, Refused> {
        Err(Self::refused())
    }

    fn remove(&self, _ids: &[String], _planned: Option<&Revision>, _by: &Asker) -> Result<KeysChange, Refused> {
        Err(Self::refused())
    }
}
