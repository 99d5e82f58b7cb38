//! `target account` and `target certificate`: who manages a target over the network, and the
//! certificate that it shows them. The output is in `output::remote`.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;

use ebof_manage::api::{AccountLimits, AddAccount, ChangeAccount, ReplaceCertificate, RequestCertificate};
use ebof_manage::enclosure::Inventory;

use super::Outcome;
use crate::control::{ControlClient, password};
use crate::failure::Failure;
use crate::file::Kind;
use crate::global::Global;
use crate::output::remote::{AccountOutcome, ShownAccount, ShownAccounts, ShownCertificate, ShownRequest};
use crate::output::text::safe;
use crate::output::{say, show};

/// The largest file with certificates or a key.
const PEM_BYTES_MAX: u64 = 64 << 10;

/// What may be done with accounts.
#[derive(Clone, Debug, clap::Subcommand)]
pub(super) enum AccountAction {
    /// Show all accounts
    List,
    /// Add an account
    Add {
        /// The user name
        name: String,
        /// What it may do: Administrator (everything), Operator (change functions and drives) or
        /// `ReadOnly`
        #[arg(long, value_name = "ROLE", default_value = "ReadOnly")]
        role: String,
        /// Its user has to choose another password at the first login
        #[arg(long)]
        must_change_password: bool,
        #[command(flatten)]
        only: Only,
        #[command(flatten)]
        password: NewPassword,
    },
    /// Set the password of an account; its sessions end
    SetPassword {
        /// The user name
        name: String,
        /// Its user has to choose another password at the next login
        #[arg(long)]
        must_change_password: bool,
        #[command(flatten)]
        password: NewPassword,
    },
    /// Set the role of an account; its sessions end
    SetRole {
        /// The user name
        name: String,
        /// Administrator, Operator or `ReadOnly`
        role: String,
    },
    /// Set what an account sees and changes; its sessions end
    Limit {
        /// The user name
        name: String,
        #[command(flatten)]
        only: Only,
        /// The whole target
        #[arg(long, conflicts_with_all = ["drive", "subsystem"], required_unless_present_any = ["drive", "subsystem"])]
        everything: bool,
    },
    /// Let the user of an account log in again
    Enable {
        /// The user name
        name: String,
    },
    /// Keep the user of an account from logging in; its sessions end
    Disable {
        /// The user name
        name: String,
    },
    /// End the lockout after too many failed logins
    Unlock {
        /// The user name
        name: String,
    },
    /// Remove an account; its sessions end
    Remove {
        /// The user name
        name: String,
    },
}

/// What an account is limited to.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Only {
    /// See and change this drive, with its subsystem, and nothing else; several times for several
    #[arg(long, value_name = "DRIVE")]
    drive: Vec<String>,
    /// See and change this subsystem, with its drive, and nothing else; several times for several
    #[arg(long, value_name = "NQN")]
    subsystem: Vec<String>,
}

impl Only {
    /// `None` where nothing is named.
    fn limits(self) -> Option<AccountLimits> {
        let Self { drive: drives, subsystem: subsystems } = self;
        (!drives.is_empty() || !subsystems.is_empty()).then_some(AccountLimits { drives, subsystems })
    }
}

/// Where a new password comes from.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct NewPassword {
    /// A file whose first line is the new password [default: it is asked for]
    #[arg(long, value_name = "FILE")]
    new_password_file: Option<PathBuf>,
}

/// What may be done with the certificate of HTTPS.
#[derive(Clone, Debug, clap::Subcommand)]
pub(super) enum CertificateAction {
    /// Show the certificate in force
    Show,
    /// Have the target make a key, which stays there, and a request (CSR) for an authority
    Request {
        /// The name by which clients reach the target
        common_name: String,
        /// All its names and addresses [default: the common name]
        #[arg(long, value_name = "NAME")]
        name: Vec<String>,
        /// The organization
        #[arg(long, value_name = "TEXT")]
        organization: Option<String>,
        /// The country, two letters
        #[arg(long, value_name = "XX")]
        country: Option<String>,
    },
    /// Put another certificate in force, for new connections
    Replace {
        /// The certificate in PEM, those of its issuers behind it
        certificate: PathBuf,
        /// Its key in PEM [default: the one of the last request, or of the certificate in force]
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
}

impl NewPassword {
    fn read(&self, name: &str) -> Result<String, Failure> {
        if let Some(file) = &self.new_password_file {
            return password::of_file(file);
        }
        const INSTEAD: &str = "say --new-password-file FILE";
        let first = password::ask(&format!("New password of {name}: "), INSTEAD)?;
        if password::ask("Once more: ", INSTEAD)? == first {
            return Ok(first);
        }
        Err(Failure::new("not-confirmed", "the passwords differ, and nothing was changed", "type the same one twice"))
    }
}

impl AccountAction {
    pub(super) fn run(self, control: &ControlClient, global: &Global) -> Outcome {
        let change = ChangeAccount::default;
        let (outcome, account) = match self {
            Self::List => {
                show(global, &ShownAccounts(control.accounts()?))?;
                return Ok(ExitCode::SUCCESS);
            }
            Self::Add { name, role, must_change_password, only, password } => {
                let password = password.read(&name)?;
                let new = AddAccount { name, password, role, only: only.limits(), must_change_password };
                (AccountOutcome::Added, control.add_account(&new)?)
            }
            Self::SetPassword { name, must_change_password, password } => {
                let must_change_password = must_change_password.then_some(true);
                let change = ChangeAccount { password: Some(password.read(&name)?), must_change_password, ..change() };
                (AccountOutcome::Changed, control.change_account(&name, &change)?)
            }
            Self::SetRole { name, role } => {
                let change = ChangeAccount { role: Some(role), ..change() };
                (AccountOutcome::Changed, control.change_account(&name, &change)?)
            }
            Self::Limit { name, only, everything } => {
                let change = ChangeAccount { only: only.limits(), everything, ..change() };
                (AccountOutcome::Changed, control.change_account(&name, &change)?)
            }
            Self::Enable { name } => {
                let change = ChangeAccount { enabled: Some(true), ..change() };
                (AccountOutcome::Changed, control.change_account(&name, &change)?)
            }
            Self::Disable { name } => {
                let change = ChangeAccount { enabled: Some(false), ..change() };
                (AccountOutcome::Changed, control.change_account(&name, &change)?)
            }
            Self::Unlock { name } => {
                let change = ChangeAccount { unlock: true, ..change() };
                (AccountOutcome::Changed, control.change_account(&name, &change)?)
            }
            Self::Remove { name } => (AccountOutcome::Removed, control.remove_account(&name)?),
        };
        if let Some(limits) = &account.only {
            remark_on(limits, control);
        }
        show(global, &ShownAccount { outcome, account })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Says which of these there are not: they are seen as soon as there are any, and may be spelt
/// wrongly.
fn remark_on(limits: &AccountLimits, control: &ControlClient) {
    // The limits are in force; without the list nothing is said.
    let Ok(there) = control.inventory() else { return };
    for missing in missing(limits, &there) {
        say(&format!("note: the target has no {} now; the account sees it when there is one", safe(&missing)));
    }
}

/// What of these a target does not have.
fn missing(limits: &AccountLimits, there: &Inventory) -> Vec<String> {
    let has_drive = |name: &str| there.drives.iter().any(|drive| drive.name == name);
    let of_drives = there.drives.iter().flat_map(|drive| {
        let functions = drive.functions.iter().map(|function| &function.nqn);
        functions.chain([&drive.nqn])
    });
    let nqns: HashSet<&String> = of_drives.chain(there.subsystems.iter().map(|subsystem| &subsystem.nqn)).collect();
    let drives = limits.drives.iter().filter(|name| !has_drive(name)).map(|name| format!("drive {name}"));
    let subsystems = limits.subsystems.iter().filter(|nqn| !nqns.contains(nqn)).map(|nqn| format!("subsystem {nqn}"));
    drives.chain(subsystems).collect()
}

impl CertificateAction {
    pub(super) fn run(self, control: &ControlClient, global: &Global) -> Outcome {
        let read = |file: &PathBuf, what: &str| crate::file::read_text(file, what, PEM_BYTES_MAX, Kind::Any);
        match self {
            Self::Show => show(global, &ShownCertificate(control.certificate()?))?,
            Self::Request { common_name, name, organization, country } => {
                let alternative_names = name;
                let request = RequestCertificate {
                    common_name,
                    alternative_names,
                    organization,
                    country,
                    ..RequestCertificate::default()
                };
                show(global, &ShownRequest(control.request_certificate(&request)?))?;
            }
            Self::Replace { certificate, key } => {
                let certificate = read(&certificate, "the certificate")?;
                let key = key.as_ref().map(|key| read(key, "the key")).transpose()?;
                let replaced = control.replace_certificate(&ReplaceCertificate { certificate, key })?;
                show(global, &ShownCertificate(replaced))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
