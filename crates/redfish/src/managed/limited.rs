//! The parts of a service as a user sees them. This is the one place where it is decided what an
//! account sees that is limited to some drives and subsystems: areas are given these parts, and
//! know no others.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use ebof_access::{Account, AccountReach, Session, User};
use ebof_manage::Target;
use ebof_manage::api::{Applied, Configuration, Desired, Generation, Planned, RefusedConfiguration, Revision};
use ebof_manage::enclosure::{MistakeKind, Refused};
use ebof_scope::{Scope, VisibleTarget};

use crate::managed::parts::{Configurations, NoKeys, Parts};
use crate::managed::subscriptions::Subscription;

impl Parts {
    /// As a user sees and changes them.
    pub(crate) fn seen_by(&self, user: Option<&User>) -> Cow<'_, Self> {
        let Some((user, AccountReach::Only { drives, subsystems })) = user.map(|user| (user, &user.reach)) else {
            return Cow::Borrowed(self);
        };
        let whole = VisibleTarget {
            target: Arc::clone(&self.target),
            enclosure: Arc::clone(&self.enclosure),
            events: Arc::clone(&self.events),
            measured: Arc::clone(&self.measured),
        };
        let scope = Scope { drives: drives.clone(), subsystems: subsystems.clone() };
        let VisibleTarget { target, enclosure, events, measured } = whole.limited_to(scope);
        let configurations = Part { whole: Arc::clone(&self.configurations), target: Arc::clone(&target) };
        Cow::Owned(Self {
            target,
            enclosure,
            events,
            measured,
            configurations: Arc::new(configurations),
            keys: Arc::new(NoKeys),
            only: Some(user.account),
            ..self.clone()
        })
    }

    /// The accounts that their user sees.
    pub(crate) fn visible_accounts(&self) -> Vec<Account> {
        let mut all = self.access.accounts();
        all.retain(|account| self.only.is_none_or(|only| only == account.id));
        all
    }

    /// The sessions that their user sees.
    pub(crate) fn visible_sessions(&self) -> Vec<Session> {
        let mut all = self.access.sessions();
        all.retain(|session| self.only.is_none_or(|only| only == session.account));
        all
    }

    /// A subscription or stream, by its number.
    pub(crate) fn subscription(&self, id: u64) -> Option<Subscription> {
        let is_seen = |one: &Subscription| self.only.is_none_or(|only| one.is_stream_of(only));
        self.subscriptions.get(id).filter(is_seen)
    }

    /// The numbers of all that their user sees.
    pub(crate) fn subscription_ids(&self) -> Vec<u64> {
        let mut ids = self.subscriptions.ids();
        ids.retain(|id| self.subscription(*id).is_some());
        ids
    }
}

/// The part of a configuration that somebody sees, who cannot put another one in force.
struct Part {
    whole: Arc<dyn Configurations>,
    /// As they see it.
    target: Arc<dyn Target>,
}

impl Configurations for Part {
    fn configuration(&self) -> Result<Configuration, RefusedConfiguration> {
        self.whole.configuration()?.limited_to(&self.target.config())
    }

    fn generations(&self) -> Vec<Generation> {
        Vec::new()
    }

    fn plan(&self, _desired: Desired) -> Result<Planned, RefusedConfiguration> {
        Err(not_allowed())
    }

    fn apply(
        &self,
        _planned: &Revision,
        _desired: Desired,
        _by: &User,
        _from: IpAddr,
    ) -> Result<Applied, RefusedConfiguration> {
        Err(not_allowed())
    }
}

fn not_allowed() -> RefusedConfiguration {
    let message = "only those who see the whole target may change its configuration";
    Refused::because(MistakeKind::NotAllowed, message, "ask an Administrator").into()
}
