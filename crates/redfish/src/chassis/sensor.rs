//! What is measured: sensors of the machine and of drives, `ThermalSubsystem`,
//! `EnvironmentMetrics`. There is a reading only where there is a sensor.

use ebof_manage::enclosure::{DriveObject, Fan, Temperature};
use serde::Serialize;
use serde_json::Number;

use super::metrics::celsius;
use crate::managed::view::View;
use crate::place::{ChassisPlace, Place};
use crate::response::head::{Head, Link, Status, link, links};

/// The identifiers of all sensors.
pub(super) fn all(view: &View<'_>) -> Vec<String> {
    let of_drives = with_sensor(view).map(|(id, _)| drive_sensor(id));
    view.names().sensors.iter().map(str::to_owned).chain(of_drives).collect()
}

/// The identifier of a drive's sensor: a drive is called by one that no sensor of the machine has.
fn drive_sensor(id: &str) -> String {
    format!("drive-{id}")
}

/// Drives that have a sensor.
fn with_sensor<'v>(view: &'v View<'_>) -> impl Iterator<Item = (&'v str, &'v DriveObject)> {
    view.drives().filter(|(_, drive)| drive.temperature_kelvin.is_some())
}

fn temperatures<'v>(view: &'v View<'_>) -> impl Iterator<Item = (&'v str, &'v Temperature)> {
    view.names().sensors.iter().zip(&view.inventory().sensors.temperatures)
}

/// Fans, each with its identifier, which is that of its sensor, too.
pub(super) fn fans<'v>(view: &'v View<'_>) -> impl Iterator<Item = (&'v str, &'v Fan)> {
    let sensors = &view.inventory().sensors;
    view.names().sensors.iter().skip(sensors.temperatures.len()).zip(&sensors.fans)
}

/// A temperature with all digits that there are.
fn degrees(millidegrees: i64) -> Option<Number> {
    let whole = Number::from(millidegrees / 1000);
    if millidegrees % 1000 == 0 {
        return Some(whole);
    }
    // At most 2^53 thousandths: exact to more digits than a sensor has.
    format!("{}.{:03}", millidegrees / 1000, millidegrees.unsigned_abs() % 1000)
        .parse()
        .ok()
        .map(|number: f64| if millidegrees < 0 && number > 0.0 { -number } else { number })
        .and_then(Number::from_f64)
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Sensor {
    #[serde(flatten)]
    head: Head,
    reading_type: &'static str,
    reading: Option<Number>,
    reading_units: &'static str,
    physical_context: &'static str,
    status: Status,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    related_item: Vec<Link>,
}

impl Sensor {
    pub(super) fn new(view: &View<'_>, id: &str) -> Option<Self> {
        if let Some((_, temperature)) = temperatures(view).find(|(own, _)| *own == id) {
            let reading = degrees(temperature.millidegrees_celsius);
            return Some(Self::with_reading(id, &temperature.name, TEMPERATURE, "Chassis", reading, None));
        }
        if let Some((_, fan)) = fans(view).find(|(own, _)| *own == id) {
            let of = ChassisPlace::Fan(id.to_owned());
            return Some(Self::with_reading(id, &fan.name, ROTATION, "Fan", Some(fan.rpm.into()), Some(of)));
        }
        let (drive_id, drive) = with_sensor(view).find(|(own, _)| drive_sensor(own) == id)?;
        let of = ChassisPlace::Drive(drive_id.to_owned());
        let reading = drive.temperature_kelvin.map(|kelvin| celsius(kelvin).into());
        Some(Self::with_reading(id, &format!("Drive {}", drive.name), TEMPERATURE, "StorageDevice", reading, Some(of)))
    }

    fn with_reading(
        id: &str,
        name: &str,
        (reading_type, reading_units): (&'static str, &'static str),
        physical_context: &'static str,
        reading: Option<Number>,
        item: Option<ChassisPlace>,
    ) -> Self {
        Self {
            head: Head::new(ChassisPlace::Sensor(id.to_owned()), "#Sensor.v1_12_0.Sensor", name, "A sensor of the box"),
            reading_type,
            reading,
            reading_units,
            physical_context,
            status: Status::OK,
            related_item: links(item),
        }
    }
}

/// Types of readings, with their units (UCUM).
const TEMPERATURE: (&str, &str) = ("Temperature", "Cel");
const ROTATION: (&str, &str) = ("Rotational", "{rev}/min");

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Thermal {
    #[serde(flatten)]
    head: Head,
    status: Status,
    fans: Link,
    thermal_metrics: Link,
}

impl Thermal {
    pub(super) fn new() -> Self {
        Self {
            head: Head::new(
                ChassisPlace::Thermal,
                "#ThermalSubsystem.v1_5_0.ThermalSubsystem",
                "Cooling",
                "Fans and temperatures of the box",
            ),
            status: Status::OK,
            fans: link(ChassisPlace::Fans),
            thermal_metrics: link(ChassisPlace::ThermalMetrics),
        }
    }
}

/// A reading with where it comes from: an excerpt of a sensor.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Excerpt {
    data_source_uri: Place,
    reading: Option<Number>,
    #[serde(rename = "SpeedRPM", skip_serializing_if = "Option::is_none")]
    speed_rpm: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_name: Option<String>,
}

impl Excerpt {
    fn temperature(id: &str, name: &str, reading: Option<Number>) -> Self {
        let device_name = Some(name.to_owned());
        Self { data_source_uri: ChassisPlace::Sensor(id.to_owned()).into(), reading, speed_rpm: None, device_name }
    }

    /// The reading would be a percentage, and how fast a fan can be is not known.
    fn fan(id: &str, fan: &Fan) -> Self {
        Self {
            data_source_uri: ChassisPlace::Sensor(id.to_owned()).into(),
            reading: None,
            speed_rpm: Some(fan.rpm),
            device_name: None,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ThermalMetrics {
    #[serde(flatten)]
    head: Head,
    temperature_readings_celsius: Vec<Excerpt>,
}

impl ThermalMetrics {
    pub(super) fn new(view: &View<'_>) -> Self {
        let of_box = temperatures(view).map(|(id, temperature)| {
            Excerpt::temperature(id, &temperature.name, degrees(temperature.millidegrees_celsius))
        });
        let of_drives = with_sensor(view).map(|(id, drive)| {
            let reading = drive.temperature_kelvin.map(|kelvin| celsius(kelvin).into());
            Excerpt::temperature(&drive_sensor(id), &format!("Drive {}", drive.name), reading)
        });
        Self {
            head: Head::new(
                ChassisPlace::ThermalMetrics,
                "#ThermalMetrics.v1_3_2.ThermalMetrics",
                "Temperatures",
                "All temperatures of the box",
            ),
            temperature_readings_celsius: of_box.chain(of_drives).collect(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct FanResource {
    #[serde(flatten)]
    head: Head,
    physical_context: &'static str,
    status: Status,
    speed_percent: Excerpt,
}

impl FanResource {
    pub(super) fn new(view: &View<'_>, id: &str) -> Option<Self> {
        let (_, fan) = fans(view).find(|(own, _)| *own == id)?;
        Some(Self {
            head: Head::new(ChassisPlace::Fan(id.to_owned()), "#Fan.v1_6_0.Fan", fan.name.clone(), "A fan of the box"),
            physical_context: "Chassis",
            status: Status::OK,
            speed_percent: Excerpt::fan(id, fan),
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Environment {
    #[serde(flatten)]
    head: Head,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature_celsius: Option<Excerpt>,
    #[serde(rename = "FanSpeedsPercent", skip_serializing_if = "Vec::is_empty")]
    fan_speeds: Vec<Excerpt>,
}

const ENVIRONMENT: &str = "#EnvironmentMetrics.v1_5_0.EnvironmentMetrics";

impl Environment {
    /// Of a drive with a sensor.
    pub(super) fn of_drive(id: &str, drive: &DriveObject) -> Option<Self> {
        let kelvin = drive.temperature_kelvin?;
        let title = format!("Environment of drive {}", drive.name);
        Some(Self {
            head: Head::new(
                ChassisPlace::DriveEnvironment(id.to_owned()),
                ENVIRONMENT,
                title.clone(),
                "The temperature of a drive",
            ),
            temperature_celsius: Some(Excerpt::temperature(
                &drive_sensor(id),
                &format!("Drive {}", drive.name),
                Some(celsius(kelvin).into()),
            )),
            fan_speeds: Vec::new(),
        })
    }

    /// Of a box with fans. It has no temperature of its own: ThermalMetrics has all.
    pub(super) fn of_box(view: &View<'_>) -> Option<Self> {
        let fan_speeds: Vec<Excerpt> = fans(view).map(|(id, fan)| Excerpt::fan(id, fan)).collect();
        (!fan_speeds.is_empty()).then(|| Self {
            head: Head::new(ChassisPlace::Environment, ENVIRONMENT, "Environment", "Fans of the box"),
            temperature_celsius: None,
            fan_speeds,
        })
    }
}
