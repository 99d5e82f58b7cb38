//! Sessions: logging in and out, `/redfish/v1/SessionService`.

use std::net::IpAddr;

use ebof_access::{Denied, Privilege, Session as OpenSession, SessionId, SettingsChange};
use ebof_manage::events::{EventKind, Events, NewEvent};
use http::{Method, StatusCode};
use serde::Serialize;
use serde_json::Value;

use crate::access::accounts::refused;
use crate::area::{Area, ChangeRequest, Done};
use crate::managed::view::View;
use crate::place::{AccountPlace, Place, SessionPlace};
use crate::request::input::Input;
use crate::response::head::{Collection, Head, Link, Oem, Status, json, link, oem};
use crate::response::message::{Login, Message, Problem};
use crate::response::time::date_time;

impl Area for SessionPlace {
    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        let sessions = || view.parts.visible_sessions();
        Ok(match self {
            Self::Service => json(&SessionService::new(view)),
            Self::Sessions => {
                let all = sessions();
                let members = all.iter().map(|session| Self::Session(session.id.to_string()));
                json(&Collection::new(Self::Sessions, "Session", "Sessions", members))
            }
            Self::Session(id) => {
                let session = sessions().into_iter().find(|session| session.id.to_string() == *id);
                json(&Session::new(view, &session.ok_or_else(|| self.missing())?))
            }
        })
    }

    fn change(&self, method: &Method, input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        match (self, method) {
            (Self::Sessions, &Method::POST) => self.open(input, request),
            (Self::Session(id), _) => self.close(&SessionId::from(id.as_str()), request),
            _ => self.configure(input, request),
        }
    }
}

impl SessionPlace {
    fn open(&self, mut input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        let name = input.text("UserName");
        let name = input.required("UserName", name);
        let password = input.secret("Password");
        let password = input.required("Password", password);
        // What a client calls the session is not kept.
        input.text("Context");
        input.finish(None)?;
        let (name, password) = (name.unwrap_or_default(), password.unwrap_or_default());
        let parts = request.parts;
        let address = request.caller.peer.ip().to_canonical();
        let user = parts.access.login(address, &name, &password).map_err(|denied| {
            report_denied(&*parts.events, address, &name, denied);
            self.denied(denied).about(Login { name: shortened(&name), denied: Some(denied) })
        })?;
        let (session, token) = parts.access.open_session(&user, address).map_err(|mistake| refused(&mistake))?;
        let message = format!("{} logged in from {address}", user.name);
        parts.events.report(NewEvent::new(EventKind::SessionBegan, "", message).who(user.name));
        let place = Self::Session(session.id.to_string());
        Ok(Done::Created(place.into(), vec![("x-auth-token", token.text().to_owned())]))
    }

    fn denied(&self, denied: Denied) -> Problem {
        let path = Place::from(self.clone()).to_string();
        let message = Message::login_refused(&path, denied.retry_after.is_some());
        let problem = Problem::new(StatusCode::UNAUTHORIZED, message);
        match denied.retry_after {
            Some(wait) => problem.after(wait),
            None => problem,
        }
    }

    fn close(&self, id: &SessionId, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        let user = request.caller.user.as_ref().ok_or_else(Problem::forbidden)?;
        let access = &request.parts.access;
        let is_own = |session: &OpenSession| session.id == *id && session.account == user.account;
        if !user.may(Privilege::ConfigureManager) && !access.sessions().iter().any(is_own) {
            return Err(Problem::forbidden());
        }
        let closed = access.close_session(id).map_err(|_| self.missing())?;
        let message = format!("the session of {} was ended", closed.user_name);
        request.parts.events.report(NewEvent::new(EventKind::SessionEnded, "", message).who(user.name.clone()));
        Ok(Done::Made)
    }

    fn configure(&self, mut input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        let seconds = input.number("SessionTimeout", 30..=86_400);
        let by_address = input.object("Oem", |oem| oem.object("Ebof", |ebof| ebof.flag("BoundToAddress")));
        input.finish(Some(&self.read(request.view)?))?;
        let change = SettingsChange {
            session_timeout_s: seconds,
            sessions_by_address: by_address.flatten().flatten(),
            ..SettingsChange::default()
        };
        request.parts.access.change_settings(&change).map_err(|mistake| refused(&mistake))?;
        Ok(Done::Made)
    }
}

/// Reports that somebody was not let in, by name and password.
pub fn report_denied(events: &dyn Events, address: IpAddr, name: &str, denied: Denied) {
    let name = shortened(name);
    if denied.has_locked {
        let message = format!("account {name} was locked: too many failed logins, the last one from {address}");
        let advice = "`ebof target account unlock NAME` ends that; find out who tries passwords";
        events.report(NewEvent::new(EventKind::AccountLocked, "", message).advice(advice).who(name.clone()));
    }
    let message = format!("a login from {address} was refused: {denied}");
    events.report(NewEvent::new(EventKind::SessionRefused, "", message).who(name));
}

/// As much of a user name as is told to others.
fn shortened(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(32).collect()
}

/// `SessionService`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SessionService {
    #[serde(flatten)]
    head: Head,
    service_enabled: bool,
    session_timeout: u32,
    sessions: Link,
    status: Status,
    oem: Oem<OemSessions>,
}

/// `EbofSessionService.SessionService`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemSessions {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    bound_to_address: bool,
}

impl SessionService {
    fn new(view: &View<'_>) -> Self {
        let settings = view.parts.access.settings();
        let ebof = OemSessions {
            kind: "#EbofSessionService.v1_0_0.SessionService",
            bound_to_address: settings.sessions_by_address,
        };
        Self {
            head: Head::new(
                SessionPlace::Service,
                "#SessionService.v1_2_0.SessionService",
                "Session Service",
                "Who is logged in, and for how long",
            ),
            service_enabled: true,
            session_timeout: settings.session_timeout_s,
            sessions: link(SessionPlace::Sessions),
            status: Status::OK,
            oem: oem(ebof),
        }
    }
}

/// `Session`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Session {
    #[serde(flatten)]
    head: Head,
    user_name: String,
    /// Always null when read.
    password: Option<String>,
    session_type: &'static str,
    #[serde(rename = "ClientOriginIPAddress")]
    client: String,
    created_time: String,
    roles: Vec<&'static str>,
    #[serde(rename = "@Message.ExtendedInfo", skip_serializing_if = "Vec::is_empty")]
    messages: Vec<Message>,
}

impl Session {
    fn new(view: &View<'_>, session: &OpenSession) -> Self {
        let account = view.parts.access.account(session.account);
        let must_change = account.as_ref().is_some_and(|account| account.must_change_password);
        let place = Place::from(AccountPlace::Account(session.account.to_string()));
        let messages = must_change.then(|| Message::password_change_required(&place.to_string()));
        Self {
            head: Head::new(
                SessionPlace::Session(session.id.to_string()),
                "#Session.v1_8_0.Session",
                format!("Session of {}", session.user_name),
                "A user who is logged in",
            ),
            user_name: session.user_name.clone(),
            password: None,
            session_type: "Redfish",
            client: session.client.to_string(),
            created_time: date_time(u64::try_from(session.created.as_millis()).unwrap_or(u64::MAX)),
            roles: account.iter().map(|account| account.role.name()).collect(),
            messages: messages.into_iter().collect(),
        }
    }
}
