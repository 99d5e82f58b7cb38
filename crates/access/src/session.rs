//! Sessions: who has one, by which token, and when it ends. A target forgets them when it ends.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ebof_clock::{Clock, NoRandomness};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::account::AccountId;
use crate::hex;
use crate::throttle::Subnet;

/// The most sessions.
pub const SESSIONS_MAX: usize = 64;

/// The most sessions of one account.
pub const SESSIONS_PER_ACCOUNT_MAX: usize = 16;

/// Names a session to others. It gives no access.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(String);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for SessionId {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// What its owner shows with each request: 256 random bits. Only its hash is kept.
pub struct Token(String);

impl Token {
    /// Its text, for the client.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A session, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its identifier.
    pub id: SessionId,
    /// Whose it is.
    pub account: AccountId,
    /// The user name at the time when it was opened.
    pub user_name: String,
    /// Where it was opened.
    pub client: IpAddr,
    /// When it was opened, since 1970.
    pub created: Duration,
    /// When it was used last, since 1970.
    pub last_used: Duration,
}

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenRefused {
    /// No session has it (any more).
    Unknown,
    /// It comes from an address other than the one that the session was opened from.
    OtherAddress,
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Vec<Open>);

#[derive(Debug)]
struct Open {
    session: Session,
    token: [u8; 32],
    used: Instant,
}

impl Sessions {
    /// Opens one. If there are too many, the one that was not used for the longest time makes room:
    /// of the same account, or else of the account that has most of them.
    pub(crate) fn open(
        &mut self,
        (account, user_name): (AccountId, &str),
        client: IpAddr,
        timeout: Duration,
        clock: &Clock,
    ) -> Result<(Session, Token), NoRandomness> {
        let (mut id, mut token) = ([0; 8], [0; 32]);
        clock.fill(&mut id)?;
        clock.fill(&mut token)?;
        let now = clock.now();
        self.expire(now, timeout);
        if self.count(account) >= SESSIONS_PER_ACCOUNT_MAX {
            self.remove_idlest(account);
        } else if self.0.len() >= SESSIONS_MAX
            && let Some(most) = self.account_with_most()
        {
            self.remove_idlest(most);
        }
        let token = Token(hex::encode(&token));
        let created = clock.unix_time();
        let session = Session {
            id: SessionId(hex::encode(&id)),
            account,
            user_name: user_name.to_owned(),
            client,
            created,
            last_used: created,
        };
        self.0.push(Open { session: session.clone(), token: hash(&token.0), used: now });
        Ok((session, token))
    }

    /// The session with this token, which is used thereby.
    pub(crate) fn by_token(
        &mut self,
        token: &str,
        client: Option<IpAddr>,
        timeout: Duration,
        clock: &Clock,
    ) -> Result<Session, TokenRefused> {
        let now = clock.now();
        self.expire(now, timeout);
        let hash = hash(token);
        // All are compared: how long that takes says nothing about any of them.
        let mut found = None;
        for open in &mut self.0 {
            if open.token.ct_eq(&hash).into() {
                found = Some(open);
            }
        }
        let open = found.ok_or(TokenRefused::Unknown)?;
        if client.is_some_and(|client| Subnet::from_address(client) != Subnet::from_address(open.session.client)) {
            return Err(TokenRefused::OtherAddress);
        }
        open.used = now;
        open.session.last_used = clock.unix_time();
        Ok(open.session.clone())
    }

    /// Uses a session without its token. Whether it is open.
    pub(crate) fn touch(&mut self, id: &SessionId, timeout: Duration, clock: &Clock) -> bool {
        self.expire(clock.now(), timeout);
        let open = self.0.iter_mut().find(|open| open.session.id == *id);
        open.is_some_and(|open| {
            open.used = clock.now();
            open.session.last_used = clock.unix_time();
            true
        })
    }

    pub(crate) fn all(&mut self, timeout: Duration, now: Instant) -> Vec<Session> {
        self.expire(now, timeout);
        self.0.iter().map(|open| open.session.clone()).collect()
    }

    pub(crate) fn close(&mut self, id: &SessionId) -> Option<Session> {
        let at = self.0.iter().position(|open| open.session.id == *id)?;
        Some(self.0.remove(at).session)
    }

    /// Closes those of an account, except for one.
    pub(crate) fn close_all(&mut self, account: AccountId, except: Option<&SessionId>) {
        self.0.retain(|open| open.session.account != account || Some(&open.session.id) == except);
    }

    fn expire(&mut self, now: Instant, timeout: Duration) {
        self.0.retain(|open| now.saturating_duration_since(open.used) < timeout);
    }

    fn count(&self, account: AccountId) -> usize {
        self.0.iter().filter(|open| open.session.account == account).count()
    }

    fn account_with_most(&self) -> Option<AccountId> {
        let mut counts = HashMap::new();
        self.0.iter().for_each(|open| *counts.entry(open.session.account).or_insert(0) += 1);
        counts.into_iter().max_by_key(|&(account, count)| (count, account)).map(|(account, _)| account)
    }

    fn remove_idlest(&mut self, account: AccountId) {
        let of_account = self.0.iter().enumerate().filter(|(_, open)| open.session.account == account);
        if let Some((at, _)) = of_account.min_by_key(|(_, open)| open.used) {
            self.0.remove(at);
        }
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn open(sessions: &mut Sessions, account: u32, clock: &Clock) -> (SessionId, String) {
        let (session, token) = sessions.open((AccountId(account), "a"), HERE, TIMEOUT, clock).unwrap();
        (session.id, token.text().to_owned())
    }

    fn is_open(sessions: &mut Sessions, token: &str, clock: &Clock) -> bool {
        sessions.by_token(token, Some(HERE), TIMEOUT, clock).is_ok()
    }

    #[test]
    fn a_session_lives_as_long_as_it_is_used() {
        let clock = Clock::simulated(1);
        let mut sessions = Sessions::default();
        let (id, token) = open(&mut sessions, 1, &clock);
        assert_eq!(token.len(), 64);
        for _ in 0..5 {
            clock.advance(TIMEOUT - Duration::from_millis(1));
            let session = sessions.by_token(&token, Some(HERE), TIMEOUT, &clock).unwrap();
            assert_eq!((&session.id, session.last_used), (&id, clock.unix_time()));
        }
        clock.advance(TIMEOUT);
        assert!(!is_open(&mut sessions, &token, &clock));
        assert_eq!(sessions.close(&id), None);
    }

    #[test]
    fn wrong_tokens_and_tokens_elsewhere_are_refused() {
        let clock = Clock::simulated(2);
        let mut sessions = Sessions::default();
        let (_, token) = open(&mut sessions, 1, &clock);
        let wrong = format!("{}{}", &token[1..], if token.starts_with('0') { '1' } else { '0' });
        for wrong in ["", &wrong, &token[1..], &token.to_uppercase(), &format!("{token}0")] {
            let refused = sessions.by_token(wrong, Some(HERE), TIMEOUT, &clock).unwrap_err();
            assert_eq!(refused, TokenRefused::Unknown);
        }
        let elsewhere = Some(IpAddr::from([192, 0, 2, 2]));
        assert_eq!(sessions.by_token(&token, elsewhere, TIMEOUT, &clock), Err(TokenRefused::OtherAddress));
        let mapped = Some("::ffff:192.0.2.1".parse().unwrap());
        sessions.by_token(&token, mapped, TIMEOUT, &clock).unwrap();
        sessions.by_token(&token, None, TIMEOUT, &clock).unwrap();
    }

    #[test]
    fn the_idlest_session_of_an_account_makes_room() {
        let clock = Clock::simulated(3);
        let mut sessions = Sessions::default();
        let mut tokens = Vec::new();
        for _ in 0..SESSIONS_PER_ACCOUNT_MAX {
            tokens.push(open(&mut sessions, 1, &clock).1);
            clock.advance(Duration::from_secs(1));
        }
        assert!(is_open(&mut sessions, &tokens[0], &clock), "and is used now");
        open(&mut sessions, 1, &clock);
        assert!(is_open(&mut sessions, &tokens[0], &clock) && !is_open(&mut sessions, &tokens[1], &clock));
        assert_eq!(sessions.count(AccountId(1)), SESSIONS_PER_ACCOUNT_MAX);
    }

    #[test]
    fn an_account_with_many_sessions_cannot_keep_others_out() {
        let clock = Clock::simulated(4);
        let mut sessions = Sessions::default();
        for account in 1..=4 {
            (0..16).for_each(|_| drop(open(&mut sessions, account, &clock)));
        }
        let (_, token) = open(&mut sessions, 5, &clock);
        assert!(is_open(&mut sessions, &token, &clock));
        assert_eq!(sessions.0.len(), SESSIONS_MAX);
    }

    #[test]
    fn sessions_are_closed_one_by_one_or_with_their_account() {
        let clock = Clock::simulated(5);
        let mut sessions = Sessions::default();
        let [(first, a), (kept, b), (_, c)] = [1, 1, 1].map(|account| open(&mut sessions, account, &clock));
        let (_, other) = open(&mut sessions, 2, &clock);
        assert_eq!(sessions.close(&first).unwrap().account, AccountId(1));
        assert!(!is_open(&mut sessions, &a, &clock) && is_open(&mut sessions, &b, &clock));
        sessions.close_all(AccountId(1), Some(&kept));
        assert!(is_open(&mut sessions, &b, &clock) && !is_open(&mut sessions, &c, &clock));
        sessions.close_all(AccountId(1), None);
        assert!(!is_open(&mut sessions, &b, &clock) && is_open(&mut sessions, &other, &clock));
    }
}
