//! Accounts of those who manage a target over the network, as the API tells and takes them. Which
//! are accepted, and what their roles may do, is decided by the target.

use serde::{Deserialize, Serialize};

/// The version of the JSON shape of [`Accounts`].
pub const ACCOUNTS_SCHEMA: u32 = 1;

/// All accounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounts {
    /// [`ACCOUNTS_SCHEMA`].
    pub schema: u32,
    /// In the order in which they were made.
    pub accounts: Vec<AccountStatus>,
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountStatus {
    /// Names it for ever.
    pub id: String,
    /// The user name.
    pub name: String,
    /// `Administrator`, `Operator` or `ReadOnly`.
    pub role: String,
    /// What it sees, if that is not the whole target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<AccountLimits>,
    /// Whether its user may log in.
    pub enabled: bool,
    /// Whether it is locked, after too many failed logins.
    pub locked: bool,
    /// Whether its user has to choose a password first.
    pub must_change_password: bool,
    /// When its password was set, seconds since 1970.
    pub password_set_s: u64,
    /// Its open sessions.
    pub sessions: u32,
}

/// What an account sees of a target that does not see all of it: drives with their subsystems, and
/// subsystems with their drives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountLimits {
    /// Names of drives.
    #[serde(default)]
    pub drives: Vec<String>,
    /// NQNs of subsystems.
    #[serde(default)]
    pub subsystems: Vec<String>,
}

/// An account to be added.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddAccount {
    /// The user name.
    pub name: String,
    /// The password.
    pub password: String,
    /// `Administrator`, `Operator` or `ReadOnly`.
    pub role: String,
    /// What it is to see, if that is not the whole target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<AccountLimits>,
    /// Whether its user has to choose another password first.
    #[serde(default)]
    pub must_change_password: bool,
}

/// What is to change of an account; what is not named stays.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeAccount {
    /// The password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// The role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// What it is to see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<AccountLimits>,
    /// `true`: it is to see the whole target.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub everything: bool,
    /// Whether its user may log in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether its user has to choose another password first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub must_change_password: Option<bool>,
    /// `true` ends a lockout.
    #[serde(default)]
    pub unlock: bool,
}
