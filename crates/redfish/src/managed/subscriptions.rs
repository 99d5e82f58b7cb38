//! The subscriptions: who wants events, and how far each has got them.
//!
//! A subscription holds no events: it has the number of the last one that it got, and the log of
//! the target has the others, as long as it remembers them.

mod record;
mod selection;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ebof_access::{AccountId, Keep, KeepError};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::place::ReportKind;
use crate::request::caller::Caller;
use crate::response::message::{Message, Problem};
pub(crate) use record::{EventRecord, TestEvent, payload};
pub(crate) use selection::{RESOURCE_TYPES, Selection, prefix};

/// The most subscriptions with a destination.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 20;

/// The most streams of one account, and of one address, so that nobody takes them all.
pub(crate) const STREAMS_OF_ACCOUNT_MAX: usize = 8;
pub(crate) const STREAMS_OF_ADDRESS_MAX: usize = 16;

/// The most streams at a time.
pub(crate) const STREAMS_MAX: usize = 32;

/// Test events that are remembered until all have got them.
const TESTS_MAX: usize = 32;

/// What to do with a subscription whose destination does not take events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Policy {
    TerminateAfterRetries,
    SuspendRetries,
    RetryForever,
    RetryForeverWithBackoff,
}

/// What a subscription is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Subject {
    /// What happens.
    #[default]
    Events,
    /// Reports of these kinds; an empty list is every one.
    Reports(Vec<ReportKind>),
}

impl Subject {
    /// As a member of `EventDestination.EventFormatType`.
    pub(crate) const fn format(&self) -> &'static str {
        match self {
            Self::Events => "Event",
            Self::Reports(_) => "MetricReport",
        }
    }
}

/// What is delivered, and where to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Push {
    pub(crate) destination: String,
    pub(crate) context: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) selection: Selection,
    pub(crate) policy: Policy,
    /// Whether the certificate of the destination is looked at.
    pub(crate) verify: bool,
    #[serde(default)]
    pub(crate) subject: Subject,
}

/// A subscription.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    /// Where it is delivered to; `None` is a stream.
    pub(crate) push: Option<Push>,
    /// Whether it is a stream of reports alone.
    pub(crate) is_of_reports: bool,
    /// Whose stream it is.
    pub(crate) listener: Option<StreamReader>,
    pub(crate) is_on: bool,
    /// The last event that it got, or did not want.
    pub(crate) seen: u64,
    pub(crate) tests_seen: u64,
    /// Of which second the last report was that it got, by its kind.
    pub(crate) reported: BTreeMap<ReportKind, u64>,
    /// Deliveries that failed, one after the other.
    pub(crate) failures: u32,
    pub(crate) retry_at: Option<Instant>,
    pub(crate) in_flight: bool,
}

impl Subscription {
    /// Whether it is a stream of an account.
    pub(crate) fn is_stream_of(&self, account: AccountId) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.account == Some(account))
    }
}

/// Who reads a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamReader {
    account: Option<AccountId>,
    /// Of IPv6, that of the network.
    address: IpAddr,
}

impl StreamReader {
    pub(crate) fn from_caller(caller: &Caller) -> Self {
        let address = match caller.peer.ip().to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        };
        Self { account: caller.user.as_ref().map(|user| user.account), address }
    }
}

/// What a change of a subscription changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct DestinationChange {
    pub(crate) context: Option<String>,
    pub(crate) policy: Option<Policy>,
    pub(crate) verify: Option<bool>,
}

/// All subscriptions.
pub struct Subscriptions {
    state: Mutex<SubscriptionState>,
    keep: Option<Box<dyn Keep>>,
}

pub(crate) struct SubscriptionState {
    pub(crate) next_id: u64,
    pub(crate) all: BTreeMap<u64, Subscription>,
    pub(crate) attempts: u32,
    pub(crate) interval_s: u64,
    pub(crate) tests: Tests,
}

/// Test events.
#[derive(Default)]
pub(crate) struct Tests {
    /// The number of the latest.
    number: u64,
    latest: VecDeque<EventRecord>,
}

impl Tests {
    fn add(&mut self, record: EventRecord) {
        self.number += 1;
        self.latest.push_back(record);
        if self.latest.len() > TESTS_MAX {
            self.latest.pop_front();
        }
    }

    /// Those after number `seen`, and the number of the latest.
    pub(crate) fn since(&self, seen: u64) -> (u64, Vec<EventRecord>) {
        let new = self.number.checked_sub(seen).expect("nobody has got more tests than there were");
        let new = usize::try_from(new).unwrap_or(usize::MAX);
        (self.number, self.latest.iter().skip(self.latest.len().saturating_sub(new)).cloned().collect())
    }
}

/// What is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    next_id: u64,
    attempts: u32,
    interval_s: u64,
    subscriptions: BTreeMap<u64, StoredSubscription>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSubscription {
    push: Push,
    is_on: bool,
}

const VERSION: u32 = 1;

impl Subscriptions {
    /// Those of `stored`, as `keep` got them, or none. Without `keep` they end with the process.
    ///
    /// # Errors
    /// The text is not understood.
    pub fn new(stored: Option<&str>, keep: Option<Box<dyn Keep>>) -> Result<Self, serde_json::Error> {
        use serde::de::Error as _;
        let mut state = SubscriptionState {
            next_id: 1,
            all: BTreeMap::new(),
            attempts: 3,
            interval_s: 60,
            tests: Tests::default(),
        };
        if let Some(text) = stored {
            let Stored { version, next_id, attempts, interval_s, subscriptions } = serde_json::from_str(text)?;
            if version != VERSION || subscriptions.len() > SUBSCRIPTIONS_MAX {
                return Err(serde_json::Error::custom("it is of another version, or has too many subscriptions"));
            }
            (state.next_id, state.attempts, state.interval_s) = (next_id, attempts, interval_s);
            let of = |StoredSubscription { push, is_on }| Subscription::new(Some(push), is_on, 0, 0);
            state.all = subscriptions.into_iter().map(|(id, stored)| (id, of(stored))).collect();
        }
        Ok(Self { state: Mutex::new(state), keep })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, SubscriptionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a change of what is stored, unless it cannot be stored.
    fn change<T>(&self, change: impl FnOnce(&mut SubscriptionState) -> Result<T, Problem>) -> Result<T, Problem> {
        let mut state = self.state();
        let (next_id, all, retries) = (state.next_id, state.all.clone(), (state.attempts, state.interval_s));
        let outcome = change(&mut state)?;
        if let Some(keep) = &self.keep
            && let Err(error) = keep.keep(&state.stored())
        {
            (state.next_id, state.all, (state.attempts, state.interval_s)) = (next_id, all, retries);
            return Err(match error {
                KeepError::Unknown(error) => Problem::unknown(format!(
                    "It is not known whether the change of subscriptions is stored: it is not in force, and may be \
                     after a restart: {error}"
                )),
                error => {
                    let message = Message::internal(&format!("The subscriptions cannot be stored: {error}"));
                    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, message)
                }
            });
        }
        Ok(outcome)
    }

    /// Stores what a delivery has changed. Where that fails, it is as before after a restart, and
    /// is found out again.
    pub(crate) fn store(&self, state: &SubscriptionState) {
        if let Some(keep) = &self.keep {
            let _kept = keep.keep(&state.stored());
        }
    }

    /// The numbers of all, streams included.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.state().all.keys().copied().collect()
    }

    /// One as it is now.
    pub(crate) fn get(&self, id: u64) -> Option<Subscription> {
        self.state().all.get(&id).cloned()
    }

    /// Deliveries that are tried again, and how many seconds later.
    pub(crate) fn retries(&self) -> (u32, u64) {
        let state = self.state();
        (state.attempts, state.interval_s)
    }

    /// Changes how often deliveries are tried again, and how many seconds later.
    pub(crate) fn configure(&self, attempts: Option<u32>, interval_s: Option<u64>) -> Result<(), Problem> {
        self.change(|state| {
            state.attempts = attempts.unwrap_or(state.attempts);
            state.interval_s = interval_s.unwrap_or(state.interval_s);
            Ok(())
        })
    }

    /// Adds one, which gets the events after `latest`.
    pub(crate) fn add(&self, push: Push, latest: u64) -> Result<u64, Problem> {
        self.change(|state| {
            if state.all.values().filter(|subscription| subscription.push.is_some()).count() >= SUBSCRIPTIONS_MAX {
                return Err(Problem::bad_request(Message::too_many("subscriptions")));
            }
            Ok(state.insert(Some(push), latest))
        })
    }

    /// Adds that of a stream.
    pub(crate) fn open(&self, latest: u64, is_of_reports: bool, listener: StreamReader) -> Result<u64, Problem> {
        let mut state = self.state();
        let listeners = || state.all.values().filter_map(|subscription| subscription.listener.as_ref());
        let of_account = listeners().filter(|other| other.account == listener.account).count();
        let of_address = listeners().filter(|other| other.address == listener.address).count();
        let full = if of_account >= STREAMS_OF_ACCOUNT_MAX {
            Some(format!("The account has {STREAMS_OF_ACCOUNT_MAX} streams of events, the most"))
        } else if of_address >= STREAMS_OF_ADDRESS_MAX {
            Some(format!("The address has {STREAMS_OF_ADDRESS_MAX} streams of events, the most"))
        } else {
            let all = listeners().count();
            (all >= STREAMS_MAX).then(|| format!("There are {STREAMS_MAX} streams of events, the most"))
        };
        if let Some(full) = full {
            let message = Message::busy(60, &full);
            let wait = std::time::Duration::from_secs(60);
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, message).after(wait));
        }
        let id = state.insert(None, latest);
        let stream = state.all.get_mut(&id).expect("it was just added, and the lock is held");
        (stream.is_of_reports, stream.listener) = (is_of_reports, Some(listener));
        Ok(id)
    }

    /// Ends that of a stream, without storing anything.
    pub(crate) fn close(&self, id: u64) {
        self.state().all.remove(&id);
    }

    /// Whether there is one of this number; streams are ended by an Administrator, too.
    pub(crate) fn has(&self, id: u64) -> bool {
        self.state().all.contains_key(&id)
    }

    /// Ends one; whether there was one.
    pub(crate) fn remove(&self, id: u64) -> Result<bool, Problem> {
        self.change(|state| Ok(state.all.remove(&id).is_some()))
    }

    /// Changes one; whether there is one with a destination.
    pub(crate) fn alter(&self, id: u64, change: &DestinationChange) -> Result<bool, Problem> {
        self.change(|state| {
            let Some(push) = state.all.get_mut(&id).and_then(|subscription| subscription.push.as_mut()) else {
                return Ok(false);
            };
            if let Some(context) = &change.context {
                push.context.clone_from(context);
            }
            push.policy = change.policy.unwrap_or(push.policy);
            push.verify = change.verify.unwrap_or(push.verify);
            Ok(true)
        })
    }

    /// Suspends or resumes one; whether there is one with a destination.
    pub(crate) fn switch(&self, id: u64, is_on: bool, latest: u64) -> Result<bool, Problem> {
        self.change(|state| {
            let tests = state.tests.number;
            let Some(subscription) = state.all.get_mut(&id).filter(|subscription| subscription.push.is_some()) else {
                return Ok(false);
            };
            if is_on && !subscription.is_on {
                (subscription.seen, subscription.tests_seen) = (latest, tests);
            }
            (subscription.is_on, subscription.failures, subscription.retry_at) = (is_on, 0, None);
            Ok(true)
        })
    }

    /// Sends a test event to all.
    pub(crate) fn submit(&self, record: EventRecord) {
        self.state().tests.add(record);
    }

    /// The number of the latest test event.
    pub(crate) fn latest_test(&self) -> u64 {
        self.state().tests.number
    }

    /// The test events after number `seen`, and the number of the latest.
    pub(crate) fn tests_since(&self, seen: u64) -> (u64, Vec<EventRecord>) {
        self.state().tests.since(seen)
    }
}

impl SubscriptionState {
    fn insert(&mut self, push: Option<Push>, latest: u64) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.all.insert(id, Subscription::new(push, true, latest, self.tests.number));
        id
    }

    fn stored(&self) -> String {
        let of = |(id, subscription): (&u64, &Subscription)| {
            let push = subscription.push.clone()?;
            Some((*id, StoredSubscription { push, is_on: subscription.is_on }))
        };
        let stored = Stored {
            version: VERSION,
            next_id: self.next_id,
            attempts: self.attempts,
            interval_s: self.interval_s,
            subscriptions: self.all.iter().filter_map(of).collect(),
        };
        serde_json::to_string(&stored).expect("all keys of what is stored are numbers or strings")
    }
}

impl Subscription {
    fn new(push: Option<Push>, is_on: bool, seen: u64, tests_seen: u64) -> Self {
        Self {
            push,
            is_of_reports: false,
            listener: None,
            is_on,
            seen,
            tests_seen,
            reported: BTreeMap::new(),
            failures: 0,
            retry_at: None,
            in_flight: false,
        }
    }
}
