//! Accounts and roles: `/redfish/v1/AccountService`.

mod account;
mod service;

use std::mem;

use ebof_access::{Account as StoredAccount, AccountReach, Mistake, NewAccount, Privilege, Role, SettingsChange};
use ebof_manage::events::{EventKind, NewEvent};
use http::{Method, StatusCode};
use serde_json::Value;

use crate::area::{Area, ChangeRequest, Done};
use crate::managed::view::View;
use crate::place::AccountPlace;
use crate::request::input::Input;
use crate::response::head::{Collection, json};
use crate::response::message::{Message, Problem, Severity};
use account::{ManagerAccount, RoleResource};
use service::AccountService;

/// The roles, by name.
const ROLES: [(&str, Role); 3] =
    [("Administrator", Role::Administrator), ("Operator", Role::Operator), ("ReadOnly", Role::ReadOnly)];

impl Area for AccountPlace {
    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Service => json(&AccountService::new(view)),
            Self::Accounts => {
                let all = view.parts.visible_accounts();
                let members = all.iter().map(|account| Self::Account(account.id.to_string()));
                json(&Collection::new(Self::Accounts, "ManagerAccount", "Accounts", members))
            }
            Self::Account(id) => json(&ManagerAccount::new(&self.account(id, view)?)),
            Self::Roles => {
                let members = Role::ALL.map(|role| Self::Role(role.name().to_owned()));
                json(&Collection::new(Self::Roles, "Role", "Roles", members))
            }
            Self::Role(id) => json(&RoleResource::new(id.parse().map_err(|_| self.missing())?)),
        })
    }

    fn change(&self, method: &Method, input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        match (self, method) {
            (Self::Accounts, _) => add(input, request),
            (Self::Account(id), &Method::DELETE) => self.remove(id, request),
            (Self::Account(id), _) => self.alter(id, input, request),
            _ => self.configure(input, request),
        }
    }
}

/// Adds an account.
fn add(mut input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
    let name = input.text("UserName");
    let name = input.required("UserName", name);
    let password = input.secret("Password");
    let password = input.required("Password", password);
    let role = input.one_of("RoleId", &ROLES);
    let role = input.required("RoleId", role);
    let enabled = input.flag("Enabled");
    let must_change_password = input.flag("PasswordChangeRequired");
    let reach = account::reach(&mut input, &AccountReach::Everything);
    account::types(&mut input);
    input.finish(None)?;
    let new = NewAccount {
        name: name.unwrap_or_default(),
        password: mem::take(&mut *password.unwrap_or_default()),
        role: role.unwrap_or(Role::ReadOnly),
        reach: reach.unwrap_or_default(),
        enabled: enabled.unwrap_or(true),
        must_change_password: must_change_password.unwrap_or(false),
    };
    let account = request.parts.access.add_account(&new).map_err(|mistake| match mistake {
        Mistake::NameTaken => {
            let message = Message::exists_already("ManagerAccount", "UserName", &new.name).about("/UserName");
            Problem::bad_request(message)
        }
        mistake => refused(&mistake),
    })?;
    report(request, EventKind::AccountAdded, account::describe_new(&account));
    Ok(Done::Created(AccountPlace::Account(account.id.to_string()).into(), Vec::new()))
}

impl AccountPlace {
    fn account(&self, id: &str, view: &View<'_>) -> Result<StoredAccount, Problem> {
        let found = |id| view.parts.visible_accounts().into_iter().find(|account| account.id == id);
        id.parse().ok().and_then(found).ok_or_else(|| self.missing())
    }

    fn alter(&self, id: &str, input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        let before = self.account(id, request.view)?;
        let user = request.caller.user.as_ref().ok_or_else(Problem::forbidden)?;
        let is_password_only = input.names().all(|name| name == "Password");
        if !user.may(Privilege::ConfigureUsers) && !is_password_only {
            return Err(Problem::forbidden());
        }
        let change = account::change_of(input, &before, &self.read(request.view)?)?;
        let keep = user.session.as_ref().filter(|_| user.account == before.id);
        let access = &request.parts.access;
        let after = access.change_account(before.id, &change, keep).map_err(|mistake| refused(&mistake))?;
        report(request, EventKind::AccountChanged, account::describe_change(&before, &after, &change));
        Ok(Done::Made)
    }

    fn remove(&self, id: &str, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        let before = self.account(id, request.view)?;
        request.parts.access.remove_account(before.id).map_err(|mistake| refused(&mistake))?;
        report(request, EventKind::AccountRemoved, format!("account {} was removed", before.name));
        Ok(Done::Made)
    }

    fn configure(&self, mut input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        let change = SettingsChange {
            lockout_threshold: input.number("AccountLockoutThreshold", 0..=1000),
            lockout_duration_s: input.number("AccountLockoutDuration", 1..=86_400),
            lockout_reset_after_s: input.number("AccountLockoutCounterResetAfter", 1..=86_400),
            basic_auth: input.one_of("HTTPBasicAuth", &[("Enabled", true), ("Disabled", false)]),
            ..SettingsChange::default()
        };
        input.finish(Some(&self.read(request.view)?))?;
        request.parts.access.change_settings(&change).map_err(|mistake| refused(&mistake))?;
        Ok(Done::Made)
    }
}

fn report(request: &ChangeRequest<'_>, kind: EventKind, message: String) {
    let who = request.caller.user.as_ref().map(|user| user.name.clone());
    let event = NewEvent::new(kind, "", message);
    request.parts.events.report(NewEvent { who, ..event });
}

/// What is refused of accounts, sessions and their settings.
pub(crate) fn refused(mistake: &Mistake) -> Problem {
    let why = mistake.to_string();
    let about = |name: &str| {
        let message = Message::property_error(name, &why, "Choose another one").about(&format!("/{name}"));
        Problem::bad_request(message)
    };
    match mistake {
        Mistake::NoSuchAccount | Mistake::NoSuchSession => Problem::not_found(&"of this number"),
        Mistake::Name | Mistake::NameTaken => about("UserName"),
        Mistake::PasswordLength | Mistake::PasswordCharacters | Mistake::PasswordIsName => about("Password"),
        Mistake::LimitedAdministrator | Mistake::Reach => about("Oem"),
        Mistake::TooManyAccounts => Problem::bad_request(Message::too_many("accounts")),
        Mistake::LastAdministrator => {
            let message =
                Message::own("AccountNeeded", Severity::Warning, why, "Make another account an Administrator first.");
            Problem::bad_request(message)
        }
        Mistake::Setting { setting, value, low, high } => {
            let name = match *setting {
                "lockout_reset_after_s" => "AccountLockoutCounterResetAfter",
                "lockout_duration_s" => "AccountLockoutDuration",
                "lockout_threshold" => "AccountLockoutThreshold",
                _ => "SessionTimeout",
            };
            // It may be another one that was sent, and sets the limit of this one.
            let message = Message::property_value(name, &(*value).into(), &format!("integers from {low} to {high}"));
            Problem::bad_request(message.about(&format!("/{name}")))
        }
        Mistake::Busy => {
            let message = Message::busy(1, "Too many passwords are being checked at the moment");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, message).after(std::time::Duration::from_secs(1))
        }
        Mistake::Unknown(_) => Problem::unknown(why),
        Mistake::NotStored(_) | Mistake::NoRandomness(_) => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, Message::internal(&why))
        }
    }
}

#[cfg(test)]
mod tests;
