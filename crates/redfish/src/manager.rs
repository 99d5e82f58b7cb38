//! What manages the box: this service itself, `/redfish/v1/Managers/ebof`.

mod configuration;
mod log;
mod resource;

use ebof_access::Privilege;
use http::Method;
use serde_json::Value;

pub use configuration::Configurations;

use crate::area::{ACTION, Area, Change, Done, READ};
use crate::head::{Collection, json};
use crate::input::Input;
use crate::message::Problem;
use crate::place::Place;
use crate::view::View;
use configuration::ConfigurationResource;
pub(crate) use configuration::refused;
pub(crate) use log::Log;
use log::LogService;
pub(crate) use log::health;
use resource::{Manager, NetworkProtocol};

/// The identifier of the one manager.
const EBOF: &str = "ebof";

/// Addresses below `/redfish/v1/Managers`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ManagerPlace {
    /// All managers.
    Collection,
    /// The manager.
    Manager,
    /// How it is reached.
    NetworkProtocol,
    /// Its logs.
    Logs,
    /// A log.
    Log(Log),
    /// The entries of a log.
    Entries(Log),
    /// An entry of a log.
    Entry(Log, String),
    /// The configuration in force.
    Configuration,
    /// Says what another configuration would change.
    Plan,
    /// Puts another configuration in force.
    Apply,
}

impl Area for ManagerPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        let ["Managers", rest @ ..] = segments else { return None };
        let [EBOF, rest @ ..] = rest else { return rest.is_empty().then_some(Self::Collection) };
        Some(match rest {
            [] => Self::Manager,
            ["NetworkProtocol"] => Self::NetworkProtocol,
            ["LogServices"] => Self::Logs,
            ["LogServices", log] => Self::Log(Log::named(log)?),
            ["LogServices", log, "Entries"] => Self::Entries(Log::named(log)?),
            ["LogServices", log, "Entries", id] => Self::Entry(Log::named(log)?, (*id).to_owned()),
            ["Oem", "Ebof", "Configuration"] => Self::Configuration,
            ["Oem", "Ebof", "Configuration", "Actions", "EbofConfiguration.Plan"] => Self::Plan,
            ["Oem", "Ebof", "Configuration", "Actions", "EbofConfiguration.Apply"] => Self::Apply,
            _ => return None,
        })
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("ManagerCollection", "Managers"),
            ("Manager", "Managers/ebof"),
            ("ManagerNetworkProtocol", "Managers/ebof/NetworkProtocol"),
            ("LogServiceCollection", "Managers/ebof/LogServices"),
            ("LogService", "Managers/ebof/LogServices/Events"),
            ("LogEntryCollection", "Managers/ebof/LogServices/Events/Entries"),
            ("LogEntry", "Managers/ebof/LogServices/Events/Entries/{LogEntryId}"),
            ("LogService", "Managers/ebof/LogServices/ConnectionsRefused"),
            ("LogEntryCollection", "Managers/ebof/LogServices/ConnectionsRefused/Entries"),
            ("LogEntry", "Managers/ebof/LogServices/ConnectionsRefused/Entries/{LogEntryId}"),
            ("EbofConfiguration", "Managers/ebof/Oem/Ebof/Configuration"),
            ("", "Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Plan"),
            ("", "Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Apply"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        const CONFIGURATION: [&str; 3] = ["Oem", "Ebof", "Configuration"];
        let below: Vec<&str> = match self {
            Self::Collection => return vec!["Managers"],
            Self::Manager => vec![],
            Self::NetworkProtocol => vec!["NetworkProtocol"],
            Self::Logs => vec!["LogServices"],
            Self::Log(log) => vec!["LogServices", log.name()],
            Self::Entries(log) => vec!["LogServices", log.name(), "Entries"],
            Self::Entry(log, id) => vec!["LogServices", log.name(), "Entries", id],
            Self::Configuration => CONFIGURATION.to_vec(),
            Self::Plan => [&CONFIGURATION[..], &["Actions", "EbofConfiguration.Plan"]].concat(),
            Self::Apply => [&CONFIGURATION[..], &["Actions", "EbofConfiguration.Apply"]].concat(),
        };
        [vec!["Managers", EBOF], below].concat()
    }

    fn methods(&self) -> &'static [Method] {
        match self {
            Self::Plan | Self::Apply => ACTION,
            _ => READ,
        }
    }

    fn privilege(&self, method: &Method) -> Option<Privilege> {
        Some(if *method == Method::GET { Privilege::Login } else { Privilege::ConfigureManager })
    }

    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Collection => json(&Collection::new(Self::Collection, "Manager", "Managers", [Self::Manager])),
            Self::Manager => json(&Manager::new(view)),
            Self::NetworkProtocol => json(&NetworkProtocol::new(view)),
            Self::Logs => {
                let logs = Log::ALL.map(Self::Log);
                json(&Collection::new(Self::Logs, "LogService", "Log Services", logs))
            }
            Self::Log(log) => json(&LogService::new(*log)),
            Self::Entries(log) => {
                // The schema wants entries where other collections have references.
                let entries = log.entries(view);
                let none = std::iter::empty::<Self>();
                let mut all = json(&Collection::new(Self::Entries(*log), "LogEntry", "Log Entries", none));
                all["Members@odata.count"] = entries.len().into();
                all["Members"] = json(&entries);
                all
            }
            Self::Entry(log, id) => json(&log.entry(id, view).ok_or_else(|| self.missing())?),
            Self::Configuration => json(&ConfigurationResource::new(view)?),
            Self::Plan | Self::Apply => return Err(self.missing()),
        })
    }

    fn change(&self, _method: &Method, input: Input, request: &Change<'_>) -> Result<Done, Problem> {
        match self {
            Self::Plan => configuration::plan(input, request),
            _ => configuration::apply(input, request),
        }
    }
}

impl ManagerPlace {
    fn missing(&self) -> Problem {
        Problem::not_found(&Place::from(self.clone()))
    }
}

#[cfg(test)]
mod tests;
