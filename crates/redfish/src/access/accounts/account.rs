//! `ManagerAccount` and `Role`.

use std::collections::BTreeSet;
use std::mem;

use ebof_access::{Account, AccountChange, AccountReach, Privilege, Role};
use serde::Serialize;
use serde_json::Value;

use super::ROLES;
use crate::place::AccountPlace;
use crate::request::input::Input;
use crate::response::head::{Head, Link, Oem, link, oem};
use crate::response::message::{Message, Problem};

/// What accounts are good for: this service, and the page.
pub(super) const TYPES: [&str; 2] = ["Redfish", "WebUI"];

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ManagerAccount {
    #[serde(flatten)]
    head: Head,
    user_name: String,
    /// Always null when read.
    password: Option<String>,
    role_id: &'static str,
    enabled: bool,
    locked: bool,
    password_change_required: bool,
    account_types: [&'static str; 2],
    strict_account_types: bool,
    links: AccountLinks,
    oem: Oem<OemAccount>,
}

/// `EbofManagerAccount.ManagerAccount`.
#[derive(Serialize)]
struct OemAccount {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    #[serde(rename = "Limited")]
    limited: bool,
    #[serde(rename = "Drives")]
    drives: BTreeSet<String>,
    #[serde(rename = "SubsystemNQNs")]
    subsystems: BTreeSet<String>,
}

impl OemAccount {
    fn new(reach: &AccountReach) -> Self {
        let (drives, subsystems) = names_of(reach);
        let kind = "#EbofManagerAccount.v1_0_0.ManagerAccount";
        Self { kind, limited: !reach.is_everything(), drives, subsystems }
    }
}

fn names_of(reach: &AccountReach) -> (BTreeSet<String>, BTreeSet<String>) {
    match reach {
        AccountReach::Everything => Default::default(),
        AccountReach::Only { drives, subsystems } => (drives.clone(), subsystems.clone()),
    }
}

/// Takes what an account is limited to; `None` leaves it as it is before.
pub(super) fn reach(input: &mut Input, before: &AccountReach) -> Option<AccountReach> {
    let named = |own: &mut Input| (own.flag("Limited"), own.texts("Drives"), own.texts("SubsystemNQNs"));
    let (limited, drives, subsystems) = input.ebof(named)?;
    let names = || [&drives, &subsystems].into_iter().flatten().any(|names| !names.is_empty());
    match limited {
        None if drives.is_none() && subsystems.is_none() => None,
        Some(false) if names() => {
            let why = "an account that is not limited has no Drives and SubsystemNQNs";
            input.mistake("Oem/Ebof/Limited", Message::property_error("Limited", why, "Send true, or no names"));
            None
        }
        Some(false) => Some(AccountReach::Everything),
        _ => {
            let (own_drives, own_subsystems) = names_of(before);
            let or = |sent: Option<Vec<String>>, own| sent.map_or(own, BTreeSet::from_iter);
            Some(AccountReach::Only { drives: or(drives, own_drives), subsystems: or(subsystems, own_subsystems) })
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct AccountLinks {
    role: Link,
}

impl ManagerAccount {
    pub(super) fn new(account: &Account) -> Self {
        Self {
            head: Head::new(
                AccountPlace::Account(account.id.to_string()),
                "#ManagerAccount.v1_14_0.ManagerAccount",
                format!("Account {}", account.name),
                "A user of this service",
            ),
            user_name: account.name.clone(),
            password: None,
            role_id: account.role.name(),
            enabled: account.enabled,
            locked: account.locked,
            password_change_required: account.must_change_password,
            account_types: TYPES,
            strict_account_types: false,
            links: AccountLinks { role: link(AccountPlace::Role(account.role.name().to_owned())) },
            oem: oem(OemAccount::new(&account.reach)),
        }
    }
}

/// Takes `AccountTypes` and `StrictAccountTypes`, of which there is one value.
pub(super) fn types(input: &mut Input) {
    if let Some(types) = input.list("AccountTypes") {
        let is_known = |value: &Value| value.as_str().is_some_and(|text| TYPES.contains(&text));
        if types.is_empty() || !types.iter().all(is_known) {
            let accepted = TYPES.join(", ");
            input.mistake("AccountTypes", Message::property_value("AccountTypes", &types.into(), &accepted));
        }
    }
    if input.flag("StrictAccountTypes") == Some(true) {
        input.mistake(
            "StrictAccountTypes",
            Message::property_value("StrictAccountTypes", &true.into(), "false: accounts are for Redfish and its page"),
        );
    }
}

/// What a PATCH changes.
pub(super) fn change_of(mut input: Input, before: &Account, current: &Value) -> Result<AccountChange, Problem> {
    let locked = input.flag("Locked");
    if locked == Some(true) {
        let accepted = "false: only failed logins lock an account; disable it to keep its user out";
        input.mistake("Locked", Message::property_value("Locked", &true.into(), accepted));
    }
    types(&mut input);
    let change = AccountChange {
        name: input.text("UserName"),
        password: input.secret("Password").map(|mut password| mem::take(&mut *password)),
        role: input.one_of("RoleId", &ROLES),
        reach: reach(&mut input, &before.reach),
        enabled: input.flag("Enabled"),
        must_change_password: input.flag("PasswordChangeRequired"),
        unlock: locked == Some(false),
    };
    input.finish(Some(current))?;
    Ok(change)
}

/// What a new account is, for people.
pub(super) fn describe_new(account: &Account) -> String {
    let Account { name, role, reach, .. } = account;
    let seen = if reach.is_everything() { String::new() } else { format!(" that sees {reach}") };
    format!("account {name} was added, as {role}{seen}")
}

/// What a change was, for people.
pub(super) fn describe_change(before: &Account, after: &Account, change: &AccountChange) -> String {
    let mut what = Vec::new();
    if before.name != after.name {
        what.push(format!("is called {} now", after.name));
    }
    if change.password.is_some() {
        what.push("has another password".to_owned());
    }
    if before.role != after.role {
        what.push(format!("is {} now", after.role));
    }
    if before.reach != after.reach {
        what.push(format!("sees {} now", after.reach));
    }
    if before.enabled != after.enabled {
        what.push(if after.enabled { "is enabled" } else { "is disabled" }.to_owned());
    }
    if before.must_change_password != after.must_change_password && after.must_change_password {
        what.push("has to change the password".to_owned());
    }
    if before.locked && !after.locked {
        what.push("is not locked any more".to_owned());
    }
    let what = if what.is_empty() { "was written as it is".to_owned() } else { what.join(", ") };
    format!("account {} {what}", before.name)
}

/// `Role`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RoleResource {
    #[serde(flatten)]
    head: Head,
    role_id: &'static str,
    is_predefined: bool,
    restricted: bool,
    assigned_privileges: Vec<&'static str>,
}

impl RoleResource {
    pub(super) fn new(role: Role) -> Self {
        let description = match role {
            Role::Administrator => "Everything",
            Role::Operator => "Changes of what is served, not of who may change it",
            Role::ReadOnly => "Looking",
        };
        Self {
            head: Head::new(AccountPlace::Role(role.name().to_owned()), "#Role.v1_3_3.Role", role.name(), description),
            role_id: role.name(),
            is_predefined: true,
            restricted: false,
            assigned_privileges: role.privileges().iter().map(|privilege: &Privilege| privilege.name()).collect(),
        }
    }
}
