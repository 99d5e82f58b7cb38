//! The target as whoever asks sees it: all of it through the control socket, and what the account
//! has of it over the network.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use ebof_access::AccountReach;
use ebof_manage::Target;
use ebof_scope::{Scope, VisibleTarget};

use super::by::RemoteUser;
use crate::managed::Managed;

/// What whoever asks sees. Handlers that show or change drives, subsystems or what became of them
/// have no other way to the target.
pub(super) struct Sight {
    pub(super) seen: VisibleTarget,
    /// Whether that is a part of the target only.
    pub(super) is_limited: bool,
}

impl FromRequestParts<Arc<Managed>> for Sight {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, managed: &Arc<Managed>) -> Result<Self, Infallible> {
        let whole = VisibleTarget {
            target: Arc::clone(&managed.target) as Arc<dyn Target>,
            enclosure: Arc::clone(&managed.enclosure),
            events: Arc::clone(&managed.news.events),
            measured: managed.target.measured(),
        };
        let reach = parts.extensions.get::<RemoteUser>().map(|remote| &remote.user.reach);
        Ok(match reach {
            Some(AccountReach::Only { drives, subsystems }) => {
                let scope = Scope { drives: drives.clone(), subsystems: subsystems.clone() };
                Self { seen: whole.limited_to(scope), is_limited: true }
            }
            Some(AccountReach::Everything) | None => Self { seen: whole, is_limited: false },
        })
    }
}
