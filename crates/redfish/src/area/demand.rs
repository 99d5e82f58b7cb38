//! What a request asks for, before it is done: changes of the box, or another configuration. The
//! same value is carried out ([`carry_out`](crate::area::carry_out::carry_out)), or only planned.

use ebof_access::{Privilege, User};
use ebof_manage::Config;
use ebof_manage::api::{ControllerStatus, KeysChange, Planned};
use ebof_manage::enclosure::Change;

use crate::response::message::{Message, Problem};

/// What a request asks for.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(crate) what: What,
    /// The resource that there will be.
    pub(crate) creates: Option<Creates>,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// Changes of the box, all or none.
    Changes(Vec<Change>),
    /// Another configuration, made of the one in force.
    Configuration(Box<Config>),
}

/// What there is to tell of a request before it is sent.
#[derive(Debug)]
pub(crate) enum Preview {
    /// It changes neither the box nor its configuration.
    Nothing,
    /// What it asks for.
    Demand(Demand),
    /// The target has planned the configuration that it has.
    Configuration(Box<Planned>),
    /// A host has another key, or one less.
    Keys(Box<KeysChange>),
    /// The service is started again.
    Restart(Box<Restart>),
}

/// What starting the service again does.
#[derive(Debug)]
pub(crate) struct Restart {
    /// In words.
    pub(crate) changes: Vec<String>,
    /// The controllers of hosts, each with what its host notices.
    pub(crate) disturbed: Vec<(ControllerStatus, String)>,
    pub(crate) destroys_data: bool,
    /// What speaks against it.
    pub(crate) refused: Vec<Message>,
}

/// A resource that a configuration creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Creates {
    /// The endpoint of a host.
    Host(String),
    /// A host, or every one, may connect to a subsystem.
    Permission { nqn: String, host: Option<String> },
    /// A namespace of a plain subsystem.
    Volume { nqn: String, nsid: u32 },
}

impl Demand {
    /// One change.
    pub(crate) fn change(change: Change) -> Self {
        Self { what: What::Changes(vec![change]), creates: None }
    }

    /// Changes, of which there has to be one.
    pub(crate) fn changes(changes: Vec<Change>) -> Result<Self, Problem> {
        match changes.is_empty() {
            true => Err(Problem::bad_request(Message::no_operation())),
            false => Ok(Self { what: What::Changes(changes), creates: None }),
        }
    }

    /// The privilege that a user needs for it beside that of its address.
    pub(crate) const fn privilege(&self, user: &User) -> Option<Privilege> {
        match (&self.creates, &self.what) {
            // Whoever names a file that is served can read it then.
            (Some(Creates::Volume { .. }), _) => Some(Privilege::ConfigureManager),
            // What is made of a part of the configuration would lack the rest.
            (_, What::Configuration(_)) if !user.reach.is_everything() => Some(Privilege::ConfigureManager),
            _ => None,
        }
    }

    /// Another configuration.
    pub(crate) fn configuration(config: Config, creates: Option<Creates>) -> Self {
        Self { what: What::Configuration(Box::new(config)), creates }
    }
}
