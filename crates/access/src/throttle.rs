//! Failed logins: how long an address waits for its next attempt, and when an account is locked.
//!
//! Both tables are bounded. What is locked follows from the name that was tried, whether such an
//! account exists or not, so that nobody learns which ones do. An account that is locked by
//! failures from elsewhere still accepts its user from networks where they have logged in before,
//! so that an attacker does not keep the administrator out.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::hash::RandomState;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::account::AccountId;
use crate::settings::AccessSettings;

/// Failures of an address that cost nothing: people mistype.
const FREE: u32 = 5;

/// The wait after the first failure that costs something; each further one doubles it.
const DELAY: Duration = Duration::from_secs(1);

/// The longest wait.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// After so long without another failure, those of an address are forgotten.
const FORGET: Duration = Duration::from_secs(900);

/// The most addresses that are remembered. One more makes the one whose failure is oldest
/// forgotten; what is tried from more addresses than that still counts for the accounts.
const ADDRESSES_MAX: usize = 4096;

/// Networks of an account's successful logins that are remembered.
const KNOWN_MAX: usize = 8;

/// How many names without an account are told apart.
const STRANGERS: u64 = 256;

/// Where a client is: an IPv4 address, or a /64 of IPv6, because a host there has all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subnet {
    V4([u8; 4]),
    V6([u8; 8]),
    /// This machine, over either.
    Loopback,
}

impl Subnet {
    pub(crate) fn from_address(address: IpAddr) -> Self {
        match address.to_canonical() {
            address if address.is_loopback() => Self::Loopback,
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

/// Whose password is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Account(AccountId),
    /// Nobody's: names share these.
    Stranger(u64),
}

/// Why an attempt is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The address has failed too often.
    Address(Duration),
    /// The account is locked.
    Account(Duration),
}

#[derive(Debug)]
struct Failures {
    count: u32,
    last: Instant,
    /// Whose password was tried, if only one.
    subject: Option<Subject>,
}

#[derive(Debug, Default)]
struct Lock {
    failures: Option<Failures>,
    until: Option<Instant>,
    /// The latest last.
    known: Vec<Subnet>,
}

/// What is remembered of failed logins.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    addresses: HashMap<Subnet, Failures>,
    /// At most one for each account and stranger.
    subjects: HashMap<Subject, Lock>,
    strangers: RandomState,
}

impl Throttle {
    /// Whose account `name` is.
    pub(crate) fn subject(&self, name: &str, account: Option<AccountId>) -> Subject {
        account.map_or_else(|| Subject::Stranger(self.strangers.hash_one(name) % STRANGERS), Subject::Account)
    }

    /// Whether an attempt may be made now.
    pub(crate) fn admit(&self, client: IpAddr, subject: Subject, now: Instant) -> Result<(), Wait> {
        let network = Subnet::from_address(client);
        if let Some(failures) = self.addresses.get(&network) {
            let left = (failures.last + delay(failures.count)).saturating_duration_since(now);
            if !left.is_zero() {
                return Err(Wait::Address(left));
            }
        }
        let lock = self.subjects.get(&subject).filter(|lock| !lock.known.contains(&network));
        match lock.and_then(|lock| lock.left(now)) {
            Some(left) => Err(Wait::Account(left)),
            None => Ok(()),
        }
    }

    /// Counts a failed attempt. Says how long the address waits now, if it does.
    pub(crate) fn failed(
        &mut self,
        client: IpAddr,
        subject: Subject,
        settings: &AccessSettings,
        now: Instant,
    ) -> Option<Duration> {
        let network = Subnet::from_address(client);
        self.addresses.retain(|_, failures| now.saturating_duration_since(failures.last) < FORGET);
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&network) {
            let oldest = self.addresses.iter().min_by_key(|(_, failures)| failures.last).map(|(network, _)| *network);
            oldest.map(|oldest| self.addresses.remove(&oldest));
        }
        let failures =
            self.addresses.entry(network).or_insert(Failures { count: 0, last: now, subject: Some(subject) });
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        failures.subject = failures.subject.filter(|of| *of == subject);
        let delay = delay(failures.count);
        self.subjects.entry(subject).or_default().failed(settings, now);
        (!delay.is_zero()).then_some(delay)
    }

    /// A successful login: its user's failures are forgotten, and the network is known. Failures
    /// with the names of others stay: who has an account could otherwise guess without waiting.
    pub(crate) fn succeeded(&mut self, client: IpAddr, subject: Subject) {
        let network = Subnet::from_address(client);
        if self.addresses.get(&network).is_some_and(|failures| failures.subject == Some(subject)) {
            self.addresses.remove(&network);
        }
        let lock = self.subjects.entry(subject).or_default();
        lock.failures = None;
        lock.known.retain(|known| *known != network);
        if lock.known.len() >= KNOWN_MAX {
            lock.known.remove(0);
        }
        lock.known.push(network);
    }

    pub(crate) fn is_locked(&self, account: AccountId, now: Instant) -> bool {
        self.subjects.get(&Subject::Account(account)).is_some_and(|lock| lock.left(now).is_some())
    }

    /// Ends a lockout.
    pub(crate) fn unlock(&mut self, account: AccountId) {
        if let Some(lock) = self.subjects.get_mut(&Subject::Account(account)) {
            lock.until = None;
            lock.failures = None;
        }
    }

    /// Forgets an account. Networks are not known any more once it has another password.
    pub(crate) fn forget(&mut self, account: AccountId) {
        self.subjects.remove(&Subject::Account(account));
    }
}

impl Lock {
    fn left(&self, now: Instant) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    fn failed(&mut self, settings: &AccessSettings, now: Instant) {
        let reset_after = Duration::from_secs(settings.lockout_reset_after_s.into());
        let failures = self.failures.take();
        let recent = failures.filter(|failures| now.saturating_duration_since(failures.last) < reset_after);
        let count = recent.map_or(0, |failures| failures.count).saturating_add(1);
        if settings.lockout_threshold > 0 && count >= settings.lockout_threshold {
            self.until = Some(now + Duration::from_secs(settings.lockout_duration_s.into()));
        } else {
            self.failures = Some(Failures { count, last: now, subject: None });
        }
    }
}

fn delay(failures: u32) -> Duration {
    match failures.checked_sub(FREE) {
        None | Some(0) => Duration::ZERO,
        Some(beyond) => DELAY.saturating_mul(1 << (beyond - 1).min(16)).min(DELAY_MAX),
    }
}

#[cfg(test)]
mod tests;
