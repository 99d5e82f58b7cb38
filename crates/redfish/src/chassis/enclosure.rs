//! `Chassis`: the enclosure.

use serde::Serialize;

use super::ChassisPlace;
use crate::head::{Head, Health, Link, Status, link};
use crate::view::View;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Chassis {
    #[serde(flatten)]
    head: Head,
    chassis_type: &'static str,
    manufacturer: &'static str,
    model: &'static str,
    serial_number: String,
    #[serde(rename = "UUID")]
    uuid: String,
    status: Status,
    drives: Link,
}

impl Chassis {
    pub(super) fn new(view: &View<'_>) -> Self {
        let unwell = view.inventory().drives.iter().any(|drive| drive.critical_warning != 0);
        let health = if unwell { Health::Warning } else { Health::OK };
        Self {
            head: Head::new(
                ChassisPlace::Enclosure,
                "#Chassis.v1_28_0.Chassis",
                "Enclosure",
                "The box of drives that this target serves",
            ),
            chassis_type: "StorageEnclosure",
            manufacturer: "ebof",
            model: "ebof",
            serial_number: view.parts.uuid.simple().to_string(),
            uuid: view.parts.uuid.to_string(),
            status: Status::enabled(health),
            drives: link(ChassisPlace::Drives),
        }
    }
}
