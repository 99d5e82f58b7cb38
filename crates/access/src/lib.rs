//! Who may manage a target over the network: accounts with roles, sessions, and the throttling of
//! failed logins ([0072](../../../docs/adr/0072-management-over-the-network.md)).
//!
//! [`Access`] answers who a name and a password, or the token of a session, belong to. What each
//! role may change is decided by whoever serves the resource, with [`User::may`], and so is what an
//! account sees that is limited to a part of the target ([`AccountReach`]).
//!
//! No file, no socket, no HTTP: accounts are stored by a [`Keep`], and time and randomness come
//! from a [`Clock`](ebof_clock::Clock). Nothing here holds or returns a password or a token in
//! clear text, except for those that it generates, once.

#![forbid(unsafe_code)]

mod access;
mod account;
mod hex;
mod password;
mod reach;
mod role;
mod session;
mod settings;
mod stored;
mod throttle;

pub use access::{Access, Denied, DeniedFor, HASHES_MAX, Keep, KeepError, NotOpened, User};
pub use account::{ACCOUNTS_MAX, Account, AccountChange, AccountId, Mistake, NewAccount};
pub use password::{Credential, PASSWORD_LENGTH_MAX, PASSWORD_LENGTH_MIN};
pub use reach::AccountReach;
pub use role::{NoSuchRole, Privilege, Role};
pub use session::{SESSIONS_MAX, SESSIONS_PER_ACCOUNT_MAX, Session, SessionId, Token};
pub use settings::{AccessSettings, SettingsChange};
pub use stored::Damaged;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
