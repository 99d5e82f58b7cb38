//! The box: `/redfish/v1/Chassis/enclosure` and what is in it.

mod adapter;
mod change;
mod drive;
mod enclosure;
mod metrics;
mod pcie;
mod sensor;

use ebof_manage::enclosure::{DriveObject, FunctionObject, PortKind, PortObject};
use http::Method;
use serde_json::Value;

use crate::area::{ACTION, Area, Change, Done, READ};
use crate::head::{Collection, json};
use crate::input::Input;
use crate::message::Problem;
use crate::names::PRIMARY;
use crate::place::Place;
use crate::view::View;
use crate::wanted::{Demand, carry_out};

pub(crate) use drive::status_of;
pub(crate) use metrics::CriticalWarnings;

/// The identifier of the one chassis.
const ENCLOSURE: &str = "enclosure";

/// The identifier of what has all fabric ports.
const FABRIC: &str = "fabric";

/// Addresses below `/redfish/v1/Chassis`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ChassisPlace {
    /// All chassis.
    Collection,
    /// The enclosure.
    Enclosure,
    /// The action that adds a drive.
    AddDrive,
    /// Its drives.
    Drives,
    /// A drive.
    Drive(String),
    /// A drive's health.
    DriveMetrics(String),
    /// A drive's temperature.
    DriveEnvironment(String),
    /// The action that sanitizes a drive.
    SecureErase(String),
    /// The action that takes a drive away.
    RemoveDrive(String),
    /// The action that has a drive test itself.
    SelfTest(String),
    /// What has the network ports.
    Adapters,
    /// The one adapter.
    Adapter,
    /// Its ports.
    Ports,
    /// A port.
    Port(String),
    /// A port's counters.
    PortMetrics(String),
    /// The drives as PCIe devices.
    Devices,
    /// A drive as a PCIe device.
    Device(String),
    /// Its functions.
    Functions(String),
    /// A function, by drive and function.
    Function(String, String),
    /// All sensors.
    Sensors,
    /// A sensor.
    Sensor(String),
    /// Cooling.
    Thermal,
    /// Temperatures.
    ThermalMetrics,
    /// Fans.
    Fans,
    /// A fan.
    Fan(String),
    /// Readings of the box.
    Environment,
}

impl Area for ChassisPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        match segments {
            ["Chassis"] => Some(Self::Collection),
            ["Chassis", ENCLOSURE, below @ ..] => Self::below(below),
            _ => None,
        }
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("ChassisCollection", "Chassis"),
            ("Chassis", "Chassis/enclosure"),
            ("", "Chassis/enclosure/Actions/Oem/EbofChassis.AddDrive"),
            ("DriveCollection", "Chassis/enclosure/Drives"),
            ("Drive", "Chassis/enclosure/Drives/{DriveId}"),
            ("DriveMetrics", "Chassis/enclosure/Drives/{DriveId}/Metrics"),
            ("EnvironmentMetrics", "Chassis/enclosure/Drives/{DriveId}/EnvironmentMetrics"),
            ("", "Chassis/enclosure/Drives/{DriveId}/Actions/Drive.SecureErase"),
            ("", "Chassis/enclosure/Drives/{DriveId}/Actions/Oem/EbofDrive.Remove"),
            ("", "Chassis/enclosure/Drives/{DriveId}/Actions/Oem/EbofDrive.SelfTest"),
            ("NetworkAdapterCollection", "Chassis/enclosure/NetworkAdapters"),
            ("NetworkAdapter", "Chassis/enclosure/NetworkAdapters/fabric"),
            ("PortCollection", "Chassis/enclosure/NetworkAdapters/fabric/Ports"),
            ("Port", "Chassis/enclosure/NetworkAdapters/fabric/Ports/{PortId}"),
            ("PortMetrics", "Chassis/enclosure/NetworkAdapters/fabric/Ports/{PortId}/Metrics"),
            ("PCIeDeviceCollection", "Chassis/enclosure/PCIeDevices"),
            ("PCIeDevice", "Chassis/enclosure/PCIeDevices/{PCIeDeviceId}"),
            ("PCIeFunctionCollection", "Chassis/enclosure/PCIeDevices/{PCIeDeviceId}/PCIeFunctions"),
            ("PCIeFunction", "Chassis/enclosure/PCIeDevices/{PCIeDeviceId}/PCIeFunctions/{PCIeFunctionId}"),
            ("SensorCollection", "Chassis/enclosure/Sensors"),
            ("Sensor", "Chassis/enclosure/Sensors/{SensorId}"),
            ("ThermalSubsystem", "Chassis/enclosure/ThermalSubsystem"),
            ("ThermalMetrics", "Chassis/enclosure/ThermalSubsystem/ThermalMetrics"),
            ("FanCollection", "Chassis/enclosure/ThermalSubsystem/Fans"),
            ("Fan", "Chassis/enclosure/ThermalSubsystem/Fans/{FanId}"),
            ("EnvironmentMetrics", "Chassis/enclosure/EnvironmentMetrics"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        let below: &[&str] = match self {
            Self::Collection => return vec!["Chassis"],
            Self::Enclosure => &[],
            Self::AddDrive => &["Actions", "Oem", "EbofChassis.AddDrive"],
            Self::Drives => &["Drives"],
            Self::Drive(drive) => &["Drives", drive],
            Self::DriveMetrics(drive) => &["Drives", drive, "Metrics"],
            Self::DriveEnvironment(drive) => &["Drives", drive, "EnvironmentMetrics"],
            Self::SecureErase(drive) => &["Drives", drive, "Actions", "Drive.SecureErase"],
            Self::RemoveDrive(drive) => &["Drives", drive, "Actions", "Oem", "EbofDrive.Remove"],
            Self::SelfTest(drive) => &["Drives", drive, "Actions", "Oem", "EbofDrive.SelfTest"],
            Self::Adapters => &["NetworkAdapters"],
            Self::Adapter => &["NetworkAdapters", FABRIC],
            Self::Ports => &["NetworkAdapters", FABRIC, "Ports"],
            Self::Port(port) => &["NetworkAdapters", FABRIC, "Ports", port],
            Self::PortMetrics(port) => &["NetworkAdapters", FABRIC, "Ports", port, "Metrics"],
            Self::Devices => &["PCIeDevices"],
            Self::Device(drive) => &["PCIeDevices", drive],
            Self::Functions(drive) => &["PCIeDevices", drive, "PCIeFunctions"],
            Self::Function(drive, function) => &["PCIeDevices", drive, "PCIeFunctions", function],
            Self::Sensors => &["Sensors"],
            Self::Sensor(sensor) => &["Sensors", sensor],
            Self::Thermal => &["ThermalSubsystem"],
            Self::ThermalMetrics => &["ThermalSubsystem", "ThermalMetrics"],
            Self::Fans => &["ThermalSubsystem", "Fans"],
            Self::Fan(fan) => &["ThermalSubsystem", "Fans", fan],
            Self::Environment => &["EnvironmentMetrics"],
        };
        [&["Chassis", ENCLOSURE], below].concat()
    }

    fn methods(&self) -> &'static [Method] {
        match self {
            Self::AddDrive | Self::SecureErase(_) | Self::RemoveDrive(_) | Self::SelfTest(_) => ACTION,
            _ => READ,
        }
    }

    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Collection => json(&Collection::new(Self::Collection, "Chassis", "Chassis", [Self::Enclosure])),
            Self::Enclosure => json(&enclosure::Chassis::new(view)),
            Self::Drives => {
                let drives = view.drives().map(|(id, _)| Self::Drive(id.to_owned()));
                json(&Collection::new(Self::Drives, "Drive", "Drives", drives))
            }
            Self::Drive(id) => json(&drive::Drive::new(view, id, self.drive(view, id)?)),
            Self::DriveMetrics(id) => json(&metrics::DriveMetrics::new(view, id, self.drive(view, id)?)),
            Self::DriveEnvironment(id) => {
                json(&sensor::Environment::of_drive(id, self.drive(view, id)?).ok_or_else(|| self.missing())?)
            }
            Self::Adapters => {
                json(&Collection::new(Self::Adapters, "NetworkAdapter", "Network adapters", [Self::Adapter]))
            }
            Self::Adapter => json(&adapter::NetworkAdapter::new()),
            Self::Ports => {
                let ports = fabric_ports(view).map(|(id, _)| Self::Port(id.to_owned()));
                json(&Collection::new(Self::Ports, "Port", "Ports", ports))
            }
            Self::Port(id) => json(&adapter::Port::new(view, id, self.port(view, id)?)),
            Self::PortMetrics(id) => json(&adapter::PortMetrics::new(view, id, self.port(view, id)?)),
            Self::Devices => {
                let devices = view.drives().map(|(id, _)| Self::Device(id.to_owned()));
                json(&Collection::new(Self::Devices, "PCIeDevice", "PCIe devices", devices))
            }
            Self::Device(id) => json(&pcie::Device::new(view, id, self.drive(view, id)?)),
            Self::Functions(id) => {
                let functions = pcie::functions(id, self.drive(view, id)?);
                json(&Collection::new(self.clone(), "PCIeFunction", "PCIe functions", functions))
            }
            Self::Function(id, function) => {
                let drive = self.drive(view, id)?;
                let function = function_of(drive, function).ok_or_else(|| self.missing())?;
                json(&pcie::FunctionResource::new(id, drive, function))
            }
            Self::Sensors => {
                let sensors = sensor::all(view).into_iter().map(Self::Sensor);
                json(&Collection::new(Self::Sensors, "Sensor", "Sensors", sensors))
            }
            Self::Sensor(id) => json(&sensor::Sensor::new(view, id).ok_or_else(|| self.missing())?),
            Self::Thermal => json(&sensor::Thermal::new()),
            Self::ThermalMetrics => json(&sensor::ThermalMetrics::new(view)),
            Self::Fans => {
                let fans = sensor::fans(view).map(|(id, _)| Self::Fan(id.to_owned()));
                json(&Collection::new(Self::Fans, "Fan", "Fans", fans))
            }
            Self::Fan(id) => json(&sensor::FanResource::new(view, id).ok_or_else(|| self.missing())?),
            Self::Environment => json(&sensor::Environment::of_box(view).ok_or_else(|| self.missing())?),
            Self::AddDrive | Self::SecureErase(_) | Self::RemoveDrive(_) | Self::SelfTest(_) => {
                return Err(self.missing());
            }
        })
    }

    fn translate(&self, _method: &Method, input: Input, view: &View<'_>) -> Result<Demand, Problem> {
        match self {
            Self::AddDrive => change::add_drive(input),
            Self::SecureErase(id) => change::secure_erase(self.drive(view, id)?, input, view),
            Self::RemoveDrive(id) => change::remove_drive(self.drive(view, id)?, input),
            Self::SelfTest(id) => change::self_test(self.drive(view, id)?, input),
            _ => Err(self.missing()),
        }
    }

    fn change(&self, method: &Method, input: Input, request: &Change<'_>) -> Result<Done, Problem> {
        carry_out(self.translate(method, input, request.view)?, request)
    }
}

impl ChassisPlace {
    /// What is below the enclosure.
    fn below(segments: &[&str]) -> Option<Self> {
        Some(match segments {
            [] => Self::Enclosure,
            ["Actions", "Oem", "EbofChassis.AddDrive"] => Self::AddDrive,
            ["Drives"] => Self::Drives,
            ["Drives", drive, below @ ..] => {
                let drive = (*drive).to_owned();
                match below {
                    [] => Self::Drive(drive),
                    ["Metrics"] => Self::DriveMetrics(drive),
                    ["EnvironmentMetrics"] => Self::DriveEnvironment(drive),
                    ["Actions", "Drive.SecureErase"] => Self::SecureErase(drive),
                    ["Actions", "Oem", "EbofDrive.Remove"] => Self::RemoveDrive(drive),
                    ["Actions", "Oem", "EbofDrive.SelfTest"] => Self::SelfTest(drive),
                    _ => return None,
                }
            }
            ["NetworkAdapters"] => Self::Adapters,
            ["NetworkAdapters", FABRIC] => Self::Adapter,
            ["NetworkAdapters", FABRIC, "Ports"] => Self::Ports,
            ["NetworkAdapters", FABRIC, "Ports", port] => Self::Port((*port).to_owned()),
            ["NetworkAdapters", FABRIC, "Ports", port, "Metrics"] => Self::PortMetrics((*port).to_owned()),
            ["PCIeDevices"] => Self::Devices,
            ["PCIeDevices", drive] => Self::Device((*drive).to_owned()),
            ["PCIeDevices", drive, "PCIeFunctions"] => Self::Functions((*drive).to_owned()),
            ["PCIeDevices", drive, "PCIeFunctions", function] => {
                Self::Function((*drive).to_owned(), (*function).to_owned())
            }
            ["Sensors"] => Self::Sensors,
            ["Sensors", sensor] => Self::Sensor((*sensor).to_owned()),
            ["ThermalSubsystem"] => Self::Thermal,
            ["ThermalSubsystem", "ThermalMetrics"] => Self::ThermalMetrics,
            ["ThermalSubsystem", "Fans"] => Self::Fans,
            ["ThermalSubsystem", "Fans", fan] => Self::Fan((*fan).to_owned()),
            ["EnvironmentMetrics"] => Self::Environment,
            _ => return None,
        })
    }

    fn missing(&self) -> Problem {
        Problem::not_found(&Place::from(self.clone()))
    }

    fn drive<'v>(&self, view: &'v View<'_>, id: &str) -> Result<&'v DriveObject, Problem> {
        view.drive(id).ok_or_else(|| self.missing())
    }

    fn port<'v>(&self, view: &'v View<'_>, id: &str) -> Result<&'v PortObject, Problem> {
        view.port(id).filter(|port| port.kind == PortKind::Fabric).ok_or_else(|| self.missing())
    }
}

/// The ports that a network reaches.
pub(crate) fn fabric_ports<'v>(view: &'v View<'_>) -> impl Iterator<Item = (&'v str, &'v PortObject)> {
    view.ports().filter(|(_, port)| port.kind == PortKind::Fabric)
}

/// A function of a drive by its identifier: `pf` is the primary controller, as `Some(None)`.
#[expect(clippy::option_option, reason = "no such function, the primary one, or another")]
pub(crate) fn function_of<'d>(drive: &'d DriveObject, id: &str) -> Option<Option<&'d FunctionObject>> {
    if id == PRIMARY {
        return Some(None);
    }
    drive.functions.iter().find(|function| function_id(function) == id).map(Some)
}

/// The identifier of a function: `vf2`.
pub(crate) fn function_id(function: &FunctionObject) -> String {
    format!("vf{}", function.name.number)
}

/// The identifier of a function, or of the primary one.
pub(crate) fn id_of(function: Option<&FunctionObject>) -> String {
    function.map_or_else(|| PRIMARY.to_owned(), function_id)
}
