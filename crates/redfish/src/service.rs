//! The service: a request goes in, a response comes out.
//!
//! Owns the order of checks (DSP0266): address, method, account, privilege, precondition, body; and
//! header fields. What each address does is in its area.

pub(crate) mod tree;

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ebof_access::User;
use ebof_manage::api::Revision;
use ebof_manage::enclosure::Refused;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, LINK, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use serde_json::Value;

use crate::area::plan;
use crate::area::{Area as _, ChangeRequest, Done};
use crate::events::{Feed, FeedRequest};
use crate::managed::parts::Parts;
use crate::managed::view::View;
use crate::place::{AccountPlace, EventPlace, Place, SchemaPlace, SessionPlace, TaskPlace};
use crate::request::caller::Caller;
use crate::request::input::Input;
use crate::request::query::Query;
use crate::response::etag;
use crate::response::message::{Login, Message, Problem};

/// The body of a response.
#[derive(Debug)]
#[non_exhaustive]
pub enum Body {
    /// Nothing.
    Empty,
    /// A text, of the type that the header says.
    Text(String),
    /// Texts as they come.
    Stream(Feed),
}

/// A Redfish service.
pub struct Service {
    parts: Parts,
    /// Held from the check of a condition (`If-Match`) to the end of its change: the resources that
    /// tasks are changing, each with its task. Their tags are those of before until the tasks have
    /// made their changes.
    conditional: Mutex<Vec<(Place, u64)>>,
}

impl Service {
    /// Of these parts.
    #[must_use]
    pub const fn new(parts: Parts) -> Self {
        Self { parts, conditional: Mutex::new(Vec::new()) }
    }

    /// What it shows and changes.
    #[must_use]
    pub const fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Answers a request. It may wait for locks of the target, none of which is held for long.
    #[must_use]
    pub fn answer(&self, request: &Request<impl AsRef<[u8]>>, caller: &Caller) -> Response<Body> {
        let head_only = request.method() == Method::HEAD;
        let mut response = self.respond(request, caller).unwrap_or_else(|problem| refused(&problem));
        if head_only {
            *response.body_mut() = Body::Empty;
        }
        let headers = response.headers_mut();
        headers.insert(HeaderName::from_static("odata-version"), HeaderValue::from_static("4.0"));
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
        response
    }

    fn respond(&self, request: &Request<impl AsRef<[u8]>>, caller: &Caller) -> Result<Response<Body>, Problem> {
        let path = request.uri().path();
        // What is posted to the members of a collection is posted to the collection (DSP0266,
        // "POST").
        let collection = path.strip_suffix("/Members").filter(|_| *request.method() == Method::POST);
        let Some(place) = Place::parse(collection.unwrap_or(path)) else {
            // Who has no account does not learn which addresses exist.
            authorized(caller, |_user| true)?;
            return Err(Problem::not_found(&path));
        };
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        let allowed = place.methods();
        if method == Method::OPTIONS {
            if place.privilege(&Method::GET).is_some() {
                authorized(caller, |_user| true)?;
            }
            return Ok(with_allow(StatusCode::NO_CONTENT, allowed));
        }
        if place.privilege(method).is_some() {
            authorized(caller, |user| place.permits(method, user))?;
        } else if caller.refused {
            return Err(unauthorized());
        }
        let parts = self.parts.seen_by(caller.user.as_ref());
        let view = View::new(&parts);
        if !allowed.contains(method) {
            return not_allowed(&place, method, allowed, &view);
        }
        version(request)?;
        if method == Method::GET {
            let mut response = get(request, &place, &view, caller)?;
            response.headers_mut().extend(with_allow(StatusCode::OK, allowed).into_parts().0.headers);
            return Ok(response);
        }
        self.change(request, &place, method, caller, &view)
    }

    fn change(
        &self,
        request: &Request<impl AsRef<[u8]>>,
        place: &Place,
        method: &Method,
        caller: &Caller,
        view: &View<'_>,
    ) -> Result<Response<Body>, Problem> {
        let (area, parts) = (tree::area(place), view.parts);
        let expected = request.headers().get(IF_MATCH);
        // Of several clients with the same tag, only the first one may change the resource.
        let mut turn = expected.map(|_| self.changing());
        let resource = place.conditional();
        let planned = request.headers().get(PLAN).map(|sent| sent.to_str().unwrap_or_default().trim_matches('"'));
        let (mut view, mut later) = (view, None);
        let (is_late, mut attempts) = (Cell::new(false), 0);
        let done = loop {
            if let Some(expected) = expected {
                let tag = etag::compute(&tree::area(&resource).read(&View::new(parts))?);
                let is_changing = turn.iter().flat_map(|turn| turn.iter()).any(|(one, _)| *one == resource);
                if is_changing || !etag::list_contains(expected, &tag) {
                    return Err(Problem::new(StatusCode::PRECONDITION_FAILED, Message::precondition_failed()));
                }
            }
            let planned = planned.map(Revision::named);
            let change = ChangeRequest { parts, view, caller, area: tree::area, planned, is_late: &is_late };
            let done = make(request, place, method, &change);
            attempts += 1;
            if !is_late.take() || attempts >= ATTEMPTS_MAX {
                break done;
            }
            // The configuration has changed since the view was taken. The request is tried again
            // with a new view, under the lock; if it conflicts with the change, the conflict is the
            // answer.
            if turn.is_none() {
                turn = Some(self.changing());
            }
            view = later.insert(View::new(parts));
        };
        if let Ok(Done::Task(id)) = done {
            turn.get_or_insert_with(|| self.changing()).push((resource, id));
        }
        drop(turn);
        match done? {
            Done::Made if method == Method::DELETE || !place.methods().contains(&Method::GET) => {
                Ok(empty(StatusCode::NO_CONTENT))
            }
            Done::Made => representation(&area.read(&View::new(parts))?, StatusCode::OK),
            Done::Created(made, headers) => {
                let resource = tree::area(&made).read(&View::new(parts))?;
                let mut response = representation(&resource, StatusCode::CREATED)?;
                for (name, value) in headers {
                    insert(&mut response, HeaderName::from_static(name), &value);
                }
                insert(&mut response, LOCATION, &made.to_string());
                if *place == SessionPlace::Sessions.into() {
                    let name = resource["UserName"].as_str().expect("a session is somebody's").to_owned();
                    response.extensions_mut().insert(Login { name, denied: None });
                }
                Ok(response)
            }
            Done::Task(id) => accepted(id, &View::new(parts)),
            Done::Answer(value) => representation(&value, StatusCode::OK),
        }
    }

    /// The resources that tasks are changing.
    fn changing(&self) -> MutexGuard<'_, Vec<(Place, u64)>> {
        let mut changing = self.conditional.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |id: u64| self.parts.enclosure.task(id, None, Duration::ZERO).is_none_or(|task| task.is_over());
        changing.retain(|(_, id)| !is_over(*id));
        changing
    }
}

/// Makes what a request wants of what there is.
fn make(
    request: &Request<impl AsRef<[u8]>>,
    place: &Place,
    method: &Method,
    change: &ChangeRequest<'_>,
) -> Result<Done, Problem> {
    let area = tree::area(place);
    let (kind, body) = (request.headers().get(CONTENT_TYPE), request.body().as_ref());
    if let Some(done) = area.upload(kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default(), body, change) {
        return done;
    }
    if let Some(kind) = kind.filter(|kind| !body.is_empty() && !is_json(kind)) {
        let value = String::from_utf8_lossy(kind.as_bytes());
        let message = Message::header_invalid("Content-Type", &value, JSON);
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    if let Some(planned) = &change.planned {
        // The request is bound to the plan that the client has seen.
        let now = plan::revision(method, place, Input::parse(body)?, change)?;
        if now.as_deref() != Some(planned.as_str()) {
            return Err(Problem::new(StatusCode::PRECONDITION_FAILED, Message::plan_outdated()));
        }
    }
    area.change(method, Input::parse(body)?, change)
}

/// How often what is wanted is made again, because others have changed the configuration meanwhile.
const ATTEMPTS_MAX: usize = 64;

/// The header with the revision of the plan that whoever sends a request has looked at.
const PLAN: &str = "ebof-plan";

/// Whether the caller has an account, and may do what is asked.
fn authorized(caller: &Caller, permits: impl FnOnce(&User) -> bool) -> Result<(), Problem> {
    let user = caller.user.as_ref().ok_or_else(unauthorized)?;
    if permits(user) {
        return Ok(());
    }
    let message = if user.must_change_password {
        let account = Place::from(AccountPlace::Account(user.account.to_string()));
        Message::password_change_required(&account.to_string())
    } else {
        Message::insufficient_privilege()
    };
    Err(Problem::new(StatusCode::FORBIDDEN, message))
}

fn unauthorized() -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, Message::no_session())
}

fn not_allowed(place: &Place, method: &Method, allowed: &[Method], view: &View<'_>) -> Result<Response<Body>, Problem> {
    if allowed.contains(&Method::GET) && tree::area(place).document(view).is_none() {
        // 404 goes before 405.
        tree::area(place).read(view)?;
    }
    let message = match *method {
        Method::DELETE => Message::resource_cannot_be_deleted(),
        _ => Message::operation_not_allowed(method.as_str()),
    };
    let mut response = refused(&Problem::new(StatusCode::METHOD_NOT_ALLOWED, message));
    response.headers_mut().extend(with_allow(StatusCode::OK, allowed).into_parts().0.headers);
    Ok(response)
}

/// A client that wants another version of OData is told so (DSP0266, "OData-Version").
fn version(request: &Request<impl AsRef<[u8]>>) -> Result<(), Problem> {
    match request.headers().get("odata-version") {
        Some(version) if version != "4.0" => {
            let value = version.to_str().unwrap_or_default();
            let message = Message::header_invalid("OData-Version", value, "4.0");
            Err(Problem::new(StatusCode::PRECONDITION_FAILED, message))
        }
        _ => Ok(()),
    }
}

fn get(
    request: &Request<impl AsRef<[u8]>>,
    place: &Place,
    view: &View<'_>,
    caller: &Caller,
) -> Result<Response<Body>, Problem> {
    if let Some((kind, text)) = tree::area(place).document(view) {
        return Ok(text_of(StatusCode::OK, kind, text));
    }
    let query = Query::parse(request.uri().query())?;
    let last_id = request.headers().get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    if *place == EventPlace::Stream.into() {
        let feed = Feed::open(FeedRequest { view, filter: query.into_filter(), last_id, caller })?;
        let mut response = Response::new(Body::Stream(feed));
        insert(&mut response, CONTENT_TYPE, "text/event-stream");
        return Ok(response);
    }
    if let Some(outcome) = tree::area(place).outcome(view) {
        return match outcome? {
            Done::Task(id) => accepted(id, view),
            Done::Answer(value) => representation(&value, StatusCode::OK),
            Done::Created(made, _) => representation(&tree::area(&made).read(view)?, StatusCode::OK),
            Done::Made => Ok(empty(StatusCode::NO_CONTENT)),
        };
    }
    let resource = tree::area(place).read(view)?;
    let own_tag = etag::compute(&resource);
    let kind = kind_of(&resource);
    // Expansion reads only what the caller may read directly.
    let permits = |place: &Place| caller.user.as_ref().is_some_and(|user| place.permits(&Method::GET, user));
    let read = |place: &Place| {
        let resource = if permits(place) { tree::area(place).read(view).ok()? } else { return None };
        let tag = etag::compute(&resource);
        Some(tagged(resource, &tag))
    };
    let answer = query.apply(place, tagged(resource, &own_tag), &read)?;
    // Each selection of properties is a representation with its own tag (RFC 9110, 8.8.1). Changes
    // are conditional on the tag of the whole resource, which is in the body.
    let tag = if query.is_plain() { own_tag } else { etag::compute(&answer) };
    let known = request.headers().get(IF_NONE_MATCH).is_some_and(|known| etag::list_contains(known, &tag));
    if known {
        let mut response = empty(StatusCode::NOT_MODIFIED);
        insert(&mut response, ETAG, &tag);
        return Ok(response);
    }
    let mut response = text_of(StatusCode::OK, JSON, answer.to_string());
    insert(&mut response, ETAG, &tag);
    described_by(&mut response, kind.as_deref());
    Ok(response)
}

/// A resource with its tag in it (DSP0266, "ETags").
fn tagged(mut resource: Value, tag: &str) -> Value {
    if let Value::Object(object) = &mut resource
        && object.contains_key("@odata.id")
    {
        object.insert("@odata.etag".to_owned(), tag.into());
    }
    resource
}

fn representation(resource: &Value, status: StatusCode) -> Result<Response<Body>, Problem> {
    let (tag, kind) = (etag::compute(resource), kind_of(resource));
    let mut response = text_of(status, JSON, tagged(resource.clone(), &tag).to_string());
    if kind.is_some() {
        insert(&mut response, ETAG, &tag);
    }
    described_by(&mut response, kind.as_deref());
    Ok(response)
}

/// 202, with the task and its monitor.
fn accepted(id: u64, view: &View<'_>) -> Result<Response<Body>, Problem> {
    let task = TaskPlace::Task(id.to_string()).read(view)?;
    let mut response = text_of(StatusCode::ACCEPTED, JSON, task.to_string());
    insert(&mut response, LOCATION, &Place::from(TaskPlace::Monitor(id.to_string())).to_string());
    insert(&mut response, RETRY_AFTER, "1");
    described_by(&mut response, kind_of(&task).as_deref());
    Ok(response)
}

/// The name of the type of a resource: `Drive.v1_22_0`.
fn kind_of(resource: &Value) -> Option<String> {
    let kind = resource.get("@odata.type")?.as_str()?.strip_prefix('#')?;
    kind.rsplit_once('.').map(|(namespace, _)| namespace.to_owned())
}

/// `Link: <...>; rel=describedby` names the schema (DSP0266, "Link header").
fn described_by(response: &mut Response<Body>, kind: Option<&str>) {
    if let Some(kind) = kind {
        let schema = Place::from(SchemaPlace::of_type(kind));
        insert(response, LINK, &format!("<{schema}>; rel=describedby"));
    }
}

fn refused(problem: &Problem) -> Response<Body> {
    let mut response = text_of(problem.status, JSON, problem.body().to_string());
    if problem.status == StatusCode::UNAUTHORIZED {
        insert(&mut response, WWW_AUTHENTICATE, "Basic realm=\"ebof\", charset=\"UTF-8\"");
    }
    if let Some(wait) = problem.retry_after {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        insert(&mut response, RETRY_AFTER, &seconds.max(1).to_string());
    }
    if let Some(login) = &problem.login {
        response.extensions_mut().insert(Login::clone(login));
    }
    if let Some(refused) = &problem.refused {
        response.extensions_mut().insert(Refused::clone(refused));
    }
    response
}

/// Whether a Content-Type is that of JSON, in the one encoding that it has (RFC 8259, 8.1).
fn is_json(kind: &HeaderValue) -> bool {
    let Ok(kind) = kind.to_str() else { return false };
    let mut parts = kind.split(';').map(str::trim);
    let is_utf8 = |parameter: &str| match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    };
    parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) && parts.all(is_utf8)
}

/// The type of JSON bodies.
const JSON: &str = "application/json; charset=utf-8";

fn text_of(status: StatusCode, kind: &str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::Text(text));
    *response.status_mut() = status;
    insert(&mut response, CONTENT_TYPE, kind);
    response
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response
}

fn with_allow(status: StatusCode, allowed: &[Method]) -> Response<Body> {
    let mut names: Vec<&str> = allowed.iter().map(Method::as_str).collect();
    if allowed.contains(&Method::GET) {
        names.push("HEAD");
    }
    let mut response = empty(status);
    insert(&mut response, ALLOW, &names.join(", "));
    response
}

fn insert(response: &mut Response<Body>, name: HeaderName, value: &str) {
    let value = HeaderValue::from_str(value).expect("it is made of identifiers, numbers and constants");
    response.headers_mut().insert(name, value);
}

#[cfg(test)]
pub(crate) mod tests;
