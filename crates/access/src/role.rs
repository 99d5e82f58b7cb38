//! The roles of accounts and their privileges, which are Redfish's predefined ones (DSP0266,
//! Privilege model).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What an account is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Everything.
    Administrator,
    /// Changes of what is served, not of who may change it.
    Operator,
    /// Looking.
    ReadOnly,
}

/// What a resource requires of those who use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Privilege {
    /// Log in and read.
    Login,
    /// Change the settings of the manager: network protocols, certificates.
    ConfigureManager,
    /// Change accounts.
    ConfigureUsers,
    /// Change one's own password.
    ConfigureSelf,
    /// Change what is managed: drives, ports, functions.
    ConfigureComponents,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Administrator, Self::Operator, Self::ReadOnly];

    /// Its privileges.
    #[must_use]
    pub const fn privileges(self) -> &'static [Privilege] {
        use Privilege::{ConfigureComponents, ConfigureManager, ConfigureSelf, ConfigureUsers, Login};
        match self {
            Self::Administrator => &[Login, ConfigureManager, ConfigureUsers, ConfigureSelf, ConfigureComponents],
            Self::Operator => &[Login, ConfigureSelf, ConfigureComponents],
            Self::ReadOnly => &[Login, ConfigureSelf],
        }
    }

    /// Its name, which is also Redfish's `RoleId`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Administrator => "Administrator",
            Self::Operator => "Operator",
            Self::ReadOnly => "ReadOnly",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No role has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such role: accepted are Administrator, Operator and ReadOnly")]
pub struct NoSuchRole;

impl FromStr for Role {
    type Err = NoSuchRole;

    fn from_str(name: &str) -> Result<Self, NoSuchRole> {
        Self::ALL.into_iter().find(|role| role.name() == name).ok_or(NoSuchRole)
    }
}

impl Privilege {
    /// Its name, as Redfish's `PrivilegeType` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Login => "Login",
            Self::ConfigureManager => "ConfigureManager",
            Self::ConfigureUsers => "ConfigureUsers",
            Self::ConfigureSelf => "ConfigureSelf",
            Self::ConfigureComponents => "ConfigureComponents",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_includes_the_next_one() {
        let [all, some, few] = Role::ALL.map(Role::privileges);
        assert!(all.len() == 5 && some.len() == 3 && few.len() == 2);
        assert!(few.iter().all(|it| some.contains(it)) && some.iter().all(|it| all.contains(it)));
    }

    #[test]
    fn names_are_those_that_are_parsed_and_stored() {
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{role}\""));
        }
        assert_eq!("administrator".parse::<Role>(), Err(NoSuchRole));
        for privilege in Role::Administrator.privileges() {
            assert_eq!(serde_json::to_string(privilege).unwrap(), format!("\"{}\"", privilege.name()));
        }
    }
}
