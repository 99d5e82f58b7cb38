//! Which drive and function a subsystem belongs to, and what objects that have figures and events
//! are called.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebof_manage::history::{SeriesKind, SeriesName};
use ebof_nvme::Nqn;

use super::Shared;
use crate::drives::DriveActor;
use crate::observe::stats::Series;

/// Which drive and function a subsystem is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfDrive {
    pub(crate) drive: String,
    /// `vf2`, or `pf` for the subsystem of the drive itself.
    pub(crate) function: String,
}

/// Drives by their subsystems.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners {
    /// The name of each, and whether it has functions.
    drives: BTreeMap<Nqn, (String, bool)>,
}

impl Owners {
    /// Those of a target now.
    pub(crate) fn from_shared(shared: &Shared) -> Self {
        let drive = |(nqn, actor): (Nqn, Arc<DriveActor>)| (nqn, (actor.name(), !actor.view().functions.is_empty()));
        Self { drives: shared.drives.actors().into_iter().map(drive).collect() }
    }

    /// Which drive and function a subsystem is of; `None` if it is no drive's.
    pub(crate) fn owner(&self, subsystem: &str) -> Option<OfDrive> {
        let drive = |nqn: &str| Some(self.drives.get(&Nqn::parse(nqn).ok()?)?.0.clone());
        if let Some(drive) = drive(subsystem) {
            return Some(OfDrive { drive, function: "pf".to_owned() });
        }
        let (nqn, number) = subsystem.rsplit_once(":vf")?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then_some(OfDrive { drive: drive(nqn)?, function: format!("vf{number}") })
    }

    /// The name of a subsystem elsewhere: `d3`, `d3/vf2`, or its NQN.
    pub(crate) fn object(&self, subsystem: &str) -> String {
        match self.owner(subsystem) {
            Some(OfDrive { drive, function }) if function == "pf" => drive,
            Some(OfDrive { drive, function }) => format!("{drive}/{function}"),
            None => subsystem.to_owned(),
        }
    }

    fn has_functions(&self, drive: &str) -> bool {
        self.drives.values().any(|(name, has_functions)| name == drive && *has_functions)
    }

    /// The objects that a series of counters is of.
    pub(crate) fn objects(&self, series: &Series) -> Vec<SeriesName> {
        let mut objects = vec![SeriesName::target(), SeriesKind::Port.named(&series.port)];
        let owner = self.owner(&series.subsystem);
        if series.nsid != 0 {
            let of = owner.as_ref().map_or(series.subsystem.as_str(), |owner| &owner.drive);
            objects.push(SeriesKind::Namespace.named(format!("{of}/ns{}", series.nsid)));
        }
        if !series.host.is_empty() {
            objects.push(SeriesKind::Host.named(&series.host));
        }
        if let Some(OfDrive { drive, function }) = owner {
            if self.has_functions(&drive) {
                objects.push(SeriesKind::Function.named(format!("{drive}/{function}")));
            }
            objects.push(SeriesKind::Drive.named(drive));
        }
        objects
    }
}
