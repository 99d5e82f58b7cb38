//! [`Access`]: everything together, for many threads at a time.
//!
//! Passwords are hashed without a lock, so that a session is found while others log in.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ebof_clock::{Clock, NoRandomness};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::account::{Account, AccountChange, AccountId, AccountRecord, Accounts, Hashed, Mistake, NewAccount};
use crate::password::{self, Credential, PasswordHash};
use crate::reach::AccountReach;
use crate::role::{Privilege, Role};
use crate::session::{Session, SessionId, Sessions, Token, TokenRefused};
use crate::settings::{AccessSettings, SettingsChange};
use crate::stored::{self, Damaged};
use crate::throttle::{Subject, Throttle, Wait};

/// The most passwords that are hashed at a time: each takes a processor and 19 MiB of memory. A
/// caller that has more of them lets them wait; here they are refused.
pub const HASHES_MAX: usize = 4;

/// How long a password that was right is recognized without hashing it again. Clients that show it
/// with each request would otherwise wait each time.
const REMEMBERED: Duration = Duration::from_secs(300);

/// How long to wait if too many passwords are being hashed.
const BUSY: Duration = Duration::from_secs(1);

/// Stores the accounts, so that they are there after a restart.
pub trait Keep: Send + Sync {
    /// Stores `text` in place of what was stored before, durably and for no other user to read.
    ///
    /// # Errors
    /// It is not stored, or that is not known; then the change is not in force.
    fn keep(&self, text: &str) -> Result<(), KeepError>;
}

/// Why something is not stored, as far as is known.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// What was stored before is still there, and stays.
    #[error(transparent)]
    NotStored(#[from] std::io::Error),
    /// It may be stored, and be in force after a restart.
    #[error(transparent)]
    Unknown(std::io::Error),
}

/// Who asks for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The account.
    pub account: AccountId,
    /// The user name.
    pub name: String,
    /// The role.
    pub role: Role,
    /// What the user sees of the target.
    pub reach: AccountReach,
    /// The session, if there is one: otherwise name and password came with the request.
    pub session: Option<SessionId>,
    /// The user has to choose a password, and may do nothing else before.
    pub must_change_password: bool,
    /// Which of the account's passwords was right.
    pub credential: Credential,
}

impl User {
    /// The privileges: of the role, or only to change one's own password if that has to be done.
    #[must_use]
    pub fn privileges(&self) -> &'static [Privilege] {
        if self.must_change_password { &[Privilege::ConfigureSelf] } else { self.role.privileges() }
    }

    /// Whether the user has a privilege.
    #[must_use]
    pub fn may(&self, privilege: Privilege) -> bool {
        self.privileges().contains(&privilege)
    }
}

/// Why someone is not let in. Who tells a client more than that, and when to try again, tells
/// attackers which accounts there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Denied {
    /// The reason, for the log.
    pub reason: DeniedFor,
    /// When to try again.
    pub retry_after: Option<Duration>,
    /// This failure has locked the account.
    pub has_locked: bool,
}

/// The reason of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeniedFor {
    /// There is no account with this name.
    #[error("no account has this user name")]
    UnknownUser,
    /// It has another password.
    #[error("the password is wrong")]
    WrongPassword,
    /// The account is disabled; the password is right.
    #[error("the account is disabled")]
    Disabled,
    /// Names and passwords are only accepted for opening sessions.
    #[error("HTTP Basic authentication is disabled")]
    BasicDisabled,
    /// Too many failed logins from the address: it has to wait. Nothing was checked.
    #[error("the address has failed too often")]
    Throttled,
    /// Too many failed logins with this user name: it is locked. Nothing was checked.
    #[error("the account is locked after too many failed logins")]
    Locked,
    /// Too many passwords are being checked.
    #[error("too many passwords are being checked at the moment")]
    Busy,
    /// No session has this token: it has ended, or there was none.
    #[error("no session has this token")]
    UnknownSession,
    /// The session was opened from another address.
    #[error("the session was opened from another address")]
    OtherAddress,
}

impl From<DeniedFor> for Denied {
    fn from(reason: DeniedFor) -> Self {
        Self { reason, retry_after: None, has_locked: false }
    }
}

/// Accounts and sessions of a target.
pub struct Access {
    clock: Clock,
    keep: Box<dyn Keep>,
    /// Held while a change is made and stored; taken before `state`.
    changes: Mutex<()>,
    state: Mutex<State>,
    hashing: AtomicUsize,
    /// What remembered passwords are hashed with; new with each process.
    secret: [u8; 32],
}

struct State {
    accounts: Accounts,
    settings: AccessSettings,
    sessions: Sessions,
    throttle: Throttle,
    /// At most one for each account.
    remembered: Vec<Remembered>,
}

/// A password that was right.
struct Remembered {
    account: AccountId,
    tag: [u8; 32],
    until: Instant,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    /// With the accounts and settings of `stored`, as [`Keep::keep`] got them, or none.
    ///
    /// # Errors
    /// The text is not understood, or the system gives no randomness.
    pub fn new(stored: Option<&str>, clock: Clock, keep: Box<dyn Keep>) -> Result<Self, NotOpened> {
        let (accounts, settings) = match stored {
            Some(text) => stored::read(text)?,
            None => (Accounts::none(), AccessSettings::default()),
        };
        let mut secret = [0; 32];
        clock.fill(&mut secret)?;
        let state = State {
            accounts,
            settings,
            sessions: Sessions::default(),
            throttle: Throttle::default(),
            remembered: Vec::new(),
        };
        Ok(Self {
            clock,
            keep,
            changes: Mutex::default(),
            state: Mutex::new(state),
            hashing: AtomicUsize::new(0),
            secret,
        })
    }

    /// Adds an administrator `name` with a random password, which has to be changed at the first
    /// login, if nobody can administer accounts. `tell` gets the password before the account is
    /// stored: nobody else knows it, and an account without it would lock everybody out. Whether
    /// one was added.
    ///
    /// # Errors
    /// It cannot be told or stored, or another account has the name.
    pub fn ensure_administrator<E: From<Mistake>>(
        &self,
        name: &str,
        tell: impl FnOnce(&str) -> Result<(), E>,
    ) -> Result<bool, E> {
        if self.state().accounts.has_administrator() {
            return Ok(false);
        }
        let password = password::generate(&self.clock).map_err(Mistake::from)?;
        tell(&password)?;
        let new = NewAccount {
            name: name.to_owned(),
            password,
            role: Role::Administrator,
            reach: AccountReach::Everything,
            enabled: true,
            must_change_password: true,
        };
        self.add_account(&new)?;
        Ok(true)
    }

    /// Finds out who has a name and a password. Slow: to be called beside an event loop, and at
    /// most [`HASHES_MAX`] times at a time.
    ///
    /// # Errors
    /// Nobody, or it may not be tried now.
    pub fn login(&self, client: IpAddr, name: &str, password: &str) -> Result<User, Denied> {
        let now = self.clock.now();
        let (subject, account, hash) = {
            let mut state = self.state();
            let record = state.accounts.by_name(name).cloned();
            let account = record.as_ref().map(|record| record.id);
            let subject = state.throttle.subject(name, account);
            state.throttle.admit(client, subject, now).map_err(Denied::from)?;
            if let Some(record) = &record
                && state.remembers(record.id, &self.tag(record, password), now)
            {
                return Ok(state.admitted(client, record));
            }
            (subject, account, record.map_or_else(PasswordHash::of_nobody, |record| record.password))
        };
        let is_right = {
            let _place = self.hashing().ok_or(Denied { retry_after: Some(BUSY), ..DeniedFor::Busy.into() })?;
            hash.verifies(password)
        };
        let mut state = self.state();
        let now = self.clock.now();
        // It may have been changed or removed meanwhile.
        let record =
            account.and_then(|account| state.accounts.by_id(account)).filter(|it| it.password == hash).cloned();
        let reason = match record {
            Some(record) if is_right && record.enabled => {
                let tag = self.tag(&record, password);
                state.remember(Remembered { account: record.id, tag, until: now + REMEMBERED });
                return Ok(state.admitted(client, &record));
            }
            Some(_) if is_right => DeniedFor::Disabled,
            Some(_) => DeniedFor::WrongPassword,
            None => DeniedFor::UnknownUser,
        };
        let State { throttle, settings, .. } = &mut *state;
        let is_locked = |throttle: &Throttle| account.is_some_and(|account| throttle.is_locked(account, now));
        let was_locked = is_locked(throttle);
        let retry_after = throttle.failed(client, subject, settings, now);
        Err(Denied { reason, retry_after, has_locked: !was_locked && is_locked(throttle) })
    }

    /// The same for a request with HTTP Basic authentication.
    ///
    /// # Errors
    /// Those of [`Access::login`], or it is disabled.
    pub fn basic(&self, client: IpAddr, name: &str, password: &str) -> Result<User, Denied> {
        if self.state().settings.basic_auth {
            self.login(client, name, password)
        } else {
            Err(DeniedFor::BasicDisabled.into())
        }
    }

    /// Opens a session for a user who has logged in. There is always room
    /// ([`SESSIONS_MAX`](crate::SESSIONS_MAX)).
    ///
    /// # Errors
    /// The account is gone or has changed, its password too, or the system gives no randomness.
    pub fn open_session(&self, user: &User, client: IpAddr) -> Result<(Session, Token), Mistake> {
        let mut state = self.state();
        let State { accounts, settings, sessions, .. } = &mut *state;
        let record = accounts.by_id(user.account).filter(|record| is_as_told(record, user));
        // A password that was changed since the login opens nothing.
        let record = record.filter(|record| Credential::from_hash(&record.password) == user.credential);
        let record = record.ok_or(Mistake::NoSuchAccount)?;
        Ok(sessions.open((record.id, &record.name), client, timeout(settings), &self.clock)?)
    }

    /// Whose session has a token, which is used thereby.
    ///
    /// # Errors
    /// Nobody's, or the client is elsewhere.
    pub fn by_token(&self, token: &str, client: IpAddr) -> Result<User, Denied> {
        let mut state = self.state();
        let State { accounts, settings, sessions, .. } = &mut *state;
        let bound = settings.sessions_by_address.then_some(client);
        let session =
            sessions.by_token(token, bound, timeout(settings), &self.clock).map_err(|refused| match refused {
                TokenRefused::Unknown => DeniedFor::UnknownSession,
                TokenRefused::OtherAddress => DeniedFor::OtherAddress,
            })?;
        let record = accounts.by_id(session.account).filter(|record| record.enabled);
        Ok(user(record.ok_or(DeniedFor::UnknownSession)?, Some(session.id)))
    }

    /// Whether what a user was told when asking still holds: the account is as it was, and the
    /// session, if there is one, is open. The session is used thereby: for answers that take as
    /// long as the client listens.
    #[must_use]
    pub fn still_holds(&self, user: &User) -> bool {
        let mut state = self.state();
        let State { accounts, settings, sessions, .. } = &mut *state;
        let record = accounts.by_id(user.account).filter(|record| is_as_told(record, user));
        let Some(record) = record else { return false };
        match &user.session {
            // It was closed if the password was changed by somebody else.
            Some(session) => sessions.touch(session, timeout(settings), &self.clock),
            None => Credential::from_hash(&record.password) == user.credential,
        }
    }

    /// All sessions.
    #[must_use]
    pub fn sessions(&self) -> Vec<Session> {
        let mut state = self.state();
        let State { settings, sessions, .. } = &mut *state;
        sessions.all(timeout(settings), self.clock.now())
    }

    /// Closes a session.
    ///
    /// # Errors
    /// There is none.
    pub fn close_session(&self, id: &SessionId) -> Result<Session, Mistake> {
        self.state().sessions.close(id).ok_or(Mistake::NoSuchSession)
    }

    /// All accounts.
    #[must_use]
    pub fn accounts(&self) -> Vec<Account> {
        let now = self.clock.now();
        let state = self.state();
        state.accounts.records.iter().map(|record| view(record, state.throttle.is_locked(record.id, now))).collect()
    }

    /// An account.
    #[must_use]
    pub fn account(&self, id: AccountId) -> Option<Account> {
        self.accounts().into_iter().find(|account| account.id == id)
    }

    /// Adds an account. Slow, like [`Access::login`].
    ///
    /// # Errors
    /// What is wrong with it, or it cannot be stored.
    pub fn add_account(&self, new: &NewAccount) -> Result<Account, Mistake> {
        let hashed = self.hashed(&new.password, &new.name)?;
        let _one = self.changes();
        let (mut accounts, settings) = self.copied();
        let id = accounts.add(new, hashed)?;
        self.store(accounts, settings)?;
        self.account(id).ok_or(Mistake::NoSuchAccount)
    }

    /// Changes an account. Its sessions end if its password, role, reach or name changes or it is
    /// disabled, except for the session `keep`: that of the user who changes the own password. Slow
    /// if a password is set.
    ///
    /// # Errors
    /// What is wrong with it, or it cannot be stored.
    pub fn change_account(
        &self,
        id: AccountId,
        change: &AccountChange,
        keep: Option<&SessionId>,
    ) -> Result<Account, Mistake> {
        let before = self.account(id).ok_or(Mistake::NoSuchAccount)?;
        let name = change.name.as_ref().unwrap_or(&before.name);
        let hashed = change.password.as_ref().map(|password| self.hashed(password, name)).transpose()?;
        let has_password = hashed.is_some();
        let _one = self.changes();
        let (mut accounts, settings) = self.copied();
        accounts.change(id, change, hashed)?;
        self.store(accounts, settings)?;
        let mut state = self.state();
        let record = state.accounts.by_id(id).ok_or(Mistake::NoSuchAccount)?;
        let is_same =
            record.role == before.role && record.reach == before.reach && record.name == before.name && record.enabled;
        if has_password || !is_same {
            state.sessions.close_all(id, keep.filter(|_| is_same));
            state.remembered.retain(|remembered| remembered.account != id);
        }
        if has_password {
            state.throttle.forget(id);
        } else if change.unlock {
            state.throttle.unlock(id);
        }
        drop(state);
        self.account(id).ok_or(Mistake::NoSuchAccount)
    }

    /// Removes an account and its sessions.
    ///
    /// # Errors
    /// There is none, it is the last administrator, or that cannot be stored.
    pub fn remove_account(&self, id: AccountId) -> Result<(), Mistake> {
        let _one = self.changes();
        let (mut accounts, settings) = self.copied();
        accounts.remove(id)?;
        self.store(accounts, settings)?;
        let mut state = self.state();
        state.sessions.close_all(id, None);
        state.remembered.retain(|remembered| remembered.account != id);
        state.throttle.forget(id);
        Ok(())
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> AccessSettings {
        self.state().settings.clone()
    }

    /// Changes settings. They hold for the sessions that are open, too.
    ///
    /// # Errors
    /// One is outside of its limits, or they cannot be stored.
    pub fn change_settings(&self, change: &SettingsChange) -> Result<AccessSettings, Mistake> {
        let _one = self.changes();
        let (accounts, settings) = self.copied();
        let changed = settings.with(change)?;
        self.store(accounts, changed.clone())?;
        Ok(changed)
    }

    fn copied(&self) -> (Accounts, AccessSettings) {
        let state = self.state();
        (state.accounts.clone(), state.settings.clone())
    }

    /// Puts accounts and settings in force once they are stored.
    fn store(&self, accounts: Accounts, settings: AccessSettings) -> Result<(), Mistake> {
        if self.copied() != (accounts.clone(), settings.clone()) {
            self.keep.keep(&stored::write(&accounts, &settings)).map_err(|error| match error {
                KeepError::NotStored(error) => Mistake::NotStored(error),
                KeepError::Unknown(error) => Mistake::Unknown(error),
            })?;
        }
        let mut state = self.state();
        state.accounts = accounts;
        state.settings = settings;
        Ok(())
    }

    fn hashed(&self, password: &str, name: &str) -> Result<Hashed, Mistake> {
        password::check(password, name)?;
        let _place = self.hashing().ok_or(Mistake::Busy)?;
        Ok(Hashed { hash: PasswordHash::new(password, &self.clock)?, at_s: self.clock.unix_time().as_secs() })
    }

    /// A place for hashing, if one is free.
    fn hashing(&self) -> Option<Hashing<'_>> {
        let taken = Hashing(&self.hashing);
        (self.hashing.fetch_add(1, Ordering::AcqRel) < HASHES_MAX).then_some(taken)
    }

    /// Recognizes a password of this process's memory; of no use elsewhere.
    fn tag(&self, record: &AccountRecord, password: &str) -> [u8; 32] {
        let hash = Sha256::new().chain_update(self.secret).chain_update(record.password.identity());
        hash.chain_update(password).finalize().into()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why accounts are not opened.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// They are damaged.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The system gives no randomness.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

impl State {
    fn remembers(&self, account: AccountId, tag: &[u8; 32], now: Instant) -> bool {
        let remembered = self.remembered.iter().find(|remembered| remembered.account == account);
        remembered.is_some_and(|it| it.until > now && bool::from(it.tag.ct_eq(tag)))
    }

    fn admitted(&mut self, client: IpAddr, record: &AccountRecord) -> User {
        self.throttle.succeeded(client, Subject::Account(record.id));
        user(record, None)
    }

    fn remember(&mut self, new: Remembered) {
        self.remembered.retain(|remembered| remembered.account != new.account);
        self.remembered.push(new);
    }
}

impl From<Wait> for Denied {
    fn from(wait: Wait) -> Self {
        let (reason, left) = match wait {
            Wait::Address(left) => (DeniedFor::Throttled, left),
            Wait::Account(left) => (DeniedFor::Locked, left),
        };
        Self { reason, retry_after: Some(left), has_locked: false }
    }
}

/// A place for hashing a password, given back when dropped.
struct Hashing<'a>(&'a AtomicUsize);

impl Drop for Hashing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether an account is as a user was told who asks for something.
fn is_as_told(record: &AccountRecord, user: &User) -> bool {
    record.enabled && record.role == user.role && record.reach == user.reach
}

fn user(record: &AccountRecord, session: Option<SessionId>) -> User {
    let AccountRecord { id, name, role, reach, must_change_password, .. } = record;
    User {
        account: *id,
        name: name.clone(),
        role: *role,
        reach: reach.clone(),
        session,
        must_change_password: *must_change_password,
        credential: Credential::from_hash(&record.password),
    }
}

fn view(record: &AccountRecord, locked: bool) -> Account {
    Account {
        id: record.id,
        name: record.name.clone(),
        role: record.role,
        reach: record.reach.clone(),
        enabled: record.enabled,
        locked,
        must_change_password: record.must_change_password,
        password_set: Duration::from_secs(record.password_set_s),
        credential: Credential::from_hash(&record.password),
    }
}

fn timeout(settings: &AccessSettings) -> Duration {
    Duration::from_secs(settings.session_timeout_s.into())
}

#[cfg(test)]
mod tests;
