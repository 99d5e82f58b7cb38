//! How much of a target an account sees: everything, or some drives and subsystems. What these are
//! is known to whoever serves them; here they are names.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::role::Role;

/// The most drives, and the most subsystems, of an account.
pub(crate) const NAMES_MAX: usize = 256;

/// The longest name of one, bytes: that of an NQN.
pub(crate) const NAME_BYTES_MAX: usize = 223;

/// What an account sees of a target, and may change as its role allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccountReach {
    /// The whole target.
    #[default]
    Everything,
    /// These drives and subsystems, and nothing else. It sees nothing where both are empty.
    Only {
        /// Names of drives.
        #[serde(default)]
        drives: BTreeSet<String>,
        /// NQNs of subsystems.
        #[serde(default)]
        subsystems: BTreeSet<String>,
    },
}

/// Why an account may not have a reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beyond {
    Administrator,
    Names,
}

impl AccountReach {
    /// Only these drives and subsystems.
    #[must_use]
    pub fn only(drives: impl IntoIterator<Item = String>, subsystems: impl IntoIterator<Item = String>) -> Self {
        Self::Only { drives: drives.into_iter().collect(), subsystems: subsystems.into_iter().collect() }
    }

    /// Whether it has no limits.
    #[must_use]
    pub const fn is_everything(&self) -> bool {
        matches!(self, Self::Everything)
    }

    /// Whether an account of this role may have it.
    pub(crate) fn check(&self, role: Role) -> Result<(), Beyond> {
        let Self::Only { drives, subsystems } = self else { return Ok(()) };
        if role == Role::Administrator {
            return Err(Beyond::Administrator);
        }
        let is_name = |name: &String| {
            !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(|c: char| c.is_control())
        };
        let is_good = |names: &BTreeSet<String>| names.len() <= NAMES_MAX && names.iter().all(is_name);
        if is_good(drives) && is_good(subsystems) { Ok(()) } else { Err(Beyond::Names) }
    }
}

/// `everything`, `d3, nqn.2014-08.org.example:a`, `nothing`
impl fmt::Display for AccountReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Only { drives, subsystems } = self else { return f.write_str("everything") };
        let names: Vec<&str> = drives.iter().chain(subsystems).map(String::as_str).collect();
        f.write_str(&if names.is_empty() { "nothing".to_owned() } else { names.join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_administrator_is_not_limited_and_names_are_names() {
        let only = |drive: &str| AccountReach::only([drive.to_owned()], []);
        for role in Role::ALL {
            assert_eq!(AccountReach::Everything.check(role), Ok(()));
        }
        assert_eq!(only("d3").check(Role::Administrator), Err(Beyond::Administrator));
        assert_eq!(only("d3").check(Role::Operator), Ok(()));
        for bad in ["", "d\n3", &"d".repeat(224)] {
            assert_eq!(only(bad).check(Role::ReadOnly), Err(Beyond::Names), "{bad:?}");
        }
        let many = AccountReach::only([], (0..=NAMES_MAX).map(|number| number.to_string()));
        assert_eq!(many.check(Role::ReadOnly), Err(Beyond::Names));
    }

    #[test]
    fn what_is_stored_is_the_same_when_read() {
        for reach in [
            AccountReach::Everything,
            AccountReach::only([], []),
            AccountReach::only(["d3".to_owned()], ["nqn.x".to_owned()]),
        ] {
            let text = serde_json::to_string(&reach).unwrap();
            assert_eq!(serde_json::from_str::<AccountReach>(&text).unwrap(), reach, "{text}");
        }
    }
}
