//! Addresses of the box and what is in it.

use ebof_access::Privilege;
use http::Method;

use super::{ACTION, Address, READ};

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

/// The identifier of the one chassis.
const ENCLOSURE: &str = "enclosure";

/// The identifier of what has all fabric ports.
const FABRIC: &str = "fabric";

impl Address for ChassisPlace {
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

    fn privilege(&self, method: &Method) -> Option<Privilege> {
        Some(match (self, method) {
            (_, &Method::GET) => Privilege::Login,
            // Whoever names a file that is served can read it then.
            (Self::AddDrive, _) => Privilege::ConfigureManager,
            _ => Privilege::ConfigureComponents,
        })
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
}
