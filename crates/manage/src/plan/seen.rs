//! What hosts take a namespace for that takes the place of another one, as far as two
//! configurations tell. Which data a path leads to is not known here.

use ebof_nvme::Uuid;
use serde::Serialize;

use crate::config::{Eui64, IdentityRule, Namespace, Nguid, Subsystem, default_uuid};
use crate::drive::Drive;

/// What hosts take a namespace for that takes the place of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeenAs {
    /// Another disk: they lose the one that they have.
    AnotherDisk,
    /// The disk that they have, opened in another way.
    SameDisk,
    /// The disk that they have, although the data are others. A target refuses that.
    SameDiskWithOtherData,
}

impl SeenAs {
    /// It in words for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::AnotherDisk => "another disk for hosts",
            Self::SameDisk => "the same disk for hosts",
            Self::SameDiskWithOtherData => "other data under the identifiers of the disk that hosts have",
        }
    }
}

/// What a namespace has for its identity that does not follow its data.
pub(super) fn pins((subsystem, namespace): (&Subsystem, &Namespace)) -> (Option<Uuid>, Option<Nguid>, Option<Eui64>) {
    let by_name = || match subsystem.identity {
        IdentityRule::Name => Some(default_uuid(&subsystem.nqn, namespace.nsid)),
        IdentityRule::Data => None,
    };
    (namespace.uuid.or_else(by_name), namespace.nguid, namespace.eui64)
}

/// What hosts take `now` for, that has the NSID of `before`. Hosts compare all identifiers that
/// there are, and the NGUID is that of the UUID if there is none.
pub(super) fn seen_as(before: (&Subsystem, &Namespace), now: (&Subsystem, &Namespace)) -> SeenAs {
    let (pinned, same_data) = (pins(now), before.1.drive.has_same_data(&now.1.drive));
    let has_data = |drive: &Drive| !matches!(drive, Drive::Memory { .. });
    match pinned == pins(before) {
        true if same_data && has_data(&now.1.drive) => SeenAs::SameDisk,
        true if pinned.0.is_some() => SeenAs::SameDiskWithOtherData,
        _ => SeenAs::AnotherDisk,
    }
}
