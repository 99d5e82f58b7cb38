//! What a namespace is, whichever controller and number lead to it: its identifiers, or its place
//! in a subsystem if it has none; and its format. Compares them, and keeps nothing: which
//! namespaces are open is in `shared/opened.rs`.

use std::sync::Arc;

use ebof_nvme::identify::{Descriptors, IdentifyNamespace, NamespaceIdDescriptor, ProtectionType};
use ebof_nvme::{Nqn, Nsid};

use crate::error::Error;

/// The identifiers of a namespace, as a controller reports them. All zeros: not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identifiers {
    nguid: [u8; 16],
    eui64: [u8; 8],
    uuid: [u8; 16],
    csi: u8,
    /// Whether the controller has the list of descriptors; only that has UUID and command set.
    has_list: bool,
}

impl Identifiers {
    /// From Identify Namespace and the list of descriptors, if the controller has one.
    pub(crate) fn new(identify: &IdentifyNamespace, descriptors: Option<&[u8]>) -> Self {
        let mut reported = Self {
            nguid: identify.nguid,
            eui64: identify.eui64,
            uuid: [0; 16],
            csi: 0,
            has_list: descriptors.is_some(),
        };
        for descriptor in descriptors.into_iter().flat_map(Descriptors::new).flatten() {
            match descriptor {
                NamespaceIdDescriptor::Nguid(id) => reported.nguid = id,
                NamespaceIdDescriptor::Eui64(id) => reported.eui64 = id,
                NamespaceIdDescriptor::Uuid(id) => reported.uuid = id.0,
                NamespaceIdDescriptor::Csi(csi) => reported.csi = csi.0,
                NamespaceIdDescriptor::Other { .. } => {}
            }
        }
        reported
    }

    /// Whether NGUID or EUI-64 is reported, which do not depend on the list.
    fn has_global_id(&self) -> bool {
        self.nguid != [0; 16] || self.eui64 != [0; 8]
    }
}

/// What a namespace is. The same through all controllers that lead to it.
#[derive(Clone, Debug)]
pub(crate) struct NamespaceIdentity {
    identifiers: Identifiers,
    /// Where it was found, which decides if it has no identifiers.
    subsystem: Arc<Nqn>,
    nsid: Nsid,
}

/// What an identity is looked up by: the first of the identifiers that it has. Identities that are
/// the same have the same key, unless the list of descriptors, in which alone the UUID is, was
/// refused for one of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NamespaceKey {
    Nguid([u8; 16]),
    Eui64([u8; 8]),
    Uuid([u8; 16]),
    /// Without identifiers: the subsystem and the NSID.
    Place(Arc<Nqn>, u32),
}

impl NamespaceIdentity {
    pub(crate) fn new(subsystem: &Arc<Nqn>, nsid: Nsid, identifiers: Identifiers) -> Self {
        Self { identifiers, subsystem: Arc::clone(subsystem), nsid }
    }

    pub(crate) fn key(&self) -> NamespaceKey {
        match &self.identifiers {
            Identifiers { nguid, .. } if *nguid != [0; 16] => NamespaceKey::Nguid(*nguid),
            Identifiers { eui64, .. } if *eui64 != [0; 8] => NamespaceKey::Eui64(*eui64),
            Identifiers { uuid, .. } if *uuid != [0; 16] => NamespaceKey::Uuid(*uuid),
            _ => NamespaceKey::Place(Arc::clone(&self.subsystem), self.nsid.0),
        }
    }

    /// As text, the same through all controllers of a namespace; empty without identifiers.
    pub(crate) fn text(&self) -> String {
        let Identifiers { nguid, eui64, uuid, .. } = &self.identifiers;
        let ids: [(&str, &[u8]); 3] = [("nguid", nguid), ("eui64", eui64), ("uuid", uuid)];
        let reported = ids.into_iter().filter(|(_, id)| id.iter().any(|&byte| byte != 0));
        let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        reported.map(|(name, id)| format!("{name}.{}", hex(id))).collect::<Vec<_>>().join(" ")
    }

    /// Whether both report the same identifiers, and none of them more than the other.
    pub(crate) fn reports_the_same(&self, other: &Self) -> bool {
        self.identifiers == other.identifiers
    }

    /// Whether both are the same namespace. As on Linux, an added or missing identifier makes it
    /// another one. If the list of descriptors was refused one of the two times, the identifiers in
    /// Identify Namespace decide, if there are any. Without any, the place does.
    pub(crate) fn is_same_as(&self, before: &Self) -> bool {
        let (now, then) = (&self.identifiers, &before.identifiers);
        let is_here = self.nsid == before.nsid && self.subsystem == before.subsystem;
        let named = now.nguid == then.nguid && now.eui64 == then.eui64;
        match (then.has_list, now.has_list) {
            (true, false) if then.uuid != [0; 16] => named && now.has_global_id(),
            (true, true) => {
                let has_id = now.has_global_id() || now.uuid != [0; 16];
                named && now.uuid == then.uuid && now.csi == then.csi && (has_id || is_here)
            }
            _ => named && (now.has_global_id() || is_here),
        }
    }
}

/// Block size, metadata size and protection: if one changes, LBAs refer to other data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceFormat {
    block_bytes: Option<u32>,
    metadata_bytes: u16,
    protection: ProtectionType,
}

impl NamespaceFormat {
    pub(crate) fn from_identify(identify: &IdentifyNamespace) -> Self {
        let format = identify.format();
        Self { block_bytes: format.block_bytes(), metadata_bytes: format.ms.get(), protection: identify.protection() }
    }
}

/// Why a namespace is not the one that was opened. Its size may differ: it was resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    Identity,
    Format,
}

impl Mismatch {
    /// The error of commands to what was opened.
    pub(crate) const fn error(self, nsid: Nsid) -> Error {
        match self {
            Self::Identity => Error::Replaced { nsid },
            Self::Format => Error::Format { nsid, reason: "it was formatted with other blocks while it was in use" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(subsystem: &str, nsid: u32) -> (Arc<Nqn>, Nsid) {
        (Arc::new(Nqn::parse(subsystem).unwrap()), Nsid(nsid))
    }

    fn at((subsystem, nsid): &(Arc<Nqn>, Nsid), id: u8, list: Option<&[u8]>) -> NamespaceIdentity {
        let identify = IdentifyNamespace { nguid: [id; 16], ..IdentifyNamespace::default() };
        NamespaceIdentity::new(subsystem, *nsid, Identifiers::new(&identify, list))
    }

    fn list(uuid: u8) -> Vec<u8> {
        let mut list = vec![3, 16, 0, 0];
        list.extend([uuid; 16]);
        list
    }

    #[test]
    fn identifiers_are_compared_as_far_as_they_are_reported() {
        let here = place("nqn.2014-08.org.example:a", 1);
        let identity = |id: u8, list: Option<&[u8]>| at(&here, id, list);
        let uuid = list(7);
        let with = |id| identity(id, Some(&uuid));
        assert!(with(1).is_same_as(&with(1)) && !with(2).is_same_as(&with(1)));
        assert!(!identity(1, Some(&[])).is_same_as(&with(1)) && !with(1).is_same_as(&identity(1, Some(&[]))));
        // The list is refused one of the two times.
        assert!(identity(1, None).is_same_as(&with(1)) && with(1).is_same_as(&identity(1, None)));
        assert!(!identity(0, None).is_same_as(&with(0)), "no identifier is left to compare");
    }

    #[test]
    fn a_namespace_with_identifiers_is_the_same_at_every_place() {
        let [one, other] = [1, 2].map(|nsid| place("nqn.2014-08.org.example:a", nsid));
        let elsewhere = place("nqn.2014-08.org.example:b", 1);
        for (id, uuid) in [(3, 0), (3, 7), (0, 7)] {
            let list = list(uuid);
            let [here, there, far] = [&one, &other, &elsewhere].map(|place| at(place, id, Some(&list)));
            assert!(there.is_same_as(&here) && far.is_same_as(&here));
            assert!(here.key() == there.key() && here.key() == far.key() && !here.text().is_empty());
        }
    }

    #[test]
    fn a_namespace_without_identifiers_is_known_by_its_place() {
        let [one, other] = [1, 2].map(|nsid| place("nqn.2014-08.org.example:a", nsid));
        let elsewhere = place("nqn.2014-08.org.example:b", 1);
        for list in [None, Some(&[][..])] {
            let [here, there, far] = [&one, &other, &elsewhere].map(|place| at(place, 0, list));
            assert!(here.is_same_as(&at(&one, 0, list)) && here.key() == at(&one, 0, list).key());
            assert!(!there.is_same_as(&here) && !far.is_same_as(&here));
            assert!(here.key() != there.key() && here.key() != far.key() && here.text().is_empty());
        }
    }
}
