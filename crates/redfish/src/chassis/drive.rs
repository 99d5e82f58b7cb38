//! `Drive`.

use ebof_manage::enclosure::DriveObject;
use serde::Serialize;

use super::ChassisPlace;
use crate::head::{Head, Health, Status};

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Drive {
    #[serde(flatten)]
    head: Head,
    manufacturer: &'static str,
    model: &'static str,
    serial_number: String,
    capacity_bytes: u64,
    media_type: &'static str,
    protocol: &'static str,
    status: Status,
}

impl Drive {
    pub(super) fn new(drive: &DriveObject) -> Self {
        let health = if drive.critical_warning == 0 { Health::OK } else { Health::Critical };
        Self {
            head: Head::new(
                ChassisPlace::Drive(drive.name.clone()),
                "#Drive.v1_22_0.Drive",
                drive.name.clone(),
                "An NVMe drive of the box",
            ),
            manufacturer: "ebof",
            model: "ebof",
            serial_number: drive.serial.clone(),
            capacity_bytes: drive.capacity_bytes,
            media_type: "SSD",
            protocol: "NVMeOverFabrics",
            status: Status::enabled(health),
        }
    }
}
