//! Addresses of accounts and roles.

use ebof_access::{Privilege, User};
use http::Method;

use super::{Address, GET_POST, PATCH, PATCH_DELETE, READ};

/// Addresses below `/redfish/v1/AccountService`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AccountPlace {
    /// The service.
    Service,
    /// All accounts.
    Accounts,
    /// An account, by its number.
    Account(String),
    /// All roles.
    Roles,
    /// A role, by its name.
    Role(String),
}

impl Address for AccountPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        Some(match segments {
            ["AccountService"] => Self::Service,
            ["AccountService", "Accounts"] => Self::Accounts,
            ["AccountService", "Accounts", id] => Self::Account((*id).to_owned()),
            ["AccountService", "Roles"] => Self::Roles,
            ["AccountService", "Roles", id] => Self::Role((*id).to_owned()),
            _ => return None,
        })
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("AccountService", "AccountService"),
            ("ManagerAccountCollection", "AccountService/Accounts"),
            ("ManagerAccount", "AccountService/Accounts/{ManagerAccountId}"),
            ("RoleCollection", "AccountService/Roles"),
            ("Role", "AccountService/Roles/{RoleId}"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        let below: &[&str] = match self {
            Self::Service => &[],
            Self::Accounts => &["Accounts"],
            Self::Account(id) => &["Accounts", id],
            Self::Roles => &["Roles"],
            Self::Role(id) => &["Roles", id],
        };
        [&["AccountService"], below].concat()
    }

    fn methods(&self) -> &'static [Method] {
        match self {
            Self::Service => PATCH,
            Self::Accounts => GET_POST,
            Self::Account(_) => PATCH_DELETE,
            Self::Roles | Self::Role(_) => READ,
        }
    }

    fn privilege(&self, method: &Method) -> Option<Privilege> {
        Some(match (self, method) {
            (Self::Service | Self::Accounts | Self::Roles | Self::Role(_), &Method::GET) => Privilege::Login,
            _ => Privilege::ConfigureUsers,
        })
    }

    /// Their own accounts are everybody's.
    fn permits(&self, method: &Method, user: &User) -> bool {
        let is_own = matches!(self, Self::Account(id) if *id == user.account.to_string());
        let is_by_self = is_own && matches!(*method, Method::GET | Method::PATCH) && user.may(Privilege::ConfigureSelf);
        is_by_self || self.privilege(method).is_none_or(|privilege| user.may(privilege))
    }
}
