//! The box: `/redfish/v1/Chassis/enclosure` and what is in it, and its machine as a system.

mod adapter;
mod change;
mod drive;
mod enclosure;
mod metrics;
mod pcie;
mod sensor;
mod systems;

use ebof_manage::enclosure::{DriveObject, PortKind, PortObject};
use http::Method;
use serde_json::Value;

use crate::area::carry_out::carry_out;
use crate::area::demand::{Demand, Preview};
use crate::area::{Area, ChangeRequest, Done};
use crate::managed::missing;
use crate::managed::site::function_of;
use crate::managed::view::View;
use crate::place::ChassisPlace;
use crate::request::input::Input;
use crate::response::head::{Collection, json};
use crate::response::message::Problem;

impl Area for ChassisPlace {
    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Collection => json(&Collection::new(Self::Collection, "Chassis", "Chassis", [Self::Enclosure])),
            Self::Enclosure => json(&enclosure::Chassis::new(view)),
            Self::Drives => {
                let missing = missing::drives(view).map(|(id, _)| Self::Drive(id));
                let drives = view.drives().map(|(id, _)| Self::Drive(id.to_owned())).chain(missing);
                json(&Collection::new(Self::Drives, "Drive", "Drives", drives))
            }
            Self::Drive(id) if let Some(away) = missing::drive(id, view) => json(&missing::MissingDrive::new(id, away)),
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

    fn preview(&self, method: &Method, input: Input, view: &View<'_>) -> Result<Preview, Problem> {
        self.translate(method, input, view).map(Preview::Demand)
    }

    fn change(&self, method: &Method, input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        carry_out(self.translate(method, input, request.view)?, request)
    }
}

impl ChassisPlace {
    /// What a request asks for.
    fn translate(&self, _method: &Method, input: Input, view: &View<'_>) -> Result<Demand, Problem> {
        match self {
            Self::AddDrive => change::add_drive(input),
            Self::SecureErase(id) => change::secure_erase(self.drive(view, id)?, input, view),
            Self::RemoveDrive(id) => change::remove_drive(self.drive(view, id)?, input),
            Self::SelfTest(id) => change::self_test(self.drive(view, id)?, input),
            _ => Err(self.missing()),
        }
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
