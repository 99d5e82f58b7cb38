//! What manages the box: this service itself, `/redfish/v1/Managers/ebof`, its tasks, and the
//! update of firmware.

mod audit;
mod clear;
mod configuration;
mod log;
mod protocols;
mod reset;
mod resource;
mod slow;
mod tasks;
mod update;

use http::Method;
use serde_json::Value;

use crate::area::carry_out::carry_out;
use crate::area::demand::Preview;
use crate::area::{Area, ChangeRequest, Done};
use crate::managed::view::View;
use crate::place::{Log, ManagerPlace};
use crate::request::input::Input;
use crate::response::head::{Collection, json};
use crate::response::message::Problem;
use configuration::ConfigurationResource;
use log::LogService;
use resource::{Manager, NetworkProtocol};

impl Area for ManagerPlace {
    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Collection => json(&Collection::new(Self::Collection, "Manager", "Managers", [Self::Manager])),
            Self::Manager => json(&Manager::new(view)),
            Self::NetworkProtocol => json(&NetworkProtocol::new(view)),
            Self::Logs => {
                let logs = Log::ALL.map(Self::Log);
                json(&Collection::new(Self::Logs, "LogService", "Log Services", logs))
            }
            Self::Log(log) => json(&LogService::new(*log, view)),
            Self::Entries(log) => {
                // The schema wants entries where other collections have references.
                let entries = log::entries(*log, view);
                let none = std::iter::empty::<Self>();
                let mut all = json(&Collection::new(Self::Entries(*log), "LogEntry", "Log Entries", none));
                all["Members@odata.count"] = entries.len().into();
                all["Members"] = json(&entries);
                all
            }
            Self::Entry(log, id) => json(&log::entry(*log, id, view).ok_or_else(|| self.missing())?),
            Self::Configuration => json(&ConfigurationResource::new(view)?),
            Self::Reset | Self::ClearLog(_) | Self::Plan | Self::Apply | Self::Edit => return Err(self.missing()),
        })
    }

    fn preview(&self, _method: &Method, input: Input, view: &View<'_>) -> Result<Preview, Problem> {
        match self {
            Self::Apply => configuration::preview(input, view),
            Self::Edit => configuration::edited(input, view).map(Preview::Demand),
            Self::NetworkProtocol => protocols::alter(input, &self.read(view)?, view).map(Preview::Demand),
            Self::Reset => reset::preview(input, view).map(|restart| Preview::Restart(Box::new(restart))),
            _ => Ok(Preview::Nothing),
        }
    }

    fn change(&self, _method: &Method, input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        match self {
            Self::Plan => configuration::plan(input, request),
            Self::Edit => carry_out(configuration::edited(input, request.view)?, request),
            Self::ClearLog(log) => clear::clear(*log, input, request),
            Self::NetworkProtocol => {
                carry_out(protocols::alter(input, &self.read(request.view)?, request.view)?, request)
            }
            Self::Reset => reset::reset(input, request),
            _ => configuration::apply(input, request),
        }
    }
}

#[cfg(test)]
mod tests;
