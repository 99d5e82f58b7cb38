//! A drive: decides what becomes of its hosts' requests.
//!
//! Deciding changes no durable state. A [`Decision`] contains the changes to be made durable, and
//! what is to be done on the medium before and after that; then the changes are applied
//! ([`Drive::apply`]) and the host is answered.

mod by_box;
mod capture;
mod firmware;
mod lifecycle;
mod manage;
mod media;
mod pages;
mod place;
mod reserve;
#[cfg(test)]
mod tests;
mod transact;
mod virtualize;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::event::AsyncEvent;
use ebof_nvme::firmware::Commit;
use ebof_nvme::log::{Lid, ReservationEvent, SelfTestCode};
use ebof_nvme::virtualization::VirtualizationManagement;
use ebof_nvme::{ControllerId, HostId, Nsid, Status};

use crate::block_format::BlockFormat;
use crate::change::{Change, State};
use crate::event_log::Contexts;
use crate::firmware::Download;
use crate::function::{FunctionId, Share};
use crate::health::{Condition, TEMPERATURE_KELVIN, Thresholds};
use crate::namespace::{Namespace, NewNamespace, Shape, VolumeId};
use crate::placement::{Attachments, Placement};
use crate::profile::Profile;
use crate::request::{Answer, DecisionInput, Origin, Refusal};
use crate::reservation;
use crate::sanitize::SanitizeSpeed;
use crate::telemetry::HostTelemetry;
use crate::unfinished::Unfinished;
use crate::view::View;

pub use by_box::Ordered;
pub use capture::MediumStatus;
pub use lifecycle::HealthUpdate;
pub use media::{Sanitized, is_offered};
pub use pages::keeps_page;

/// What the configuration says about a drive, besides its profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Limits.
    pub profile: Profile,
    /// Namespaces together may have more capacity than the drive.
    pub overcommit: bool,
    /// A namespace has one host at a time, shared or not.
    pub exclusive: bool,
    /// New namespaces are attached to all hosts.
    pub attach_everyone: bool,
    /// New and formatted namespaces have a checksum for each block.
    pub checked: bool,
    /// New and formatted namespaces are encrypted.
    pub encrypted: bool,
    /// The hosts that may create, delete, attach and format.
    pub managers: Managers,
    /// The most that a host's own namespaces may hold together (NCAP), in bytes.
    pub quotas: BTreeMap<String, u64>,
    /// Bytes that may be written to the medium over the drive's life; `None`: as the profile says.
    pub endurance_bytes: Option<u64>,
    /// Entries of the Error Information log that are kept and shown.
    pub error_entries: usize,
    /// Revision of the built-in firmware.
    pub revision: String,
    /// NQN of the subsystem.
    pub subsystem: String,
    /// Functions, up to [`FunctionId::MAX`].
    pub functions: u16,
}

/// Which hosts may manage a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Managers {
    /// Every host that may connect.
    #[default]
    Everyone,
    /// Hosts with these NQNs.
    Only(BTreeSet<String>),
}

/// Sizes of a medium, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// What can be allocated (TNVMCAP).
    pub total_bytes: u64,
    /// The unit of allocation: a power of two.
    pub extent_bytes: u64,
}

/// A request of a host to the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Namespace Management, create.
    Create(NewNamespace),
    /// Namespace Management, delete; [`Nsid::ALL`] deletes all of them.
    Delete(Nsid),
    /// Namespace Attachment, attach.
    Attach(Nsid, Vec<ControllerId>),
    /// Namespace Attachment, detach.
    Detach(Nsid, Vec<ControllerId>),
    /// Set Features, Namespace Write Protection Config.
    Protect(Nsid, bool),
    /// Reservation Register, Acquire and Release.
    Reserve(Nsid, reservation::Command),
    /// Set Features, Reservation Persistence; [`Nsid::ALL`] for all namespaces of the host.
    Persist(Nsid, bool),
    /// A controller was made for the host of the request.
    AssignCntlid,
    /// The controller was reset or shut down.
    Reset,
    /// Get Log Page, of a page that the drive keeps.
    Log(LogQuery),
    /// Firmware Image Download: offset in bytes, and a piece.
    Download(u64, Vec<u8>),
    /// Firmware Commit.
    Commit(Commit),
    /// Device Self-test.
    SelfTest(SelfTestCode, Nsid),
    /// Format NVM; [`Nsid::ALL`] for all namespaces that are attached to the host.
    Format(Nsid, ebof_nvme::media::Format),
    /// Sanitize.
    Sanitize(ebof_nvme::media::Sanitize),
    /// Set Features, Sanitize Config: No-Deallocate is disregarded instead of refused.
    SanitizeConfig(bool),
    /// Virtualization Management.
    Virtualize(VirtualizationManagement),
    /// A function is given to the port with this name, or to none.
    GiveTo(FunctionId, Option<String>),
    /// A function gets another share of the drive.
    SetShare(FunctionId, Share),
    /// A namespace is detached from every function, from every host if it may have one controller
    /// only, and attached to this function.
    Map(Nsid, Option<FunctionId>),
    /// A function gets these resources, this state and this port, in one step.
    Place(FunctionId, Placement),
    /// A namespace is attached to these, and to nobody else.
    AttachExactly(Nsid, Attachments),
    /// A namespace is created with those who have it.
    CreateOrdered(Ordered),
    /// The namespace with this name on the medium, which a transaction has created, is deleted.
    Withdraw(VolumeId),
    /// A namespace is attached to these, too.
    AttachMore(Nsid, Attachments),
    /// A namespace is detached from these.
    DetachFrom(Nsid, Attachments),
    /// A firmware image is put into a slot; 0: the drive chooses.
    Stage(u8, Arc<[u8]>),
    /// A transaction of the box with this identifier begins: what its objects here are.
    Begin(String, Unfinished),
    /// It is over, and made.
    End(String),
    /// It is taken back, and over.
    Undo(String),
    /// The primary controller is reset, which takes all functions offline.
    ResetPrimary,
}

impl Request {
    /// The kind of request, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create(_) | Self::CreateOrdered(_) => "create a namespace",
            Self::Delete(_) | Self::Withdraw(_) => "delete a namespace",
            Self::Attach(..) | Self::AttachMore(..) => "attach a namespace",
            Self::Detach(..) | Self::DetachFrom(..) => "detach a namespace",
            Self::Protect(..) => "change the write protection",
            Self::Reserve(..) => "change reservations",
            Self::Persist(..) => "change the persistence of reservations",
            Self::AssignCntlid => "take a controller",
            Self::Reset => "reset",
            Self::Log(_) => "read a log page",
            Self::Download(..) => "download firmware",
            Self::Commit(_) => "commit firmware",
            Self::Stage(..) => "put a firmware image into a slot",
            Self::SelfTest(..) => "test the drive",
            Self::Format(..) => "format a namespace",
            Self::Sanitize(_) => "sanitize the drive",
            Self::SanitizeConfig(_) => "change how sanitizing answers",
            Self::Virtualize(_) => "change the resources of functions",
            Self::GiveTo(..) => "give a function to a port",
            Self::SetShare(..) => "change the share of a function",
            Self::Map(..) => "move a namespace to a function",
            Self::Place(..) => "place a function",
            Self::AttachExactly(..) => "attach a namespace to others",
            Self::Begin(..) => "begin a transaction",
            Self::End(_) => "end a transaction",
            Self::Undo(_) => "take a transaction back",
            Self::ResetPrimary => "reset the primary controller",
        }
    }
}

/// A Get Log Page command for a page that the drive keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// Which page.
    pub lid: Lid,
    /// Log Specific Parameter.
    pub parameter: u8,
    /// Log Specific Identifier.
    pub identifier: u16,
    /// The namespace, for pages that each namespace has.
    pub nsid: Nsid,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Retain Asynchronous Event: reading the page does not clear the event.
    pub retain: bool,
    /// Temperature thresholds of the controller.
    pub thresholds: Thresholds,
    /// Transport of the controller, as the discovery log names it.
    pub transport: u8,
}

/// What is to be done for a request, in the order of the first four fields.
#[derive(Debug, PartialEq)]
pub struct Decision {
    /// The answer to the host, when everything is done.
    pub answer: Answer,
    /// To be done on the medium before the changes become durable.
    pub before: Vec<Effect>,
    /// To be made durable.
    pub changes: Vec<Change>,
    /// To be done on the medium when the changes are durable.
    pub after: Vec<Effect>,
    /// Reservation notices for all controllers of these hosts.
    pub notices: Vec<(Nsid, HostId, ReservationEvent)>,
    /// Commands of these hosts to the namespaces have to end before the answer.
    pub abort: Vec<(Nsid, HostId)>,
    /// Namespaces that these functions lose ([`Nsid::ALL`]: all of theirs, and their ports), or
    /// (`None`) those hosts of the drive's own subsystem that are not attached any more: their
    /// commands to them have to end before others have the namespaces.
    pub lost: Vec<(Nsid, Option<FunctionId>)>,
    /// Events for all controllers.
    pub events: Vec<AsyncEvent>,
    /// If there are any: the host is answered, and commands to these namespaces are executed, only
    /// when the old data of the drive are erased.
    pub erased: Vec<VolumeId>,
}

/// A consequence of a change on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Create a volume.
    Create {
        /// Its name.
        volume: VolumeId,
        /// Its size in blocks.
        blocks: u64,
        /// Blocks for which extents may be allocated.
        capacity_blocks: u64,
        /// How the blocks are stored.
        block_format: BlockFormat,
    },
    /// Remove a volume, and free its extents.
    Remove(VolumeId),
}

/// A drive's state, and the decisions about its hosts' requests.
#[derive(Debug)]
pub struct Drive {
    state: State,
    settings: Settings,
    capacity: Capacity,
    condition: Condition,
    /// The firmware image that is being downloaded.
    download: Download,
    /// Reporting contexts of the Persistent Event Log.
    contexts: Contexts,
    /// The telemetry that a host had captured.
    telemetry: HostTelemetry,
    medium_status: MediumStatus,
    /// Namespaces whose old data are being erased, and the percentage that is left. By their names
    /// on the medium, because an NSID may be used again for another namespace.
    erasing: BTreeMap<VolumeId, u8>,
    /// Hosts have written since the last sanitize, and the state does not say so yet.
    written: bool,
    /// Progress of the current sanitize pass.
    sanitized_bytes: u64,
    /// Measured speed of sanitize passes.
    sanitize_speed: SanitizeSpeed,
    /// Feature 17h; until the drive is closed.
    no_deallocate_warns: bool,
    /// The reason why telemetry is to be captured.
    pending_capture: Option<String>,
}

impl Drive {
    /// The drive that was in `state`.
    #[must_use]
    pub fn new(state: State, settings: Settings, capacity: Capacity) -> Self {
        let condition = Condition {
            kelvin: TEMPERATURE_KELVIN,
            total_bytes: capacity.total_bytes,
            free_bytes: capacity.total_bytes,
            ..Condition::default()
        };
        Self {
            state,
            settings,
            capacity,
            condition,
            download: Download::default(),
            contexts: Contexts::default(),
            telemetry: HostTelemetry::default(),
            medium_status: MediumStatus::default(),
            erasing: BTreeMap::new(),
            written: false,
            sanitized_bytes: 0,
            sanitize_speed: SanitizeSpeed::default(),
            no_deallocate_warns: false,
            pending_capture: None,
        }
    }

    /// The durable state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The settings of the configuration.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the settings. What exists already and the new settings do not allow stays as it is.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Sizes of its medium.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Applies a change that is durable.
    pub fn apply(&mut self, change: Change) {
        if matches!(change, Change::Sanitized { .. }) {
            // The new state says whether hosts have written.
            self.written = false;
        }
        self.state.apply(change);
    }

    /// A snapshot for controllers and log pages.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::new(View::new(self))
    }

    /// Decides what is to be done for a request.
    ///
    /// # Errors
    /// The request is refused, with the specification's status.
    pub fn decide(&mut self, request: &Request, origin: &Origin, input: &DecisionInput) -> Result<Decision, Refusal> {
        self.check_restriction(request)?;
        match request {
            Request::Create(wanted) => self.create(wanted, origin, input),
            Request::Delete(nsid) => self.delete(*nsid, origin, input),
            Request::Attach(nsid, controllers) => self.attach(*nsid, controllers, origin),
            Request::Detach(nsid, controllers) => self.detach(*nsid, controllers, origin),
            Request::Protect(nsid, protected) => self.protect(*nsid, *protected, origin),
            Request::Reserve(nsid, command) => self.reserve(*nsid, command, origin),
            Request::Persist(nsid, persistent) => self.persist(*nsid, *persistent, origin),
            Request::AssignCntlid => Ok(self.assign_cntlid(origin, input)),
            Request::Reset => Ok(self.reset(origin, input)),
            Request::Log(query) => self.log(query, origin, input),
            Request::Download(offset, piece) => self.download(*offset, piece, origin),
            Request::Commit(commit) => self.commit(*commit, origin, input),
            Request::SelfTest(code, nsid) => self.self_test(*code, *nsid, origin),
            Request::Format(nsid, command) => self.format(*nsid, *command, origin, input),
            Request::Sanitize(command) => self.sanitize(command, origin, input),
            Request::SanitizeConfig(warn) => {
                self.may_manage(origin)?;
                self.no_deallocate_warns = *warn;
                Ok(Decision::nothing())
            }
            Request::Virtualize(command) => self.virtualize(command, origin),
            Request::GiveTo(id, port) => self.give_to(*id, port.as_ref(), origin),
            Request::SetShare(id, share) => self.set_share(*id, *share, origin),
            Request::Map(nsid, to) => self.map(*nsid, *to, origin),
            Request::Place(id, to) => self.place(*id, to, origin),
            Request::AttachExactly(nsid, to) => self.attach_exactly(*nsid, to, origin),
            Request::Begin(id, before) => self.begin(id, before, origin),
            Request::End(id) => self.end(id, origin),
            Request::Undo(id) => self.undo(id, origin, input),
            Request::CreateOrdered(ordered) => self.create_ordered(ordered, origin, input),
            Request::Withdraw(volume) => self.withdraw(*volume, origin, input),
            Request::AttachMore(nsid, more) => self.attach_more(*nsid, more, origin),
            Request::DetachFrom(nsid, from) => self.detach_from(*nsid, from, origin),
            Request::Stage(slot, image) => self.stage(*slot, image, origin, input),
            Request::ResetPrimary => self.reset_primary(origin),
        }
    }

    /// Capacity that no namespace has claimed (UNVMCAP), bytes.
    #[must_use]
    pub fn unallocated_bytes(&self) -> u64 {
        let claimed = self.state.namespaces.values().map(|namespace| self.claim(namespace));
        self.capacity.total_bytes.saturating_sub(claimed.fold(0, u64::saturating_add))
    }

    /// What a namespace takes from the capacity (NVMCAP), bytes.
    #[must_use]
    pub fn claim(&self, namespace: &Namespace) -> u64 {
        self.claimed_bytes(&namespace.shape)
    }

    fn claimed_bytes(&self, shape: &Shape) -> u64 {
        let extent_bytes = self.capacity.extent_bytes;
        shape.block_format().extents(shape.capacity_blocks, extent_bytes).saturating_mul(extent_bytes)
    }

    fn find_attached(&self, nsid: Nsid, origin: &Origin) -> Result<&Namespace, Refusal> {
        let namespace = self.find(nsid)?;
        if namespace.is_attached_to(origin) { Ok(namespace) } else { Err(Refusal::at(Status::INVALID_NAMESPACE, NSID)) }
    }

    fn find(&self, nsid: Nsid) -> Result<&Namespace, Refusal> {
        self.state.namespaces.get(&nsid.0).ok_or(Refusal::at(Status::INVALID_NAMESPACE, NSID))
    }
}

impl Decision {
    fn nothing() -> Self {
        Self {
            answer: Answer::Done(0),
            before: Vec::new(),
            changes: Vec::new(),
            after: Vec::new(),
            notices: Vec::new(),
            abort: Vec::new(),
            lost: Vec::new(),
            events: Vec::new(),
            erased: Vec::new(),
        }
    }

    fn change(change: Change) -> Self {
        Self { changes: vec![change], ..Self::nothing() }
    }
}

impl Managers {
    /// Whether the host with this NQN may manage the drive.
    #[must_use]
    pub fn contains(&self, host: &str) -> bool {
        match self {
            Self::Everyone => true,
            Self::Only(hosts) => hosts.contains(host),
        }
    }
}

/// Offset of the NSID in a command.
const NSID: u8 = 4;
