//! The views of accounts, and of the certificate of HTTPS.

use ebof_manage::api::{AccountLimits, AccountStatus, Accounts, CertificateRequest, CertificateStatus};

use super::View;
use super::json::Object;
use super::text::{safe, table};

/// All accounts.
pub(crate) struct ShownAccounts(pub(crate) Accounts);

/// An account, and what became of it.
pub(crate) struct ShownAccount {
    pub(crate) outcome: AccountOutcome,
    pub(crate) account: AccountStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountOutcome {
    Added,
    Changed,
    Removed,
}

/// The certificate in force.
pub(crate) struct ShownCertificate(pub(crate) CertificateStatus);

/// A request for a certificate.
pub(crate) struct ShownRequest(pub(crate) CertificateRequest);

impl View for ShownAccounts {
    fn text(&self, _verbose: bool) -> String {
        let rows: Vec<Vec<String>> = self.0.accounts.iter().map(row).collect();
        table(&[("USER", 4), ("ROLE", 4), ("SEES", 4), ("STATE", 5), ("SESSIONS", 8)], &rows)
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("target-accounts", 1).with("accounts", value(&self.0.accounts))
    }
}

fn row(account: &AccountStatus) -> Vec<String> {
    let AccountStatus { name, role, sessions, .. } = account;
    let name = safe(name).to_string();
    vec![name, role.clone(), seen(account), state(account).to_owned(), sessions.to_string()]
}

/// What its user sees and changes of the target.
fn seen(account: &AccountStatus) -> String {
    let Some(AccountLimits { drives, subsystems }) = &account.only else { return "everything".to_owned() };
    let names: Vec<&str> = drives.iter().chain(subsystems).map(String::as_str).collect();
    if names.is_empty() { "nothing".to_owned() } else { safe(&names.join(", ")).to_string() }
}

fn state(account: &AccountStatus) -> &'static str {
    match account {
        AccountStatus { enabled: false, .. } => "disabled",
        AccountStatus { locked: true, .. } => "locked",
        AccountStatus { must_change_password: true, .. } => "must change its password",
        _ => "enabled",
    }
}

impl View for ShownAccount {
    fn text(&self, _verbose: bool) -> String {
        let Self { outcome, account } = self;
        let name = safe(&account.name);
        match outcome {
            AccountOutcome::Removed => format!("account {name} is removed\n"),
            _ => format!("account {name}: {}, sees {}, {}\n", account.role, seen(account), state(account)),
        }
    }

    fn json(&self, _verbose: bool) -> Object {
        let outcome = match self.outcome {
            AccountOutcome::Added => "added",
            AccountOutcome::Changed => "changed",
            AccountOutcome::Removed => "removed",
        };
        Object::document("target-account", 1).with("outcome", outcome).with("account", value(&self.account))
    }
}

impl View for ShownCertificate {
    fn text(&self, verbose: bool) -> String {
        let CertificateStatus {
            subject, issuer, serial_number, valid_from, valid_to, fingerprint, self_made, pem, ..
        } = &self.0;
        let issuer =
            if *self_made { "the target itself, which renews it".to_owned() } else { safe(issuer).to_string() };
        let (subject, from, to) = (safe(subject), date(*valid_from), date(*valid_to));
        let mut text = format!(
            "subject  {subject}\nissuer   {issuer}\nserial   {serial_number}\nvalid    {from} to {to}\nSHA-256  {fingerprint}\n"
        );
        if verbose {
            text += pem;
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("target-certificate", 1).with("certificate", value(&self.0))
    }
}

impl View for ShownRequest {
    fn text(&self, _verbose: bool) -> String {
        self.0.request.clone()
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("target-certificate-request", 1).with("request", self.0.request.as_str())
    }
}

fn value(of: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(of).unwrap_or_default()
}

/// A day in UTC, as in ISO 8601, of seconds since 1970.
fn date(seconds: i64) -> String {
    // The civil calendar in eras of 400 years, which begin in March.
    let days = seconds.div_euclid(86_400) + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_750_000_000, "2025-06-15"),
            (4_107_542_399, "2100-02-28"),
            (4_107_542_400, "2100-03-01"),
            (-1, "1969-12-31"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }

    #[test]
    fn accounts_are_shown_with_what_keeps_their_users_out() {
        let account = AccountStatus {
            id: "1".to_owned(),
            name: "admin".to_owned(),
            role: "Administrator".to_owned(),
            only: None,
            enabled: true,
            locked: false,
            must_change_password: true,
            password_set_s: 0,
            sessions: 2,
        };
        let only = AccountLimits { drives: vec!["d3".to_owned()], subsystems: Vec::new() };
        let disabled =
            AccountStatus { name: "jo".to_owned(), only: Some(only), enabled: false, locked: true, ..account.clone() };
        let text = ShownAccounts(Accounts { schema: 1, accounts: vec![account.clone(), disabled] }).text(false);
        assert!(
            text.contains("must change its password") && text.contains(" d3 ") && text.contains("disabled"),
            "{text}"
        );
        let shown = |outcome| ShownAccount { outcome, account: account.clone() }.text(false);
        assert_eq!(shown(AccountOutcome::Removed), "account admin is removed\n");
        assert_eq!(
            shown(AccountOutcome::Added),
            "account admin: Administrator, sees everything, must change its password\n"
        );
    }
}
