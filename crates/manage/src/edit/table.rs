//! The kinds of objects, and the keys that each has.

use crate::config::{Host, ManagedDrive, Namespace, Port, Subsystem, TargetOptions};
use crate::diagnostic::nearest::names;
use crate::keys::Key;
use crate::manual::kind_of;

names! {
    /// A kind of objects.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        /// The target as a whole.
        Target = "target";
        /// Ports.
        Port = "port";
        /// Hosts.
        Host = "host";
        /// Drives that hosts manage.
        Drive = "drive";
        /// Subsystems.
        Subsystem = "subsystem";
        /// Namespaces of subsystems without a drive.
        Namespace = "namespace";
    }
}

impl Kind {
    /// The key by which its objects are known.
    pub(super) const fn named_by(self) -> &'static str {
        match self {
            Self::Target => "",
            Self::Port | Self::Drive => "name",
            Self::Host | Self::Subsystem => "nqn",
            Self::Namespace => "nsid",
        }
    }

    /// Its keys, and the type of each as the manual calls it.
    pub(super) fn keys(self) -> Vec<(&'static str, &'static str)> {
        fn all<T>(keys: &[Key<T>]) -> Vec<(&'static str, &'static str)> {
            keys.iter().map(|key| (key.name, kind_of(&key.form))).collect()
        }
        match self {
            Self::Target => all(TargetOptions::KEYS),
            Self::Port => all(Port::KEYS),
            Self::Host => all(Host::KEYS),
            Self::Drive => all(ManagedDrive::KEYS),
            Self::Subsystem => all(Subsystem::KEYS),
            Self::Namespace => all(Namespace::KEYS),
        }
    }

    /// The type of a key, as the manual calls it; `None` if its objects have no such key.
    pub(super) fn form_of(self, key: &str) -> Option<&'static str> {
        self.keys().into_iter().find_map(|(known, form)| (known == key).then_some(form))
    }

    /// Whether its objects can be disabled.
    pub(super) const fn can_be_disabled(self) -> bool {
        matches!(self, Self::Port | Self::Subsystem | Self::Namespace)
    }
}
