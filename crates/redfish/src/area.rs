//! What an area of the tree is: what is shown and done at its addresses. Changes of the box and of
//! its configuration are asked for ([`demand`]), carried out ([`carry_out`]) or only planned
//! ([`plan`]) in the same way in all areas.

pub(crate) mod carry_out;
pub(crate) mod demand;
pub(crate) mod plan;

use std::cell::Cell;

use ebof_manage::api::{Asker, Revision};
use http::Method;
use serde_json::Value;

use crate::area::demand::Preview;
use crate::managed::parts::Parts;
use crate::managed::view::View;
use crate::place::Place;
use crate::request::caller::Caller;
use crate::request::input::Input;
use crate::response::message::Problem;

/// What is shown and done at the addresses of one area.
pub(crate) trait Area {
    /// That there is nothing at this address now.
    fn missing(&self) -> Problem
    where
        Self: Sized + Clone + Into<Place>,
    {
        Problem::not_found(&self.clone().into())
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

    /// Carries out a POST whose body is not JSON; `kind` is its Content-Type.
    fn upload(&self, _kind: &str, _body: &[u8], _request: &ChangeRequest<'_>) -> Option<Result<Done, Problem>> {
        None
    }

    /// What a POST, PATCH or DELETE would do, without doing it. Its problems are those of the
    /// request itself.
    fn preview(&self, method: &Method, input: Input, view: &View<'_>) -> Result<Preview, Problem> {
        let _ = (method, input, view);
        Ok(Preview::Nothing)
    }

    /// Carries out a POST, PATCH or DELETE. `input` is the body, empty for DELETE.
    fn change(&self, method: &Method, input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        let _ = (method, input, request);
        Err(Problem::not_found(&"a change"))
    }
}

/// What a change is made with.
pub(crate) struct ChangeRequest<'r> {
    /// What is managed.
    pub(crate) parts: &'r Parts,
    /// What there was when the request came.
    pub(crate) view: &'r View<'r>,
    /// Who asks.
    pub(crate) caller: &'r Caller,
    /// The areas of other addresses.
    pub(crate) area: AreaOf,
    /// The revision of the plan that it is bound to, which it has had when it was looked at.
    pub(crate) planned: Option<Revision>,
    /// Whether it failed because somebody else has put another configuration in force since `view`:
    /// made again from a later one, it may succeed.
    pub(crate) is_late: &'r Cell<bool>,
}

/// The area that an address is in.
pub(crate) type AreaOf = fn(&Place) -> &dyn Area;

impl ChangeRequest<'_> {
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
