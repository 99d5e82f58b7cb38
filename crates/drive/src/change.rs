//! The state of a drive, and the changes of it that are in the journal.
//!
//! Applying a change never fails: it was decided before it was journaled. A change of a later
//! version that this one does not know is an error, and is not skipped. The limits that keep every
//! state small enough for a checkpoint are in [`budget`].

pub mod budget;
pub mod unfinished;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_nvme::Nsid;
use serde::{Deserialize, Serialize};

use crate::function::{self, Function, Primary};
use crate::logs::error_log::{self, ErrorLog};
use crate::logs::event_log::{Event, EventLog};
use crate::logs::health::Health;
use crate::logs::telemetry::Telemetry;
use crate::maintenance::firmware::Firmware;
use crate::maintenance::sanitize::Sanitize;
use crate::maintenance::self_test::SelfTest;
use crate::namespace::{Namespace, Shape, VolumeId};
use crate::reservation::{self, Reservations};
use crate::stored::{count, hex};

use unfinished::Unfinished;

/// The drive's identity; it never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Serial Number, at most 20 characters of ASCII.
    pub serial: String,
    /// Model Number, at most 40 characters of ASCII.
    pub model: String,
    /// The drive's own UUID.
    #[serde(with = "hex")]
    pub uuid: [u8; 16],
}

/// The assignment of a controller identifier to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CntlidAssignment {
    /// NQN of the host.
    pub host: String,
    /// When it was used last, milliseconds since 1970.
    pub taken_ms: u64,
}

/// The durable state of a drive, without its extent maps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Names and UUID.
    pub identity: Identity,
    /// The name on the medium for the next namespace.
    #[serde(rename = "next_instance", deserialize_with = "count::deserialize")]
    pub next_volume: u64,
    /// Namespaces by NSID.
    pub namespaces: BTreeMap<u32, Namespace>,
    /// Hosts by controller identifier.
    #[serde(rename = "seats")]
    pub assigned_cntlids: BTreeMap<u16, CntlidAssignment>,
    /// Registrants and reservations by NSID; namespaces that never had any are not in it.
    pub reservations: BTreeMap<u32, Arc<Reservations>>,
    /// Counters since the drive was created.
    pub health: Health,
    /// The Error Information log.
    pub errors: ErrorLog,
    /// The Persistent Event Log.
    pub events: EventLog,
    /// Firmware slots, and which one is active.
    pub firmware: Firmware,
    /// The running self-test, and the last results.
    pub self_test: SelfTest,
    /// The sanitize operation.
    pub sanitize: Sanitize,
    /// Controller-initiated telemetry.
    pub telemetry: Telemetry,
    /// Data that were not encrypted may be on the medium.
    pub plaintext: bool,
    /// Functions by number; those that were never touched are not in it. More than there are now,
    /// where the configuration had more.
    pub functions: BTreeMap<u16, Function>,
    /// Flexible resources of the primary controller.
    pub primary: Primary,
    /// Transactions of the box that are not over, by their identifiers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub transactions: BTreeMap<String, Unfinished>,
}

/// A change of the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The drive was created.
    Made {
        /// Its identity.
        identity: Identity,
    },
    /// A namespace was created.
    Created {
        /// Its identifier.
        nsid: u32,
        /// What it is.
        namespace: Namespace,
    },
    /// A namespace was deleted.
    Deleted {
        /// Which.
        nsid: u32,
    },
    /// Hosts were attached to a namespace.
    Attached {
        /// Which.
        nsid: u32,
        /// Their NQNs.
        hosts: BTreeSet<String>,
    },
    /// Hosts were detached from a namespace.
    Detached {
        /// Which.
        nsid: u32,
        /// Their NQNs.
        hosts: BTreeSet<String>,
    },
    /// Functions, their resources, or what is attached to them changed.
    Functions {
        /// What changed, of which function or namespace.
        change: function::FunctionChange,
    },
    /// A transaction of the box began.
    Began {
        /// Its identifier.
        transaction: String,
        /// What its objects here are.
        before: Unfinished,
    },
    /// A transaction of the box is over.
    Over {
        /// Its identifier.
        transaction: String,
    },
    /// A namespace was write protected, or the protection was removed.
    Protected {
        /// Which.
        nsid: u32,
        /// Whether it is protected now.
        protected: bool,
    },
    /// A namespace was put into another ANA group.
    Grouped {
        /// Its NSID.
        nsid: u32,
        /// Its group now.
        ana_group: u32,
    },
    /// Registrants of a namespace or its reservation changed.
    Reserved {
        /// Which.
        nsid: u32,
        /// How.
        change: reservation::ReservationChange,
    },
    /// The drive was powered on: what does not persist through power loss is cleared.
    PoweredOn {
        /// When, milliseconds since 1970.
        at_ms: u64,
    },
    /// Counters advanced, or the drive was opened or closed.
    Counted {
        /// As they are now.
        health: Box<Health>,
    },
    /// Errors were recorded.
    Failed {
        /// Those that were not durable yet.
        errors: error_log::Flush,
    },
    /// An entry of the Persistent Event Log.
    Happened {
        /// What.
        event: Event,
    },
    /// Firmware was committed or activated.
    Firmware {
        /// As it is now.
        firmware: Box<Firmware>,
    },
    /// A namespace was formatted or sanitized: it is empty, and has another name on the medium.
    Emptied {
        /// Which.
        nsid: u32,
        /// Its name from now on.
        #[serde(rename = "instance")]
        volume: VolumeId,
        /// Its blocks from now on.
        #[serde(flatten)]
        shape: Shape,
    },
    /// A self-test began, progressed or ended.
    SelfTested {
        /// As it is now.
        self_test: Box<SelfTest>,
    },
    /// A sanitize operation began, progressed or ended.
    Sanitized {
        /// As it is now.
        sanitize: Box<Sanitize>,
    },
    /// The drive captured telemetry, or a host has read it.
    Captured {
        /// As it is now.
        telemetry: Box<Telemetry>,
    },
    /// A controller identifier was assigned to a host.
    #[serde(rename = "seated")]
    CntlidAssigned {
        /// Which.
        cntlid: u16,
        /// By whom and when.
        #[serde(rename = "seat")]
        assignment: CntlidAssignment,
    },
    /// Assignments of controller identifiers were dropped.
    #[serde(rename = "unseated")]
    CntlidsFreed {
        /// Which.
        cntlids: Vec<u16>,
    },
}

/// Why a drive cannot be read from its medium.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The state of a checkpoint.
    #[error("the drive's state in its checkpoint cannot be read: {0}; was it written by a later version?")]
    State(serde_json::Error),
    /// A change of the journal.
    #[error("change {at} behind the checkpoint cannot be read: {error}; was it written by a later version?")]
    Change {
        /// Which, from 0.
        at: usize,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// Two namespaces have one volume.
    #[error("namespace {nsid} has its data under the name {volume}, as another one has: the medium is damaged")]
    Volume {
        /// The namespace.
        nsid: u32,
        /// Its volume.
        volume: u64,
    },
}

impl State {
    /// The state of a checkpoint with the changes since.
    ///
    /// # Errors
    /// The state or a change cannot be read, or two namespaces have one volume.
    pub fn restore(checkpoint: &[u8], changes: &[Vec<u8>]) -> Result<Self, RestoreError> {
        let mut state = if checkpoint.is_empty() {
            Self::default()
        } else {
            serde_json::from_slice(checkpoint).map_err(RestoreError::State)?
        };
        for (at, change) in changes.iter().enumerate() {
            let change = serde_json::from_slice(change).map_err(|error| RestoreError::Change { at, error })?;
            state.apply(change);
        }
        state.check_volumes()?;
        Ok(state)
    }

    /// Namespaces with one volume would have each other's data; and so would the next one, if it
    /// got one that is taken.
    fn check_volumes(&mut self) -> Result<(), RestoreError> {
        let mut seen = BTreeSet::new();
        for (&nsid, namespace) in &self.namespaces {
            let volume = namespace.volume.0;
            if !seen.insert(volume) {
                return Err(RestoreError::Volume { nsid, volume });
            }
            self.next_volume = self.next_volume.max(volume + 1);
        }
        Ok(())
    }

    /// The state as JSON, for a checkpoint.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("maps with keys that are numbers or text, and nothing that can fail")
    }

    /// Applies a change.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Made { identity } => self.identity = identity,
            Change::Created { nsid, namespace } => {
                self.next_volume = self.next_volume.max(namespace.volume.0 + 1);
                self.plaintext |= !namespace.shape.encrypted;
                self.namespaces.insert(nsid, namespace);
            }
            Change::Deleted { nsid } => {
                self.namespaces.remove(&nsid);
                self.reservations.remove(&nsid);
                self.health.forget(Nsid(nsid));
            }
            Change::Attached { nsid, hosts } => {
                if let Some(namespace) = self.namespaces.get_mut(&nsid) {
                    namespace.hosts.extend(hosts);
                }
            }
            Change::Detached { nsid, hosts } => {
                if let Some(namespace) = self.namespaces.get_mut(&nsid) {
                    namespace.for_everyone = false;
                    namespace.hosts.retain(|host| !hosts.contains(host));
                }
            }
            Change::Functions { change } => self.apply_functions(change),
            Change::Began { transaction, before } => {
                self.transactions.insert(transaction, before);
            }
            Change::Over { transaction } => {
                self.transactions.remove(&transaction);
            }
            Change::Protected { nsid, protected } => {
                if let Some(namespace) = self.namespaces.get_mut(&nsid) {
                    namespace.write_protected = protected;
                }
            }
            Change::Grouped { nsid, ana_group } => {
                if let Some(namespace) = self.namespaces.get_mut(&nsid) {
                    namespace.ana_group = ana_group;
                }
            }
            Change::Reserved { nsid, change } => {
                Arc::make_mut(self.reservations.entry(nsid).or_default()).apply(change);
            }
            Change::PoweredOn { at_ms: _ } => {
                for reservations in self.reservations.values_mut() {
                    *reservations = Arc::new(reservations.after_power_loss());
                }
            }
            Change::Counted { health } => self.health = *health,
            Change::Failed { errors } => self.errors.apply(errors),
            Change::Happened { event } => self.events.apply(event),
            Change::Firmware { firmware } => self.firmware = *firmware,
            Change::Emptied { nsid, volume, shape } => {
                self.next_volume = self.next_volume.max(volume.0 + 1);
                self.plaintext |= !shape.encrypted;
                if let Some(namespace) = self.namespaces.get_mut(&nsid) {
                    namespace.volume = volume;
                    namespace.shape = shape;
                }
            }
            Change::SelfTested { self_test } => self.self_test = *self_test,
            Change::Sanitized { sanitize } => self.sanitized(*sanitize),
            Change::Captured { telemetry } => self.telemetry = *telemetry,
            Change::CntlidAssigned { cntlid, assignment } => {
                self.assigned_cntlids.insert(cntlid, assignment);
            }
            Change::CntlidsFreed { cntlids } => {
                self.assigned_cntlids.retain(|cntlid, _| !cntlids.contains(cntlid));
            }
        }
    }

    /// A sanitize operation has begun, gone on or ended.
    fn sanitized(&mut self, sanitize: Sanitize) {
        // Not by one that fails: that an earlier one had erased everything says nothing about
        // writes that are not counted yet.
        let is_over = self.sanitize.is_processing() && sanitize.restriction().is_none();
        if is_over && sanitize.is_erased() {
            self.plaintext = self.namespaces.values().any(|namespace| !namespace.shape.encrypted);
        }
        self.sanitize = sanitize;
    }

    /// Applies a change of functions.
    fn apply_functions(&mut self, change: function::FunctionChange) {
        match change {
            function::FunctionChange::Attached { nsid, functions } => {
                if let Some(namespace) = self.namespaces.get_mut(&nsid) {
                    namespace.functions.extend(functions);
                }
            }
            function::FunctionChange::Detached { nsid, functions } => {
                if let Some(namespace) = self.namespaces.get_mut(&nsid) {
                    namespace.functions.retain(|id| !functions.contains(id));
                }
            }
            function::FunctionChange::Mapped { nsid, functions, without_hosts } => {
                if let Some(namespace) = self.namespaces.get_mut(&nsid) {
                    namespace.functions = functions;
                    if without_hosts {
                        namespace.for_everyone = false;
                        namespace.hosts.clear();
                    }
                }
            }
            function::FunctionChange::Exactly { nsid, functions, hosts, for_everyone } => {
                if let Some(namespace) = self.namespaces.get_mut(&nsid) {
                    namespace.functions = functions;
                    namespace.hosts = hosts;
                    namespace.for_everyone = for_everyone;
                }
            }
            function::FunctionChange::Changed { id, function } => {
                self.functions.insert(id, function);
            }
            function::FunctionChange::Allocated { primary } => self.primary = primary,
            function::FunctionChange::Reset {} => {
                self.functions.values_mut().for_each(Function::go_offline);
                self.primary = self.primary.after_reset();
            }
        }
    }

    /// Drops history (a capture of telemetry, then the oldest events) until the state has at most
    /// `bytes_max`, or no history is left: for drives that grew too large under an earlier version.
    /// Returns whether anything was dropped.
    pub fn shrink(&mut self, bytes_max: usize) -> bool {
        let too_large = |state: &Self| state.to_bytes().len() > bytes_max;
        if !too_large(self) {
            return false;
        }
        self.telemetry.forget();
        while too_large(self) && !self.events.is_empty() {
            self.events.forget_half();
        }
        true
    }

    /// The names of the namespaces on the medium. Other volumes there belong to no namespace.
    pub fn volumes(&self) -> impl Iterator<Item = VolumeId> + '_ {
        self.namespaces.values().map(|namespace| namespace.volume)
    }
}

impl Change {
    /// The change as JSON, for the journal.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("maps with keys that are numbers or text, and nothing that can fail")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_medium_are_unchanged() {
        let seated = br#"{"seated":{"cntlid":7,"seat":{"host":"a","taken_ms":1}}}"#;
        let checkpoint = br#"{"next_instance":3,"seats":{"5":{"host":"b","taken_ms":2}}}"#;
        let unseated = br#"{"unseated":{"cntlids":[5]}}"#;
        let state = State::restore(checkpoint, &[seated.to_vec(), unseated.to_vec()]).unwrap();
        assert_eq!(state.next_volume, 3);
        assert_eq!(state.assigned_cntlids.keys().collect::<Vec<_>>(), [&7]);
        let written = String::from_utf8(state.to_bytes()).unwrap();
        assert!(written.contains(r#""seats":{"7":{"host":"a","taken_ms":1}}"#), "{written}");
        let emptied = Change::Emptied { nsid: 1, volume: VolumeId(9), shape: Shape::default() };
        assert!(emptied.to_bytes().starts_with(br#"{"emptied":{"nsid":1,"instance":9,"#));
        let namespace =
            Namespace::new(Shape::default(), false, VolumeId(4), String::new(), &crate::DecisionInput::default());
        let written = String::from_utf8(Change::Created { nsid: 1, namespace }.to_bytes()).unwrap();
        assert!(written.contains(r#""instance":4"#), "{written}");
        for change in [seated.as_slice(), unseated] {
            let read: Change = serde_json::from_slice(change).unwrap();
            assert_eq!(read.to_bytes(), change);
        }
    }
}
