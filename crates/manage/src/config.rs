//! The desired state of a target: ports, hosts, subsystems, namespaces, drives and global options.
//!
//! Owns the types and their keys: names, ranges, defaults, and what the manual says of them. A
//! [`Config`] that came from [`load`](crate::load()) is consistent: names are unique, references
//! point somewhere, numbers are within limits. Reading and checking is in `read`, the import of the
//! Linux target's files in [`crate::load::nvmetcli`].

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

mod ana;
mod derived;
mod dhchap;
mod drive;
mod host;
pub mod limits;
mod measures;
mod namespace;
mod numbers;
mod port;
mod referral;
mod subsystem;
mod target;
mod written;

pub use ana::{AnaState, AnaStates};
pub(crate) use derived::digest;
pub use derived::{default_serial, default_uuid};
pub use dhchap::{DhchapGroup, DhchapHash};
pub use drive::{AnaOnFailure, Attach, DriveProfile, ManagedDrive, WordsError};
pub(crate) use drive::{FORGETFUL, READ_ONLY, WITHOUT_SIZE, is_drive_name};
pub use host::{Host, KeyPlace};
pub use measures::{Measure, Measures, NoMeasure};
pub use namespace::{BlockSize, Eui64, Namespace, Nguid};
pub use numbers::Assigned;
pub use port::{Digest, Port, PortTls, TlsRecords};
pub use referral::{DISCOVERY_PORT, Referral};
pub use subsystem::{IdentityRule, Security, Subsystem};
pub use target::{NO_CONTROL, NO_STATE, SLOW_THRESHOLD, TargetOptions};

/// The configuration of a target. [`load`](crate::load()) reads its serialized form to the same
/// value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Config {
    /// Options of the whole target.
    pub target: TargetOptions,
    /// The ports.
    pub ports: Vec<Port>,
    /// The known hosts.
    pub hosts: Vec<Host>,
    /// The drives that hosts manage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drives: Vec<ManagedDrive>,
    /// The subsystems.
    pub subsystems: Vec<Subsystem>,
}

impl Config {
    /// Puts `base`, usually the configuration file's directory, in front of every relative path. A
    /// path that is not UTF-8 after that stays as it is.
    pub fn rebase(&mut self, base: &Path) {
        let namespaces = self.subsystems.iter_mut().flat_map(|subsystem| &mut subsystem.namespaces);
        namespaces.for_each(|namespace| namespace.drive.rebase(base));
        self.drives.iter_mut().for_each(|drive| drive.rebase(base));
        self.hosts.iter_mut().for_each(|host| host.rebase(base));
        for port in &mut self.ports {
            let is_anonymous = port.name == port.listen.to_string();
            port.listen.rebase(base);
            if is_anonymous && !port.listen.is_network() {
                let name = port.listen.to_string();
                let subsystems = self.subsystems.iter_mut().flat_map(|subsystem| &mut subsystem.ports);
                subsystems.filter(|reached| **reached == port.name).for_each(|reached| reached.clone_from(&name));
                port.name = name;
            }
        }
        let target = &mut self.target;
        let paths = [(&mut target.control, NO_CONTROL), (&mut target.state, NO_STATE)];
        for (path, none) in paths {
            if let Some(path) = path.as_mut().filter(|path| *path != none)
                && let Some(joined) = base.join(&path).to_str()
            {
                *path = joined.to_owned();
            }
        }
        for path in &mut target.confine_paths {
            if let Some(joined) = base.join(&path).to_str() {
                *path = joined.to_owned();
            }
        }
    }

    /// Gives ports and namespaces without a number the one that they have in `current`: a port is
    /// identified by its address, a namespace by its drive. New ones get numbers that `current`
    /// does not use, as long as there are any, so that hosts do not take a new namespace for an old
    /// one.
    pub fn keep_numbers(&mut self, current: &Self) {
        numbers::keep_port_ids(&mut self.ports, &current.ports);
        for subsystem in &mut self.subsystems {
            if let Some(before) = current.subsystems.iter().find(|before| before.nqn == subsystem.nqn) {
                numbers::keep_nsids(&mut subsystem.namespaces, &before.namespaces);
            }
        }
    }

    /// The ports that listen.
    pub fn enabled_ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(|port| port.enabled)
    }

    /// The subsystems that are there for hosts.
    pub fn enabled_subsystems(&self) -> impl Iterator<Item = &Subsystem> {
        self.subsystems.iter().filter(|subsystem| subsystem.enabled)
    }

    /// Writes the configuration as TOML that [`load`](crate::load()) reads to the same value.
    ///
    /// # Errors
    /// Never for a value that [`load`](crate::load()) made; a value built by hand can hold what
    /// TOML cannot.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// The configuration in its JSON form: its tables by their keys.
    pub(crate) fn to_tables(&self) -> Map<String, Value> {
        let json = serde_json::to_value(self).expect("names, texts and numbers become JSON");
        let Value::Object(tables) = json else { unreachable!("a structure with fields becomes a table") };
        tables
    }
}
