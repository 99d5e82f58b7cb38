//! What hosts and the box ask of a drive.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_nvme::firmware::Commit;
use ebof_nvme::log::{Lid, SelfTestCode};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::virtualization::VirtualizationManagement;
use ebof_nvme::{ControllerId, Nsid};

use crate::change::unfinished::Unfinished;
use crate::function::{FunctionId, PortNames, Share};
use crate::logs::health::Thresholds;
use crate::maintenance::sanitize::Restriction;
use crate::namespace::placement::{Attachments, Placement};
use crate::namespace::{NewNamespace, VolumeId};
use crate::request::Refusal;
use crate::reservation;

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
    /// A namespace is put into an ANA group; only the box asks for that.
    Group(Nsid, u32),
    /// A function is given to these ports, and to no other one.
    GiveTo(FunctionId, PortNames),
    /// A function gets another share of the drive.
    SetShare(FunctionId, Share),
    /// A namespace is detached from every function, from every host if it may have one controller
    /// only, and attached to this function.
    Map(Nsid, Option<FunctionId>),
    /// A function gets these resources, this state and these ports, in one step.
    Place(FunctionId, Placement),
    /// An online function is reached through these ports from now on. Nobody loses what it has by
    /// that: whoever asks has made sure that nothing comes through the others any more.
    Shift(FunctionId, PortNames),
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
            Self::Group(..) => "put a namespace into an ANA group",
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
            Self::Shift(..) => "change the ports of a function",
            Self::AttachExactly(..) => "attach a namespace to others",
            Self::Begin(..) => "begin a transaction",
            Self::End(_) => "end a transaction",
            Self::Undo(_) => "take a transaction back",
            Self::ResetPrimary => "reset the primary controller",
        }
    }

    /// Refuses what has to wait while the drive is sanitized, or after that has failed.
    pub(super) fn check(&self, restriction: Restriction) -> Result<(), Refusal> {
        let (opcode, cdw10) = match self {
            // These are never restricted.
            Self::AssignCntlid
            | Self::Reset
            | Self::Group(..)
            | Self::GiveTo(..)
            | Self::SetShare(..)
            | Self::Place(..)
            | Self::Shift(..)
            | Self::AttachExactly(..)
            | Self::Begin(..)
            | Self::End(_)
            | Self::Undo(_)
            | Self::Withdraw(_)
            | Self::ResetPrimary => return Ok(()),
            Self::Reserve(..) => return restriction.check_io(nvm::RESERVATION_REGISTER),
            Self::Create(_) | Self::CreateOrdered(_) | Self::Delete(_) => (admin::NAMESPACE_MANAGEMENT, 0),
            Self::Attach(..) | Self::Detach(..) | Self::AttachMore(..) | Self::DetachFrom(..) | Self::Map(..) => {
                (admin::NAMESPACE_ATTACHMENT, 0)
            }
            Self::Protect(..) => (admin::SET_FEATURES, ebof_nvme::feature::Fid::WRITE_PROTECTION.0),
            Self::Persist(..) => (admin::SET_FEATURES, ebof_nvme::feature::Fid::RESERVATION_PERSISTENCE.0),
            Self::Log(query) => (admin::GET_LOG_PAGE, query.lid.0),
            Self::Download(..) => (admin::FIRMWARE_DOWNLOAD, 0),
            Self::Commit(_) | Self::Stage(..) => (admin::FIRMWARE_COMMIT, 0),
            Self::SelfTest(..) => (admin::DEVICE_SELF_TEST, 0),
            Self::Format(..) => (admin::FORMAT_NVM, 0),
            Self::Sanitize(_) => (admin::SANITIZE, 0),
            Self::Virtualize(_) => (admin::VIRTUALIZATION_MANAGEMENT, 0),
            Self::SanitizeConfig(_) => (admin::SET_FEATURES, ebof_nvme::feature::Fid::SANITIZE_CONFIG.0),
        };
        restriction.check_admin(opcode, cdw10.into())
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

/// A namespace that the box creates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ordered {
    /// What it is.
    pub namespace: NewNamespace,
    /// Its NSID; `None`: the lowest that is free.
    pub nsid: Option<u32>,
    /// Who has it from the beginning; `None`: as the configuration says of new namespaces.
    pub attachments: Option<Attachments>,
    /// The transaction that it is a part of, and goes with if that is taken back.
    pub transaction: Option<String>,
}
