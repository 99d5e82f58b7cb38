//! `AccountService`.

use ebof_access::{PASSWORD_LENGTH_MAX, PASSWORD_LENGTH_MIN};
use serde::Serialize;

use crate::managed::view::View;
use crate::place::AccountPlace;
use crate::response::head::{Head, Link, Status, link};

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AccountService {
    #[serde(flatten)]
    head: Head,
    service_enabled: bool,
    status: Status,
    min_password_length: usize,
    max_password_length: usize,
    account_lockout_threshold: u32,
    account_lockout_duration: u32,
    account_lockout_counter_reset_after: u32,
    account_lockout_counter_reset_enabled: bool,
    supported_account_types: [&'static str; 2],
    #[serde(rename = "HTTPBasicAuth")]
    basic_auth: &'static str,
    #[serde(rename = "LocalAccountAuth")]
    local_auth: &'static str,
    accounts: Link,
    roles: Link,
}

impl AccountService {
    pub(super) fn new(view: &View<'_>) -> Self {
        let settings = view.parts.access.settings();
        Self {
            head: Head::new(
                AccountPlace::Service,
                "#AccountService.v1_18_0.AccountService",
                "Account Service",
                "Who may manage this target, and how failed logins are answered",
            ),
            service_enabled: true,
            status: Status::OK,
            min_password_length: PASSWORD_LENGTH_MIN,
            max_password_length: PASSWORD_LENGTH_MAX,
            account_lockout_threshold: settings.lockout_threshold,
            account_lockout_duration: settings.lockout_duration_s,
            account_lockout_counter_reset_after: settings.lockout_reset_after_s,
            account_lockout_counter_reset_enabled: true,
            supported_account_types: super::account::TYPES,
            basic_auth: if settings.basic_auth { "Enabled" } else { "Disabled" },
            local_auth: "Enabled",
            accounts: link(AccountPlace::Accounts),
            roles: link(AccountPlace::Roles),
        }
    }
}
