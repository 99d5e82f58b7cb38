//! Which files a target makes that are missing: what was served once is not made again unasked. An
//! empty file in the place of one whose file system is not mounted would have the host's name for
//! the lost one, and the host would write into it.

use std::collections::BTreeSet;

use ebof_manage::{Config, Drive};

/// Which files a target makes that are missing and have a size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Making {
    /// All.
    #[default]
    All,
    /// All but these paths, which were served before.
    AllBut(BTreeSet<String>),
    /// None: whether they were served before is not known.
    Nothing,
}

impl Making {
    /// All that `configs` do not have.
    pub fn all_but<'c>(configs: impl IntoIterator<Item = &'c Config>) -> Self {
        Self::AllBut(configs.into_iter().flat_map(backings).filter_map(Drive::path).map(str::to_owned).collect())
    }

    /// Whether what is missing at `path` is made.
    #[must_use]
    pub fn allows(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::AllBut(served) => !served.contains(path),
            Self::Nothing => false,
        }
    }
}

/// What a configuration stores data in, disabled objects included.
pub fn backings(config: &Config) -> impl Iterator<Item = &Drive> {
    let plain = config.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
    plain.map(|namespace| &namespace.drive).chain(config.drives.iter().map(|drive| &drive.backing))
}
