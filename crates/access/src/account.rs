//! Accounts: what one is, which are accepted, and how they change. That an administrator is left
//! is checked here, for every change.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ebof_clock::NoRandomness;
use serde::{Deserialize, Serialize};

use crate::password::{Credential, PASSWORD_LENGTH_MAX, PASSWORD_LENGTH_MIN, PasswordHash, Unsuitable};
use crate::reach::{AccountReach, Beyond, NAME_BYTES_MAX, NAMES_MAX};
use crate::role::Role;

/// The most accounts.
pub const ACCOUNTS_MAX: usize = 64;

/// The longest user name, characters.
const NAME_LENGTH_MAX: usize = 32;

/// Names an account, also after its user name has changed. It is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccountId(pub(crate) u32);

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for AccountId {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Self, Mistake> {
        let id: u32 = text.parse().map_err(|_no_number| Mistake::NoSuchAccount)?;
        // There is one way to write each.
        if id.to_string() == text { Ok(Self(id)) } else { Err(Mistake::NoSuchAccount) }
    }
}

/// An account, as others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Its identifier.
    pub id: AccountId,
    /// The user name.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// What it sees.
    pub reach: AccountReach,
    /// Whether its user may log in.
    pub enabled: bool,
    /// Whether it is locked at present, after too many failed logins.
    pub locked: bool,
    /// Whether its user has to choose a password before anything else.
    pub must_change_password: bool,
    /// When its password was set, since 1970.
    pub password_set: Duration,
    /// Which password it has.
    #[serde(skip)]
    pub credential: Credential,
}

/// An account that is to be added.
#[derive(Clone, Debug)]
pub struct NewAccount {
    /// The user name.
    pub name: String,
    /// The password.
    pub password: String,
    /// What it may do.
    pub role: Role,
    /// What it sees.
    pub reach: AccountReach,
    /// Whether its user may log in.
    pub enabled: bool,
    /// Whether its user has to choose another password first.
    pub must_change_password: bool,
}

/// What is to change of an account; `None` leaves it as it is.
#[derive(Clone, Debug, Default)]
pub struct AccountChange {
    /// The user name.
    pub name: Option<String>,
    /// The password. It need not be changed again, unless `must_change_password` says so.
    pub password: Option<String>,
    /// What it may do.
    pub role: Option<Role>,
    /// What it sees.
    pub reach: Option<AccountReach>,
    /// Whether its user may log in.
    pub enabled: Option<bool>,
    /// Whether its user has to choose another password first.
    pub must_change_password: Option<bool>,
    /// Ends a lockout.
    pub unlock: bool,
}

/// Why something about accounts or sessions is not done. Nothing was changed, unless it says so.
#[derive(Debug, thiserror::Error)]
pub enum Mistake {
    /// There is none with that identifier.
    #[error("there is no such account")]
    NoSuchAccount,
    /// There is no such session.
    #[error("there is no such session")]
    NoSuchSession,
    /// The user name is not accepted.
    #[error(
        "a user name has 1 to {NAME_LENGTH_MAX} characters: letters and digits of ASCII, and inside or behind them . _ - @"
    )]
    Name,
    /// Another account has it.
    #[error("another account has this user name")]
    NameTaken,
    /// There are as many as there can be.
    #[error("there are {ACCOUNTS_MAX} accounts, the most that there can be: remove one")]
    TooManyAccounts,
    /// The password is too short or too long.
    #[error("a password has {PASSWORD_LENGTH_MIN} to {PASSWORD_LENGTH_MAX} characters")]
    PasswordLength,
    /// The password has characters that cannot be typed everywhere.
    #[error("a password has no control characters")]
    PasswordCharacters,
    /// It is the first one that an attacker tries.
    #[error("a password is not the user name")]
    PasswordIsName,
    /// Nobody could change accounts any more.
    #[error("this is the last administrator who may log in: make another one first")]
    LastAdministrator,
    /// An Administrator sees and changes everything.
    #[error("an Administrator is not limited to drives and subsystems: choose another role, or no limits")]
    LimitedAdministrator,
    /// What an account is limited to is not accepted.
    #[error(
        "an account is limited to at most {NAMES_MAX} drives and subsystems, whose names have 1 to \
         {NAME_BYTES_MAX} bytes without control characters"
    )]
    Reach,
    /// A setting is outside of its limits.
    #[error("{setting} is {value}: accepted are {low} to {high}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// The value.
        value: u32,
        /// The least accepted value.
        low: u32,
        /// The greatest one.
        high: u32,
    },
    /// Too many passwords are being hashed.
    #[error("too many passwords are being checked at the moment: try again in a second")]
    Busy,
    /// It could not be stored.
    #[error("the accounts cannot be stored: {0}")]
    NotStored(std::io::Error),
    /// It is not in force, and may be after a restart.
    #[error(
        "it is not known whether the change of accounts is stored: it is not in force, and may be after a restart: {0}"
    )]
    Unknown(std::io::Error),
    /// The system gives no randomness.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

impl From<Beyond> for Mistake {
    fn from(beyond: Beyond) -> Self {
        match beyond {
            Beyond::Administrator => Self::LimitedAdministrator,
            Beyond::Names => Self::Reach,
        }
    }
}

impl From<Unsuitable> for Mistake {
    fn from(unsuitable: Unsuitable) -> Self {
        match unsuitable {
            Unsuitable::Length => Self::PasswordLength,
            Unsuitable::Characters => Self::PasswordCharacters,
            Unsuitable::IsName => Self::PasswordIsName,
        }
    }
}

impl PartialEq for Mistake {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

/// An account with what only this crate sees, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccountRecord {
    pub(crate) id: AccountId,
    pub(crate) name: String,
    pub(crate) role: Role,
    /// A program that does not know it refuses the whole text, and limits nobody less.
    #[serde(default, skip_serializing_if = "AccountReach::is_everything")]
    pub(crate) reach: AccountReach,
    pub(crate) enabled: bool,
    pub(crate) must_change_password: bool,
    pub(crate) password_set_s: u64,
    pub(crate) password: PasswordHash,
}

impl AccountRecord {
    fn is_enabled_administrator(&self) -> bool {
        self.enabled && self.role == Role::Administrator
    }
}

/// All accounts, in the order of their identifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Accounts {
    pub(crate) next_id: u32,
    pub(crate) records: Vec<AccountRecord>,
}

/// A password that was hashed, and when.
pub(crate) struct Hashed {
    pub(crate) hash: PasswordHash,
    pub(crate) at_s: u64,
}

impl Accounts {
    pub(crate) fn none() -> Self {
        Self { next_id: 1, records: Vec::new() }
    }

    pub(crate) fn by_id(&self, id: AccountId) -> Option<&AccountRecord> {
        self.records.iter().find(|record| record.id == id)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&AccountRecord> {
        self.records.iter().find(|record| record.name == name)
    }

    pub(crate) fn add(&mut self, new: &NewAccount, password: Hashed) -> Result<AccountId, Mistake> {
        check_name(&new.name)?;
        new.reach.check(new.role)?;
        if self.by_name(&new.name).is_some() {
            return Err(Mistake::NameTaken);
        }
        if self.records.len() >= ACCOUNTS_MAX {
            return Err(Mistake::TooManyAccounts);
        }
        let id = AccountId(self.next_id);
        // Four thousand million accounts later.
        self.next_id = self.next_id.checked_add(1).ok_or(Mistake::TooManyAccounts)?;
        self.records.push(AccountRecord {
            id,
            name: new.name.clone(),
            role: new.role,
            reach: new.reach.clone(),
            enabled: new.enabled,
            must_change_password: new.must_change_password,
            password_set_s: password.at_s,
            password: password.hash,
        });
        Ok(id)
    }

    pub(crate) fn change(
        &mut self,
        id: AccountId,
        change: &AccountChange,
        password: Option<Hashed>,
    ) -> Result<(), Mistake> {
        let had_administrator = self.has_administrator();
        if let Some(name) = &change.name {
            check_name(name)?;
            if self.by_name(name).is_some_and(|other| other.id != id) {
                return Err(Mistake::NameTaken);
            }
        }
        let record = self.records.iter_mut().find(|record| record.id == id).ok_or(Mistake::NoSuchAccount)?;
        if let Some(name) = &change.name {
            record.name.clone_from(name);
        }
        if let Some(Hashed { hash, at_s }) = password {
            record.password = hash;
            record.password_set_s = at_s;
            record.must_change_password = false;
        }
        record.role = change.role.unwrap_or(record.role);
        if let Some(reach) = &change.reach {
            record.reach.clone_from(reach);
        }
        record.reach.check(record.role)?;
        record.enabled = change.enabled.unwrap_or(record.enabled);
        record.must_change_password = change.must_change_password.unwrap_or(record.must_change_password);
        self.keeps_administrator(had_administrator)
    }

    pub(crate) fn remove(&mut self, id: AccountId) -> Result<(), Mistake> {
        let had_administrator = self.has_administrator();
        let at = self.records.iter().position(|record| record.id == id).ok_or(Mistake::NoSuchAccount)?;
        self.records.remove(at);
        self.keeps_administrator(had_administrator)
    }

    /// The change is made in a copy, so that a refusal needs no undoing.
    fn keeps_administrator(&self, had_administrator: bool) -> Result<(), Mistake> {
        if had_administrator && !self.has_administrator() { Err(Mistake::LastAdministrator) } else { Ok(()) }
    }

    pub(crate) fn has_administrator(&self) -> bool {
        self.records.iter().any(AccountRecord::is_enabled_administrator)
    }
}

/// Checks a user name: it is written to logs and shown in pages, and part of an HTTP header, where
/// a colon ends it (RFC 7617).
pub(crate) fn check_name(name: &str) -> Result<(), Mistake> {
    let is_accepted = |character: char| character.is_ascii_alphanumeric() || "._-@".contains(character);
    let starts = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    if starts && name.len() <= NAME_LENGTH_MAX && name.chars().all(is_accepted) { Ok(()) } else { Err(Mistake::Name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashed() -> Hashed {
        Hashed { hash: PasswordHash::of_nobody(), at_s: 7 }
    }

    fn new(name: &str, role: Role) -> NewAccount {
        NewAccount {
            name: name.to_owned(),
            password: String::new(),
            role,
            reach: AccountReach::Everything,
            enabled: true,
            must_change_password: false,
        }
    }

    #[test]
    fn only_some_names_are_accepted() {
        for good in ["a", "Admin", "j.doe@example.org", "0", &"x".repeat(32)] {
            assert_eq!(check_name(good), Ok(()));
        }
        for bad in ["", "-a", ".a", "a b", "a:b", "ä", "a\n", "a/b", "<b>", &"x".repeat(33)] {
            assert_eq!(check_name(bad), Err(Mistake::Name), "{bad}");
        }
    }

    #[test]
    fn an_administrator_is_always_left() {
        let mut accounts = Accounts::none();
        let first = accounts.add(&new("first", Role::Administrator), hashed()).unwrap();
        let demoted = AccountChange { role: Some(Role::Operator), ..AccountChange::default() };
        let disabled = AccountChange { enabled: Some(false), ..AccountChange::default() };
        let tries = |accounts: &Accounts| {
            let copy = || accounts.clone();
            [copy().change(first, &demoted, None), copy().change(first, &disabled, None), copy().remove(first)]
        };
        assert!(tries(&accounts).iter().all(|it| *it == Err(Mistake::LastAdministrator)));
        let second = accounts.add(&new("second", Role::Administrator), hashed()).unwrap();
        assert!(tries(&accounts).iter().all(Result::is_ok));
        accounts.change(second, &disabled, None).unwrap();
        assert!(tries(&accounts).iter().all(|it| *it == Err(Mistake::LastAdministrator)), "a disabled one is none");
    }

    #[test]
    fn names_are_unique_and_identifiers_are_not_used_again() {
        let mut accounts = Accounts::none();
        let a = accounts.add(&new("a", Role::Administrator), hashed()).unwrap();
        let b = accounts.add(&new("b", Role::ReadOnly), hashed()).unwrap();
        assert_eq!(accounts.clone().add(&new("b", Role::ReadOnly), hashed()), Err(Mistake::NameTaken));
        let rename = |to: &str| AccountChange { name: Some(to.to_owned()), ..AccountChange::default() };
        assert_eq!(accounts.clone().change(b, &rename("a"), None), Err(Mistake::NameTaken));
        assert_eq!(accounts.clone().change(b, &rename(""), None), Err(Mistake::Name));
        accounts.change(b, &rename("b"), None).unwrap();
        accounts.remove(b).unwrap();
        let again = accounts.add(&new("b", Role::ReadOnly), hashed()).unwrap();
        assert!(again > b && b > a);
        assert_eq!(accounts.clone().remove(b), Err(Mistake::NoSuchAccount));
        assert_eq!(accounts.change(b, &AccountChange::default(), None), Err(Mistake::NoSuchAccount));
        for count in accounts.records.len()..ACCOUNTS_MAX {
            accounts.add(&new(&format!("user{count}"), Role::ReadOnly), hashed()).unwrap();
        }
        assert_eq!(accounts.add(&new("more", Role::ReadOnly), hashed()), Err(Mistake::TooManyAccounts));
    }

    #[test]
    fn a_password_that_was_set_need_not_be_changed_again_unless_that_is_asked_for() {
        let mut accounts = Accounts::none();
        let id =
            accounts.add(&NewAccount { must_change_password: true, ..new("a", Role::Operator) }, hashed()).unwrap();
        let must = |accounts: &Accounts| accounts.by_id(id).unwrap().must_change_password;
        accounts.change(id, &AccountChange::default(), None).unwrap();
        assert!(must(&accounts));
        accounts.change(id, &AccountChange::default(), Some(hashed())).unwrap();
        assert!(!must(&accounts));
        let change = AccountChange { must_change_password: Some(true), ..AccountChange::default() };
        accounts.change(id, &change, Some(hashed())).unwrap();
        assert!(must(&accounts));
    }

    #[test]
    fn identifiers_are_written_in_one_way() {
        assert_eq!("17".parse(), Ok(AccountId(17)));
        for other in ["", "017", "+17", "17 ", "x", "4294967296"] {
            assert_eq!(other.parse::<AccountId>(), Err(Mistake::NoSuchAccount), "{other}");
        }
    }
}
