//! The accounts of those who manage the target over the network: listed, added, changed, removed.
//! Over the control socket its owner and group may do all that, so that nobody is locked out.
//!
//! Owns the bodies and status codes. What is accepted is in `ebof_access`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch};
use axum::{Json, Router};
use ebof_access::{Access, Account, AccountChange, AccountReach, Mistake, NewAccount, Privilege, Role, User};
use ebof_manage::api::{ACCOUNTS_SCHEMA, AccountLimits, AccountStatus, Accounts, AddAccount, Asker, ChangeAccount};
use ebof_manage::enclosure::{MistakeKind, Refused};
use ebof_manage::events::{EventKind, NewEvent};
use serde::de::DeserializeOwned;

use super::by::By;
use super::{Named, RemoteUser, answer, beside};
use crate::managed::{Managed, Remote};

type Asked = Option<Extension<RemoteUser>>;

/// Why a request is refused, with the status code.
pub(super) struct No(StatusCode, Box<Refused>);

impl No {
    fn new(status: StatusCode, kind: MistakeKind, message: impl Into<String>, advice: &str) -> Self {
        Self(status, Box::new(Refused::because(kind, message, advice)))
    }
}

impl From<No> for Response {
    fn from(No(status, refused): No) -> Self {
        answer(status, *refused)
    }
}

pub(super) fn routes() -> Router<Arc<Managed>> {
    Router::new().route("/v1/accounts", get(list).post(add)).route("/v1/accounts/{name}", patch(change).delete(remove))
}

async fn list(State(managed): State<Arc<Managed>>) -> Result<Response, Response> {
    let access = access(&managed)?;
    beside(move || {
        let accounts = access.accounts().into_iter().map(|account| status(&access, account)).collect();
        Json(Accounts { schema: ACCOUNTS_SCHEMA, accounts }).into_response()
    })
    .await
}

async fn add(
    State(managed): State<Arc<Managed>>,
    By(by): By,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Response> {
    let access = access(&managed)?;
    let AddAccount { name, password, role, only, must_change_password } =
        parsed(body, "want {\"name\": \"...\", \"password\": \"...\", \"role\": \"Operator\"}")?;
    let (role, reach) = (parsed_role(&role)?, only.map(reach).unwrap_or_default());
    let new = NewAccount { name, password, role, reach, enabled: true, must_change_password };
    beside(move || match access.add_account(&new) {
        Ok(account) => {
            let seen =
                if account.reach.is_everything() { String::new() } else { format!(" that sees {}", account.reach) };
            let message = format!("account {} was added, as {}{seen}", account.name, account.role);
            report(&managed, &by, EventKind::AccountAdded, message);
            (StatusCode::CREATED, Json(status(&access, account))).into_response()
        }
        Err(mistake) => refused(&new.name, &mistake),
    })
    .await
}

async fn change(
    State(managed): State<Arc<Managed>>,
    Named(name): Named,
    asker: Asked,
    By(by): By,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Response> {
    let access = access(&managed)?;
    let wanted = "want one or more of password, role, only or everything, enabled, must_change_password, unlock";
    let ChangeAccount { password, role, only, everything, enabled, must_change_password, unlock } =
        parsed(body, wanted)?;
    let reach = match (only, everything) {
        (Some(_), true) => {
            let message = "an account sees only something, or everything";
            return Err(No::new(StatusCode::BAD_REQUEST, MistakeKind::Value, message, wanted).into());
        }
        (None, true) => Some(AccountReach::Everything),
        (only, false) => only.map(reach),
    };
    let asker = asker.map(|Extension(remote)| remote.user);
    let is_only_password =
        role.is_none() && reach.is_none() && enabled.is_none() && must_change_password.is_none() && !unlock;
    if !is_only_password && asker.as_ref().is_some_and(|user| !user.may(Privilege::ConfigureUsers)) {
        let advice = "an Administrator may change more";
        let message = "of one's own account only the password may be changed";
        return Err(answer(StatusCode::FORBIDDEN, Refused::because(MistakeKind::Value, message, advice)));
    }
    let role = role.as_deref().map(parsed_role).transpose()?;
    let change = AccountChange { name: None, password, role, reach, enabled, must_change_password, unlock };
    beside(move || {
        let outcome = find(&access, &name).and_then(|account| {
            // Somebody else's name may be the number of one's own account.
            let is_other = |user: &User| user.account != account.id && !user.may(Privilege::ConfigureUsers);
            if asker.as_ref().is_some_and(is_other) {
                return Err(Mistake::NoSuchAccount);
            }
            // The session in which a user changes the own password goes on.
            let own = asker.filter(|user| user.account == account.id).and_then(|user| user.session);
            access.change_account(account.id, &change, own.as_ref())
        });
        match outcome {
            Ok(account) => {
                report(&managed, &by, EventKind::AccountChanged, changes_in_words(&account, &change));
                Json(status(&access, account)).into_response()
            }
            Err(mistake) => refused(&name, &mistake),
        }
    })
    .await
}

async fn remove(State(managed): State<Arc<Managed>>, Named(name): Named, By(by): By) -> Result<Response, Response> {
    let access = access(&managed)?;
    beside(move || {
        let outcome = find(&access, &name).and_then(|account| {
            access.remove_account(account.id)?;
            Ok(account)
        });
        match outcome {
            Ok(account) => {
                report(&managed, &by, EventKind::AccountRemoved, format!("account {} was removed", account.name));
                Json(status(&access, account)).into_response()
            }
            Err(mistake) => refused(&name, &mistake),
        }
    })
    .await
}

/// Who changes accounts is in the events and in the log.
fn report(managed: &Managed, by: &Asker, kind: EventKind, message: String) {
    tracing::info!(%by, "{message}");
    managed.target.events().report(NewEvent::new(kind, "", message).by(by));
}

/// What was changed of an account, without passwords.
fn changes_in_words(account: &Account, change: &AccountChange) -> String {
    let changed = [
        change.password.as_ref().map(|_secret| "another password".to_owned()),
        change.role.map(|role| format!("role {role}")),
        change.reach.as_ref().map(|reach| format!("sees {reach}")),
        change.enabled.map(|enabled| if enabled { "enabled" } else { "disabled" }.to_owned()),
        change.must_change_password.map(|must| format!("must change password: {must}")),
        change.unlock.then(|| "unlocked".to_owned()),
    ];
    let changed: Vec<String> = changed.into_iter().flatten().collect();
    format!("account {} was changed: {}", account.name, changed.join(", "))
}

/// What a target has that is managed over the network.
pub(super) fn remote(managed: &Managed) -> Result<&Remote, No> {
    managed.remote.get().ok_or_else(|| {
        let message = "the target is not managed over the network, and has neither accounts nor a certificate";
        let advice = "serve with --https ADDRESS:PORT, or `https` in [target]";
        No::new(StatusCode::CONFLICT, MistakeKind::Conflict, message, advice)
    })
}

fn access(managed: &Managed) -> Result<Arc<Access>, No> {
    Ok(Arc::clone(&remote(managed)?.access))
}

/// By its user name or its identifier.
fn find(access: &Access, name: &str) -> Result<Account, Mistake> {
    let mut accounts = access.accounts();
    let at = accounts.iter().position(|it| it.name == name);
    let at = at.or_else(|| accounts.iter().position(|it| it.id.to_string() == name)).ok_or(Mistake::NoSuchAccount)?;
    Ok(accounts.swap_remove(at))
}

fn status(access: &Access, account: Account) -> AccountStatus {
    let sessions = access.sessions().iter().filter(|session| session.account == account.id).count();
    AccountStatus {
        id: account.id.to_string(),
        name: account.name,
        role: account.role.to_string(),
        only: limits(account.reach),
        enabled: account.enabled,
        locked: account.locked,
        must_change_password: account.must_change_password,
        password_set_s: account.password_set.as_secs(),
        sessions: u32::try_from(sessions).unwrap_or(u32::MAX),
    }
}

pub(super) fn parsed<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>, wanted: &str) -> Result<T, No> {
    let body =
        body.map_err(|rejection| No::new(rejection.status(), MistakeKind::Value, rejection.body_text(), wanted))?;
    serde_json::from_slice(&body).map_err(|error| {
        let message = format!("the body is not understood: {error}");
        No::new(StatusCode::BAD_REQUEST, MistakeKind::Value, message, wanted)
    })
}

fn reach(only: AccountLimits) -> AccountReach {
    AccountReach::only(only.drives, only.subsystems)
}

fn limits(reach: AccountReach) -> Option<AccountLimits> {
    match reach {
        AccountReach::Everything => None,
        AccountReach::Only { drives, subsystems } => {
            let (drives, subsystems) = (drives.into_iter().collect(), subsystems.into_iter().collect());
            Some(AccountLimits { drives, subsystems })
        }
    }
}

fn parsed_role(role: &str) -> Result<Role, No> {
    role.parse().map_err(|error: ebof_access::NoSuchRole| {
        No::new(StatusCode::UNPROCESSABLE_ENTITY, MistakeKind::Value, error.to_string(), "name one of these")
    })
}

fn refused(name: &str, mistake: &Mistake) -> Response {
    let (status, kind, advice) = match mistake {
        Mistake::NoSuchAccount => {
            (StatusCode::NOT_FOUND, MistakeKind::NotFound, "`ebof target account list` shows all")
        }
        Mistake::Busy => (StatusCode::SERVICE_UNAVAILABLE, MistakeKind::Busy, "try again a little later"),
        Mistake::NameTaken | Mistake::TooManyAccounts | Mistake::LastAdministrator => {
            (StatusCode::CONFLICT, MistakeKind::Conflict, "nothing was changed")
        }
        Mistake::NotStored(_) | Mistake::NoRandomness(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            MistakeKind::Conflict,
            "nothing was changed: see that the state directory can be written and has room",
        ),
        Mistake::Unknown(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            MistakeKind::Unknown,
            "see to the medium of the state directory, and look at what is in force",
        ),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, MistakeKind::Value, "nothing was changed"),
    };
    let mut refused = Refused::because(kind, mistake.to_string(), advice);
    let object = format!("account {}", name.chars().take(40).collect::<String>());
    refused.mistakes.iter_mut().for_each(|mistake| mistake.object.clone_from(&object));
    answer(status, refused)
}
