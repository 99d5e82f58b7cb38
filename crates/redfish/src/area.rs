//! What an area of the tree is: addresses with what can be done there.

use ebof_access::{Privilege, User};
use ebof_manage::api::Asker;
use http::Method;
use serde_json::Value;

use crate::caller::Caller;
use crate::events::Feed;
use crate::input::Input;
use crate::message::Problem;
use crate::place::Place;
use crate::query::Filter;
use crate::service::Parts;
use crate::view::View;
use crate::wanted::Demand;

/// Addresses of one area, and what can be done with each.
pub(crate) trait Area {
    /// The address that segments below the root name; whether there is such a resource now is said
    /// by [`Area::read`].
    fn parse(segments: &[&str]) -> Option<Self>
    where
        Self: Sized;

    /// The segments below the root.
    fn segments(&self) -> Vec<&str>;

    /// The addresses, with `{Id}` for what is not fixed, each with the type of its resource;
    /// without one it is a document or an action.
    fn patterns() -> &'static [(&'static str, &'static str)]
    where
        Self: Sized,
    {
        &[]
    }

    /// The methods, without HEAD and OPTIONS.
    fn methods(&self) -> &'static [Method] {
        READ
    }

    /// The privilege that a method needs; `None` needs no account.
    fn privilege(&self, method: &Method) -> Option<Privilege> {
        Some(if *method == Method::GET { Privilege::Login } else { Privilege::ConfigureComponents })
    }

    /// Whether a user may use a method, as far as the address tells.
    fn permits(&self, method: &Method, user: &User) -> bool {
        self.privilege(method).is_none_or(|privilege| user.may(privilege))
    }

    /// The resource. Fails if there is none of this name now; actions have none.
    fn read(&self, view: &View<'_>) -> Result<Value, Problem>;

    /// Whether it is read as a document of its own, without query parameters: `$metadata`.
    fn document(&self, _view: &View<'_>) -> Option<(&'static str, String)> {
        None
    }

    /// What a GET answers that is no resource: the monitor of a task.
    fn outcome(&self, _view: &View<'_>) -> Option<Result<Done, Problem>> {
        None
    }

    /// A stream that a GET opens.
    fn feed(&self, _request: FeedRequest<'_>) -> Option<Result<Feed, Problem>> {
        None
    }

    /// Carries out a POST whose body is not JSON; `kind` is its Content-Type.
    fn upload(&self, _kind: &str, _body: &[u8], _request: &Change<'_>) -> Option<Result<Done, Problem>> {
        None
    }

    /// What a POST, PATCH or DELETE asks for, without doing it: so that it can be planned, too.
    fn translate(&self, method: &Method, input: Input, view: &View<'_>) -> Result<Demand, Problem> {
        let _ = (method, input, view);
        Err(Problem::not_found(&"a change that can be planned"))
    }

    /// Carries out a POST, PATCH or DELETE. `input` is the body, empty for DELETE.
    fn change(&self, method: &Method, input: Input, request: &Change<'_>) -> Result<Done, Problem> {
        let _ = (method, input, request);
        Err(Problem::not_found(&"a change"))
    }
}

/// Only to be read.
pub(crate) const READ: &[Method] = &[Method::GET];

/// To be read and changed.
pub(crate) const PATCH: &[Method] = &[Method::GET, Method::PATCH];

/// To be read, changed and deleted.
pub(crate) const PATCH_DELETE: &[Method] = &[Method::GET, Method::PATCH, Method::DELETE];

/// To be read and deleted.
pub(crate) const DELETE: &[Method] = &[Method::GET, Method::DELETE];

/// A collection that gets new members.
pub(crate) const GET_POST: &[Method] = &[Method::GET, Method::POST];

/// An action.
pub(crate) const ACTION: &[Method] = &[Method::POST];

/// What a stream is opened with.
pub(crate) struct FeedRequest<'r> {
    /// What there is.
    pub(crate) view: &'r View<'r>,
    /// Which events are wanted.
    pub(crate) filter: Option<Filter>,
    /// The last event that was read.
    pub(crate) last_id: Option<u64>,
}

/// What a change is made with.
pub(crate) struct Change<'r> {
    /// What is managed.
    pub(crate) parts: &'r Parts,
    /// What there was when the request came.
    pub(crate) view: &'r View<'r>,
    /// Who asks.
    pub(crate) caller: &'r Caller,
}

impl Change<'_> {
    /// Who asks, as the target keeps it.
    pub(crate) fn asker(&self) -> Asker {
        let address = self.caller.peer.ip().to_canonical().to_string();
        match &self.caller.user {
            Some(user) => Asker::Account { name: user.name.clone(), address },
            None => Asker::Library,
        }
    }
}

/// What became of a change.
#[derive(Clone, Debug)]
pub(crate) enum Done {
    /// It was made: the answer is the resource as it is now, or that it is gone.
    Made,
    /// A resource was created. Header fields are added to the answer.
    Created(Place, Vec<(&'static str, String)>),
    /// A task of the box makes it.
    Task(u64),
    /// An action has an answer of its own.
    Answer(Value),
}
