//! Addresses of what manages the box.

use ebof_access::Privilege;
use http::Method;

use super::{ACTION, Address, PATCH, READ};

/// Addresses below `/redfish/v1/Managers`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ManagerPlace {
    /// All managers.
    Collection,
    /// The manager.
    Manager,
    /// Starts it again.
    Reset,
    /// How it is reached.
    NetworkProtocol,
    /// Its logs.
    Logs,
    /// A log.
    Log(Log),
    /// Clears a log.
    ClearLog(Log),
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
    /// Changes single objects of it.
    Edit,
}

/// The identifier of the one manager.
const EBOF: &str = "ebof";

impl Address for ManagerPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        let ["Managers", rest @ ..] = segments else { return None };
        let [EBOF, rest @ ..] = rest else { return rest.is_empty().then_some(Self::Collection) };
        Some(match rest {
            [] => Self::Manager,
            ["Actions", "Manager.Reset"] => Self::Reset,
            ["NetworkProtocol"] => Self::NetworkProtocol,
            ["LogServices"] => Self::Logs,
            ["LogServices", log] => Self::Log(Log::named(log)?),
            ["LogServices", log, "Actions", "LogService.ClearLog"] => Self::ClearLog(Log::named(log)?),
            ["LogServices", log, "Entries"] => Self::Entries(Log::named(log)?),
            ["LogServices", log, "Entries", id] => Self::Entry(Log::named(log)?, (*id).to_owned()),
            ["Oem", "Ebof", "Configuration"] => Self::Configuration,
            ["Oem", "Ebof", "Configuration", "Actions", "EbofConfiguration.Plan"] => Self::Plan,
            ["Oem", "Ebof", "Configuration", "Actions", "EbofConfiguration.Apply"] => Self::Apply,
            ["Oem", "Ebof", "Configuration", "Actions", "EbofConfiguration.Edit"] => Self::Edit,
            _ => return None,
        })
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("ManagerCollection", "Managers"),
            ("Manager", "Managers/ebof"),
            ("", "Managers/ebof/Actions/Manager.Reset"),
            ("ManagerNetworkProtocol", "Managers/ebof/NetworkProtocol"),
            ("LogServiceCollection", "Managers/ebof/LogServices"),
            ("LogService", "Managers/ebof/LogServices/Events"),
            ("", "Managers/ebof/LogServices/Events/Actions/LogService.ClearLog"),
            ("LogEntryCollection", "Managers/ebof/LogServices/Events/Entries"),
            ("LogEntry", "Managers/ebof/LogServices/Events/Entries/{LogEntryId}"),
            ("LogService", "Managers/ebof/LogServices/ConnectionsRefused"),
            ("", "Managers/ebof/LogServices/ConnectionsRefused/Actions/LogService.ClearLog"),
            ("LogEntryCollection", "Managers/ebof/LogServices/ConnectionsRefused/Entries"),
            ("LogEntry", "Managers/ebof/LogServices/ConnectionsRefused/Entries/{LogEntryId}"),
            ("LogService", "Managers/ebof/LogServices/SlowCommands"),
            ("", "Managers/ebof/LogServices/SlowCommands/Actions/LogService.ClearLog"),
            ("LogEntryCollection", "Managers/ebof/LogServices/SlowCommands/Entries"),
            ("LogEntry", "Managers/ebof/LogServices/SlowCommands/Entries/{LogEntryId}"),
            ("EbofConfiguration", "Managers/ebof/Oem/Ebof/Configuration"),
            ("", "Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Plan"),
            ("", "Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Apply"),
            ("", "Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Edit"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        const CONFIGURATION: [&str; 3] = ["Oem", "Ebof", "Configuration"];
        let below: Vec<&str> = match self {
            Self::Collection => return vec!["Managers"],
            Self::Manager => vec![],
            Self::Reset => vec!["Actions", "Manager.Reset"],
            Self::NetworkProtocol => vec!["NetworkProtocol"],
            Self::Logs => vec!["LogServices"],
            Self::Log(log) => vec!["LogServices", log.name()],
            Self::ClearLog(log) => vec!["LogServices", log.name(), "Actions", "LogService.ClearLog"],
            Self::Entries(log) => vec!["LogServices", log.name(), "Entries"],
            Self::Entry(log, id) => vec!["LogServices", log.name(), "Entries", id],
            Self::Configuration => CONFIGURATION.to_vec(),
            Self::Plan => [&CONFIGURATION[..], &["Actions", "EbofConfiguration.Plan"]].concat(),
            Self::Apply => [&CONFIGURATION[..], &["Actions", "EbofConfiguration.Apply"]].concat(),
            Self::Edit => [&CONFIGURATION[..], &["Actions", "EbofConfiguration.Edit"]].concat(),
        };
        [vec!["Managers", EBOF], below].concat()
    }

    fn methods(&self) -> &'static [Method] {
        match self {
            Self::Reset | Self::ClearLog(_) | Self::Plan | Self::Apply | Self::Edit => ACTION,
            Self::NetworkProtocol => PATCH,
            _ => READ,
        }
    }

    fn privilege(&self, method: &Method) -> Option<Privilege> {
        Some(if *method == Method::GET { Privilege::Login } else { Privilege::ConfigureManager })
    }
}

/// The logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Log {
    /// What happened.
    Events,
    /// Connections of hosts that were refused, with what to do about them.
    ConnectionsRefused,
    /// Commands that took long, with where their time went.
    SlowCommands,
}

impl Log {
    /// All logs.
    pub(crate) const ALL: [Self; 3] = [Self::Events, Self::ConnectionsRefused, Self::SlowCommands];

    /// Its identifier.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Events => "Events",
            Self::ConnectionsRefused => "ConnectionsRefused",
            Self::SlowCommands => "SlowCommands",
        }
    }

    /// The log of an identifier.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|log| log.name() == name)
    }
}
