//! Accounts and settings as a JSON text, which has a version. It contains hashes, and no password.

use serde::{Deserialize, Serialize};

use crate::account::{ACCOUNTS_MAX, AccountRecord, Accounts, check_name};
use crate::settings::AccessSettings;

/// The version that is written.
const VERSION: u32 = 1;

/// A stored text is not understood.
#[derive(Debug, thiserror::Error)]
#[error("the stored accounts are damaged: {why}")]
pub struct Damaged {
    why: String,
}

impl Damaged {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }
}

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    next_id: u32,
    accounts: &'a [AccountRecord],
    settings: &'a AccessSettings,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    #[serde(rename = "version")]
    _version: u32,
    next_id: u32,
    accounts: Vec<AccountRecord>,
    settings: AccessSettings,
}

/// Read first: what else there is depends on it.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

pub(crate) fn write(accounts: &Accounts, settings: &AccessSettings) -> String {
    let Accounts { next_id, records } = accounts;
    let written = Written { version: VERSION, next_id: *next_id, accounts: records, settings };
    serde_json::to_string_pretty(&written).expect("it has no map, and nothing that JSON does not have")
}

pub(crate) fn read(text: &str) -> Result<(Accounts, AccessSettings), Damaged> {
    let damaged = |error: serde_json::Error| Damaged::new(error.to_string());
    let Version { version } = serde_json::from_str(text).map_err(damaged)?;
    if version != VERSION {
        return Err(Damaged::new(format!("they have version {version}, and this program knows version {VERSION}")));
    }
    let Read { _version, next_id, accounts: records, settings } = serde_json::from_str(text).map_err(damaged)?;
    if records.len() > ACCOUNTS_MAX {
        return Err(Damaged::new(format!("there are {} accounts, more than {ACCOUNTS_MAX}", records.len())));
    }
    settings.check().map_err(|mistake| Damaged::new(mistake.to_string()))?;
    for (at, record) in records.iter().enumerate() {
        let others = records.get(..at).unwrap_or_default();
        let checked = check_name(&record.name).and_then(|()| Ok(record.reach.check(record.role)?));
        checked.map_err(|mistake| Damaged::new(format!("account {}: {mistake}", record.id)))?;
        if record.id.0 >= next_id || others.iter().any(|other| other.id == record.id || other.name == record.name) {
            return Err(Damaged::new(format!("account {}: its identifier or its name is not its own", record.id)));
        }
    }
    Ok((Accounts { next_id, records }, settings))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Hashed, NewAccount};
    use crate::password::PasswordHash;
    use crate::reach::AccountReach;
    use crate::role::Role;

    fn some() -> Accounts {
        let mut accounts = Accounts::none();
        for name in ["admin", "watch"] {
            let new = NewAccount {
                name: name.to_owned(),
                password: String::new(),
                role: Role::Administrator,
                reach: AccountReach::Everything,
                enabled: true,
                must_change_password: false,
            };
            accounts.add(&new, Hashed { hash: PasswordHash::of_nobody(), at_s: 1 }).unwrap();
        }
        accounts
    }

    #[test]
    fn what_is_written_is_read() {
        let settings = AccessSettings { basic_auth: false, ..AccessSettings::default() };
        assert_eq!(read(&write(&some(), &settings)).unwrap(), (some(), settings));
    }

    #[test]
    fn damage_is_noticed_wherever_it_is() {
        let text = write(&some(), &AccessSettings::default());
        for end in 0..text.len() {
            assert!(read(&text[..end]).is_err(), "cut at {end}");
        }
        for (from, to, why) in [
            ("\"version\": 1", "\"version\": 2", "version 2"),
            ("\"next_id\": 3", "\"next_id\": 2", "account 2"),
            ("\"id\": 2", "\"id\": 1", "account 1"),
            ("\"watch\"", "\"admin\"", "account 2"),
            ("\"watch\"", "\"a b\"", "account 2"),
            ("\"Administrator\"", "\"Root\"", "Root"),
            ("\"session_timeout_s\": 1800", "\"session_timeout_s\": 0", "session_timeout_s"),
            ("\"memory_kib\": 19456", "\"memory_kib\": 194560000", "KiB"),
        ] {
            let damaged = text.replacen(from, to, 1);
            assert_ne!(damaged, text, "{from}");
            let error = read(&damaged).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("damaged"), "{error}");
        }
        assert!(read(&"[".repeat(100_000)).is_err(), "deeply nested");
    }
}
