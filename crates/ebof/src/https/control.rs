//! The API of the control socket over HTTPS, at `/ebof/v1`: the same, for users, by their roles.
//!
//! Everyone who may log in sees. An Operator changes functions and drives that are there; which
//! files a target serves, its configuration and accounts are for Administrators, since whoever
//! chooses a file can read it then.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use ebof_access::{Privilege, User};
use ebof_manage::enclosure::{Change, Transaction};
use hyper::body::Bytes;
use hyper::header::{HeaderValue, LOCATION};
use hyper::{Method, Request, Response, Uri};
use tower::ServiceExt as _;

use super::refusal::Refusal;
use super::service::Caller;
use crate::control::RemoteUser;
use crate::managed::Managed;

/// What stands before the paths of the control socket.
const PREFIX: &str = "/ebof";

/// Serves what the control socket has.
pub(super) struct Control {
    routes: Router,
}

impl Control {
    pub(super) fn new(managed: Arc<Managed>) -> Self {
        Self { routes: crate::control::routes(managed) }
    }

    pub(super) async fn answer(&self, request: Request<Bytes>, caller: &Caller) -> Result<Response<Body>, Refusal> {
        let user = caller.user.as_ref().ok_or(Refusal::NO_USER)?;
        let path = request.uri().path().strip_prefix(PREFIX).unwrap_or_default().to_owned();
        allowed(request.method(), &path, request.body(), user)?;
        let (mut parts, body) = request.into_parts();
        parts.uri = without_prefix(&parts.uri).ok_or(Refusal::NOTHING_HERE)?;
        parts.extensions.insert(RemoteUser { user: user.clone(), address: caller.peer.ip() });
        let request = Request::from_parts(parts, Body::from(body));
        let Ok(mut response) = self.routes.clone().oneshot(request).await;
        let place = response.headers().get(LOCATION).and_then(|place| place.to_str().ok());
        if let Some(place) = place.and_then(|place| HeaderValue::from_str(&format!("{PREFIX}{place}")).ok()) {
            response.headers_mut().insert(LOCATION, place);
        }
        Ok(response)
    }
}

fn without_prefix(uri: &Uri) -> Option<Uri> {
    uri.path_and_query()?.as_str().strip_prefix(PREFIX)?.parse().ok()
}

/// What a request needs, path by path. What is not named needs everything.
fn allowed(method: &Method, path: &str, body: &[u8], user: &User) -> Result<(), Refusal> {
    let is_own = |rest: &str| rest == user.name || rest == user.account.to_string();
    if !user.reach.is_everything() && !is_for_a_part(method, path, is_own) {
        return Err(Refusal::PART);
    }
    let needed = match (method, path) {
        (&Method::PATCH, path) if path.strip_prefix("/v1/accounts/").is_some_and(is_own) => {
            // What of it may be changed is checked where it is.
            Privilege::ConfigureSelf
        }
        (&Method::GET | &Method::HEAD, _) if path.starts_with("/v1/accounts") => Privilege::ConfigureUsers,
        // It names everybody.
        (&Method::GET | &Method::HEAD, "/v1/audit") => Privilege::ConfigureUsers,
        // They tell who could be somebody else.
        (&Method::GET | &Method::HEAD, path) if path.starts_with("/v1/keys") => Privilege::ConfigureManager,
        (&Method::GET | &Method::HEAD, _) => Privilege::Login,
        (&Method::POST, "/v1/changes") if !chooses_files(body) => Privilege::ConfigureComponents,
        // A firmware image.
        (&Method::POST, "/v1/images") => Privilege::ConfigureComponents,
        _ if path.starts_with("/v1/accounts") => Privilege::ConfigureUsers,
        _ => Privilege::ConfigureManager,
    };
    match user.may(needed) {
        true => Ok(()),
        false if user.must_change_password => Err(Refusal::PASSWORD),
        false => Err(Refusal::ROLE),
    }
}

/// Whether it is for those who see a part of the target, too. What is not named here is not: what
/// is named shows and changes no more than they have (`control/sight.rs`).
fn is_for_a_part(method: &Method, path: &str, is_own: impl Fn(&str) -> bool) -> bool {
    match *method {
        Method::GET | Method::HEAD => {
            let below = ["/v1/tasks/", "/v1/drives/"];
            PARTS.contains(&path) || below.iter().any(|below| path.starts_with(below))
        }
        Method::POST => matches!(path, "/v1/changes" | "/v1/changes/plan"),
        Method::PATCH => path.strip_prefix("/v1/accounts/").is_some_and(is_own),
        _ => false,
    }
}

/// What is shown in part to those who see a part.
const PARTS: &[&str] = &[
    "/v1",
    "/v1/inventory",
    "/v1/status",
    "/v1/refused",
    "/v1/tasks",
    "/v1/configuration",
    "/v1/certificate",
    "/v1/events",
    "/v1/history",
    "/v1/queues",
    "/v1/slow",
];

/// Whether a transaction says which files or devices are served.
fn chooses_files(body: &[u8]) -> bool {
    // What is not understood is refused anyway.
    let Ok(transaction) = serde_json::from_slice::<Transaction>(body) else { return false };
    transaction.changes.iter().any(|change| matches!(change, Change::AddDrive(_)))
}

#[cfg(test)]
mod tests;
