//! The box: `/redfish/v1/Chassis/enclosure` and what is in it.

mod drive;
mod enclosure;

use ebof_manage::enclosure::DriveObject;
use serde_json::Value;

use crate::area::Area;
use crate::head::{Collection, json};
use crate::message::Problem;
use crate::place::Place;
use crate::view::View;
use drive::Drive;
use enclosure::Chassis;

/// The identifier of the one chassis.
const ENCLOSURE: &str = "enclosure";

/// Addresses below `/redfish/v1/Chassis`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ChassisPlace {
    /// All chassis.
    Collection,
    /// The enclosure.
    Enclosure,
    /// Its drives.
    Drives,
    /// A drive.
    Drive(String),
}

impl Area for ChassisPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        Some(match segments {
            ["Chassis"] => Self::Collection,
            ["Chassis", ENCLOSURE] => Self::Enclosure,
            ["Chassis", ENCLOSURE, "Drives"] => Self::Drives,
            ["Chassis", ENCLOSURE, "Drives", drive] => Self::Drive((*drive).to_owned()),
            _ => return None,
        })
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("ChassisCollection", "Chassis"),
            ("Chassis", "Chassis/enclosure"),
            ("DriveCollection", "Chassis/enclosure/Drives"),
            ("Drive", "Chassis/enclosure/Drives/{DriveId}"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        let below: &[&str] = match self {
            Self::Collection => return vec!["Chassis"],
            Self::Enclosure => &[],
            Self::Drives => &["Drives"],
            Self::Drive(drive) => &["Drives", drive],
        };
        [&["Chassis", ENCLOSURE], below].concat()
    }

    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Collection => json(&Collection::new(Self::Collection, "Chassis", "Chassis", [Self::Enclosure])),
            Self::Enclosure => json(&Chassis::new(view)),
            Self::Drives => {
                let drives = view.inventory().drives.iter().map(|drive| Self::Drive(drive.name.clone()));
                json(&Collection::new(Self::Drives, "Drive", "Drives", drives))
            }
            Self::Drive(id) => json(&Drive::new(self.drive(view, id)?)),
        })
    }
}

impl ChassisPlace {
    fn drive<'v>(&self, view: &'v View<'_>, id: &str) -> Result<&'v DriveObject, Problem> {
        view.drive(id).ok_or_else(|| Problem::not_found(&Place::from(self.clone())))
    }
}
