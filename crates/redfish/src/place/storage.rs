//! Addresses of NVM subsystems.

use http::Method;

use super::{ACTION, Address, GET_POST, PATCH, PATCH_DELETE, READ};

/// The identifier of the primary controller of a drive.
pub(crate) const PRIMARY: &str = "pf";

/// The identifier of the one controller of a plain subsystem.
pub(crate) const PLAIN: &str = "io";

/// Addresses below `/redfish/v1/Storage`. The first name is the subsystem's identifier.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum StoragePlace {
    /// All subsystems.
    Collection,
    /// A subsystem.
    Subsystem(String),
    /// The action that resets the primary controller of a drive.
    ResetDrive(String),
    /// Its controllers.
    Controllers(String),
    /// A controller.
    Controller(String, String),
    /// The action that attaches namespaces to a controller.
    Attach(String, String),
    /// The action that detaches them.
    Detach(String, String),
    /// Its volumes.
    Volumes(String),
    /// A volume.
    Volume(String, String),
    /// What a volume takes, and its traffic.
    VolumeMetrics(String, String),
    /// The action that formats a volume.
    Initialize(String, String),
    /// The action that formats a volume with other blocks.
    Format(String, String),
    /// The action that gives a volume to one function and takes it from all others.
    Map(String, String),
}

impl Address for StoragePlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        let [collection, below @ ..] = segments else { return None };
        if *collection != "Storage" {
            return None;
        }
        let [storage, below @ ..] = below else { return Some(Self::Collection) };
        let storage = (*storage).to_owned();
        let name = |name: &&str| (*name).to_owned();
        Some(match below {
            [] => Self::Subsystem(storage),
            ["Actions", "Oem", "EbofStorage.ResetDrive"] => Self::ResetDrive(storage),
            ["Controllers"] => Self::Controllers(storage),
            ["Controllers", id] => Self::Controller(storage, name(id)),
            ["Controllers", id, "Actions", "StorageController.AttachNamespaces"] => Self::Attach(storage, name(id)),
            ["Controllers", id, "Actions", "StorageController.DetachNamespaces"] => Self::Detach(storage, name(id)),
            ["Volumes"] => Self::Volumes(storage),
            ["Volumes", id] => Self::Volume(storage, name(id)),
            ["Volumes", id, "Metrics"] => Self::VolumeMetrics(storage, name(id)),
            ["Volumes", id, "Actions", "Volume.Initialize"] => Self::Initialize(storage, name(id)),
            ["Volumes", id, "Actions", "Oem", "EbofVolume.Format"] => Self::Format(storage, name(id)),
            ["Volumes", id, "Actions", "Oem", "EbofVolume.Map"] => Self::Map(storage, name(id)),
            _ => return None,
        })
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("StorageCollection", "Storage"),
            ("Storage", "Storage/{StorageId}"),
            ("", "Storage/{StorageId}/Actions/Oem/EbofStorage.ResetDrive"),
            ("StorageControllerCollection", "Storage/{StorageId}/Controllers"),
            ("StorageController", "Storage/{StorageId}/Controllers/{StorageControllerId}"),
            ("", "Storage/{StorageId}/Controllers/{StorageControllerId}/Actions/StorageController.AttachNamespaces"),
            ("", "Storage/{StorageId}/Controllers/{StorageControllerId}/Actions/StorageController.DetachNamespaces"),
            ("VolumeCollection", "Storage/{StorageId}/Volumes"),
            ("Volume", "Storage/{StorageId}/Volumes/{VolumeId}"),
            ("VolumeMetrics", "Storage/{StorageId}/Volumes/{VolumeId}/Metrics"),
            ("", "Storage/{StorageId}/Volumes/{VolumeId}/Actions/Volume.Initialize"),
            ("", "Storage/{StorageId}/Volumes/{VolumeId}/Actions/Oem/EbofVolume.Format"),
            ("", "Storage/{StorageId}/Volumes/{VolumeId}/Actions/Oem/EbofVolume.Map"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        let (storage, below): (&str, &[&str]) = match self {
            Self::Collection => return vec!["Storage"],
            Self::Subsystem(storage) => (storage, &[]),
            Self::ResetDrive(storage) => (storage, &["Actions", "Oem", "EbofStorage.ResetDrive"]),
            Self::Controllers(storage) => (storage, &["Controllers"]),
            Self::Controller(storage, id) => (storage, &["Controllers", id]),
            Self::Attach(storage, id) => {
                (storage, &["Controllers", id, "Actions", "StorageController.AttachNamespaces"])
            }
            Self::Detach(storage, id) => {
                (storage, &["Controllers", id, "Actions", "StorageController.DetachNamespaces"])
            }
            Self::Volumes(storage) => (storage, &["Volumes"]),
            Self::Volume(storage, id) => (storage, &["Volumes", id]),
            Self::VolumeMetrics(storage, id) => (storage, &["Volumes", id, "Metrics"]),
            Self::Initialize(storage, id) => (storage, &["Volumes", id, "Actions", "Volume.Initialize"]),
            Self::Format(storage, id) => (storage, &["Volumes", id, "Actions", "Oem", "EbofVolume.Format"]),
            Self::Map(storage, id) => (storage, &["Volumes", id, "Actions", "Oem", "EbofVolume.Map"]),
        };
        [&["Storage", storage], below].concat()
    }

    fn methods(&self) -> &'static [Method] {
        match self {
            Self::Controller(_, id) if id != PRIMARY && id != PLAIN => PATCH,
            Self::Volumes(_) => GET_POST,
            Self::Volume(..) => PATCH_DELETE,
            _ if self.is_action() => ACTION,
            _ => READ,
        }
    }
}

impl StoragePlace {
    const fn is_action(&self) -> bool {
        matches!(
            self,
            Self::ResetDrive(_)
                | Self::Attach(..)
                | Self::Detach(..)
                | Self::Initialize(..)
                | Self::Format(..)
                | Self::Map(..)
        )
    }
}
