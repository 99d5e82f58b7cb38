//! Who asks: a process of this machine, through the control socket, or a user over the network.

use std::net::IpAddr;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::StatusCode;
use axum::http::request::Parts;
use ebof_access::User;
use ebof_manage::api::Asker;

use super::listener::LocalPeer;

/// The user of a request over the network. Those of the control socket have none.
#[derive(Clone, Debug)]
pub(crate) struct RemoteUser {
    pub(crate) user: User,
    pub(crate) address: IpAddr,
}

/// Who asks for a change.
pub(super) struct By(pub(super) Asker);

impl RemoteUser {
    fn asker(&self) -> Asker {
        Asker::Account { name: self.user.name.clone(), address: self.address.to_canonical().to_string() }
    }
}

impl<S: Sync> FromRequestParts<S> for By {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, StatusCode> {
        let remote = parts.extensions.get::<RemoteUser>().map(RemoteUser::asker);
        let local = || parts.extensions.get().map(|ConnectInfo(peer): &ConnectInfo<LocalPeer>| peer.asker());
        // Whoever serves the routes says who asks.
        remote.or_else(local).map(Self).ok_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}
