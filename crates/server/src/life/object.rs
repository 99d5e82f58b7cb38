//! Which data a namespace has, and the identifiers that hosts know it by
//! ([0085](../../../../docs/adr/0085-identity-follows-data.md)).
//!
//! What tells the data of a device apart is in `ebof_backend::DataOrigin`.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use ebof_backend::{BackingId, DataOrigin, Device, Persistent};
use ebof_fabrics::DataId;
use ebof_manage::Drive;
use ebof_manage::config::{Config, IdentityRule, Namespace, Subsystem, default_uuid};
use ebof_nvme::{Nqn, Uuid};

use crate::environment::Environment;
use crate::life::startup::{Devices, NamespaceKey, OpenNamespace, StartError};

/// What hosts are told about which namespace it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identifiers {
    pub(crate) uuid: Uuid,
    pub(crate) nguid: [u8; 16],
    pub(crate) eui64: [u8; 8],
}

/// Which data a namespace has that was opened a moment ago.
pub(crate) fn object_of(
    device: &Arc<dyn Device>,
    subsystem: &Nqn,
    namespace: &Namespace,
    environment: &Environment,
) -> io::Result<DataId> {
    let here = |name: &str| digest(&environment.machine, name);
    Ok(match (device.persistent(), &namespace.drive) {
        (Some(persistent), Drive::File(drive)) => {
            let origin = persistent.origin();
            let object = match &origin {
                DataOrigin::Recorded(identity) => DataId(*identity),
                DataOrigin::Everywhere(name) => digest(&EVERYWHERE, name),
                DataOrigin::Machine(name) | DataOrigin::Boot(name) => here(name),
                DataOrigin::Unknown => random(environment)?,
            };
            if matches!(origin, DataOrigin::Machine(_) | DataOrigin::Unknown) && persistent.record(object.0) {
                return Ok(object);
            }
            if namespace.uuid.is_none() {
                warn_of_end(&origin, &drive.path, subsystem, namespace.nsid);
            }
            object
        }
        // It has no data.
        (_, Drive::Null { size_bytes }) => {
            digest(&EVERYWHERE, &format!("null:{subsystem}/{}/{size_bytes}", namespace.nsid))
        }
        // What does not tell its origin is named by its path.
        (None, Drive::File(drive)) => here(&format!("path:{}", drive.path)),
        (_, Drive::Memory { .. }) => random(environment)?,
    })
}

/// What has no lasting identifier is another disk one day, and not what hosts take it for.
fn warn_of_end(origin: &DataOrigin, path: &str, subsystem: &Nqn, nsid: u32) {
    let when = match origin {
        DataOrigin::Boot(_) => "after the next start of this machine",
        DataOrigin::Unknown => "after each start of the target",
        DataOrigin::Recorded(_) | DataOrigin::Everywhere(_) | DataOrigin::Machine(_) => return,
    };
    tracing::warn!(
        path,
        "namespace {nsid} of {subsystem}: nothing tells its data from others, so hosts see another disk {when}; `uuid =` of \
         the namespace gives it an identifier that stays"
    );
}

/// What hosts are told about `namespace`. `again` says that a namespace with a lower NSID has the
/// same data.
pub(crate) fn identifiers(subsystem: &Subsystem, namespace: &Namespace, object: DataId, again: bool) -> Identifiers {
    let followed = || match subsystem.identity {
        IdentityRule::Name => default_uuid(&subsystem.nqn, namespace.nsid),
        // The NQN is part of it: Linux refuses identifiers that it knows from another subsystem.
        IdentityRule::Data if again => Uuid(digest(&object.0, &format!("{}#{}", subsystem.nqn, namespace.nsid)).0),
        IdentityRule::Data => Uuid(digest(&object.0, subsystem.nqn.as_str()).0),
    };
    let uuid = namespace.uuid.unwrap_or_else(followed);
    Identifiers {
        uuid,
        nguid: namespace.nguid.map_or(uuid.0, |nguid| nguid.0),
        eui64: namespace.eui64.map_or([0; 8], |eui64| eui64.0),
    }
}

/// What hosts are told about a namespace that is not open; `None` if it depends on its data.
pub(crate) fn known_uuid(subsystem: &Subsystem, namespace: &Namespace) -> Option<Uuid> {
    let by_name = || (subsystem.identity == IdentityRule::Name).then(|| default_uuid(&subsystem.nqn, namespace.nsid));
    namespace.uuid.or_else(by_name)
}

/// What there was, to be compared with what is to be.
#[derive(Debug, Default)]
pub(crate) struct KnownData(BTreeMap<NamespaceKey, (DataId, Option<BackingId>, Identifiers)>);

impl KnownData {
    /// What `config` has open in `devices`.
    pub(crate) fn from_config(config: &Config, devices: &Devices) -> Self {
        let mut known = BTreeMap::new();
        for subsystem in config.enabled_subsystems() {
            for (namespace, open, identifiers) in devices.identified(subsystem) {
                let key = (subsystem.nqn.clone(), namespace.nsid);
                known.insert(key, (open.object, id_of(open), identifiers));
            }
        }
        Self(known)
    }

    /// What hosts are told about a namespace, if it is there.
    pub(crate) fn identifiers(&self, key: &NamespaceKey) -> Option<Identifiers> {
        self.0.get(key).map(|(.., identifiers)| *identifiers)
    }

    /// Refuses two objects with one identity, and another object under the identifiers of the one
    /// that was there `before`.
    pub(crate) fn check(&self, before: &Self) -> Result<(), StartError> {
        let mut backings: BTreeMap<(&Nqn, DataId), (u32, &Option<BackingId>)> = BTreeMap::new();
        let mut uuids: BTreeMap<[u8; 16], (&NamespaceKey, DataId)> = BTreeMap::new();
        for (key, (object, backing, identifiers)) in &self.0 {
            let (nqn, nsid) = key;
            let (first, first_backing) = *backings.entry((nqn, *object)).or_insert((*nsid, backing));
            let was = before.0.get(key);
            let is_lasting = |id: &Option<BackingId>| id.as_ref().is_some_and(BackingId::is_lasting);
            let is_other = |was: &Option<BackingId>| was != backing && is_lasting(was) && is_lasting(backing);
            let is_copy = was.is_some_and(|was| was.0 == *object && is_other(&was.1));
            if first_backing != backing || is_copy {
                return Err(StartError::SameObject { subsystem: nqn.clone(), nsid: *nsid, first });
            }
            let (other, their) = *uuids.entry(identifiers.uuid.0).or_insert((key, *object));
            if their != *object {
                let (subsystem, first) = (nqn.clone(), format!("{}/{}", other.0, other.1));
                return Err(StartError::SameUuid { subsystem, nsid: *nsid, uuid: identifiers.uuid, first });
            }
            if was.is_some_and(|(was, _, announced)| was != object && announced == identifiers) {
                return Err(StartError::TakenForOther { subsystem: nqn.clone(), nsid: *nsid });
            }
        }
        Ok(())
    }
}

/// Refuses two drives that are one: the one's medium is a copy of the other's, with its namespaces
/// and their identifiers.
pub(crate) fn check_drives(devices: &Devices) -> Result<(), StartError> {
    let mut uuids: BTreeMap<[u8; 16], &str> = BTreeMap::new();
    for opened in &devices.actors {
        let name = opened.config.name.as_str();
        let first = *uuids.entry(opened.actor.view().uuid).or_insert(name);
        if first != name {
            return Err(StartError::SameDrive { name: name.to_owned(), first: first.to_owned() });
        }
    }
    Ok(())
}

fn id_of(open: &OpenNamespace) -> Option<BackingId> {
    open.device.persistent().and_then(Persistent::id)
}

fn random(environment: &Environment) -> io::Result<DataId> {
    let mut bytes = [0; 16];
    environment.clock.fill(&mut bytes).map_err(io::Error::other)?;
    Ok(DataId(*uuid::Builder::from_random_bytes(bytes).as_uuid().as_bytes()))
}

/// A UUID of version 5 (RFC 9562).
fn digest(space: &[u8; 16], name: &str) -> DataId {
    let space = uuid::Uuid::from_bytes(*space);
    DataId(uuid::Uuid::new_v5(&space, name.as_bytes()).into_bytes())
}

/// The name space of identities that are the same on every machine. Changing it changes every one
/// of them.
const EVERYWHERE: [u8; 16] = 0x2c0e_75d1_9b57_4f6e_a1f3_6562_6f66_0002_u128.to_be_bytes();

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: [u8; 16] = [1; 16];

    fn subsystem(name: &str) -> Subsystem {
        Subsystem::new(Nqn::parse(&format!("nqn.2014-08.org.example:{name}")).unwrap())
    }

    // @test output.derived-identifiers
    #[test]
    fn identities_never_change() {
        // Hosts remember these: a new version of ebof must derive the same.
        let disk = digest(&EVERYWHERE, "eui.0025385b71b00000");
        assert_eq!(Uuid(disk.0).to_string(), "e6dc8100-262f-53e5-9f66-48f5413cea97");
        assert_eq!(Uuid(digest(&MACHINE, "file.1.2.3").0).to_string(), "9ea99c20-2739-5f1b-9ccc-eeff0031f720");
        let namespace = Namespace::new(1, "null:1M".parse().unwrap());
        let of = |name: &str, again| identifiers(&subsystem(name), &namespace, disk, again).uuid;
        assert_eq!(of("a", false).to_string(), "b0e4db20-8b65-5d52-8d91-c96d40802df0");
        // Other subsystems, and other namespaces of the same data, have others.
        assert!(of("a", false) != of("b", false) && of("a", false) != of("a", true));
    }

    #[test]
    fn a_device_without_a_path_is_what_it_says() {
        let environment = Environment::default();
        let namespace = Namespace::new(1, Drive::file("pool:image"));
        let of = |device: Arc<dyn Device>| object_of(&device, &subsystem("a").nqn, &namespace, &environment).unwrap();
        let image = |origin| Arc::new(Image { medium: ebof_backend::Memory::new(1 << 20, 512, false), origin });
        let everywhere = of(image(DataOrigin::Everywhere("pool.image".to_owned())));
        assert_eq!(everywhere, digest(&EVERYWHERE, "pool.image"));
        assert_eq!(of(image(DataOrigin::Recorded([7; 16]))), DataId([7; 16]));
        assert_eq!(of(image(DataOrigin::Machine("image".to_owned()))), digest(&environment.machine, "image"));
        assert_ne!(of(image(DataOrigin::Unknown)), of(image(DataOrigin::Unknown)));
        let open = |id| ebof_backend::BackingId::lasting("pool", id);
        let known = |id: &'static str, nsid| {
            let identifiers =
                identifiers(&subsystem("a"), &Namespace::new(nsid, namespace.drive.clone()), everywhere, nsid > 1);
            ((subsystem("a").nqn, nsid), (everywhere, Some(open(id)), identifiers))
        };
        // Two namespaces may have one backing, and not two backings with one identity.
        let same = KnownData(BTreeMap::from([known("image", 1), known("image", 2)]));
        assert!(same.check(&KnownData::default()).is_ok());
        let copy = KnownData(BTreeMap::from([known("image", 1), known("copy", 2)]));
        assert!(matches!(copy.check(&KnownData::default()), Err(StartError::SameObject { nsid: 2, first: 1, .. })));
        let was = KnownData(BTreeMap::from([known("copy", 1)]));
        assert!(matches!(same.check(&was), Err(StartError::SameObject { nsid: 1, .. })));
    }

    /// A device without a path whose data outlive the process.
    #[derive(Debug)]
    struct Image {
        medium: ebof_backend::Memory,
        origin: DataOrigin,
    }

    impl Device for Image {
        fn geometry(&self) -> ebof_backend::Geometry {
            self.medium.geometry()
        }

        fn submit(&self, io: &mut ebof_backend::Io, request: ebof_backend::Request) -> ebof_backend::Submitted {
            self.medium.submit(io, request)
        }

        fn persistent(&self) -> Option<&dyn Persistent> {
            Some(self)
        }

        fn describe(&self) -> String {
            "pool:image".to_owned()
        }
    }

    impl Persistent for Image {
        fn id(&self) -> Option<BackingId> {
            Some(BackingId::lasting("pool", "image"))
        }

        fn origin(&self) -> DataOrigin {
            self.origin.clone()
        }

        fn record(&self, _identity: [u8; 16]) -> bool {
            false
        }

        fn is_idle(&self) -> bool {
            true
        }

        fn current_bytes(&self, _asked_bytes: Option<u64>) -> Result<u64, ebof_backend::OpenError> {
            Ok(self.geometry().capacity_bytes)
        }

        fn extend(&self, _asked_bytes: u64) -> Result<Option<u64>, ebof_backend::OpenError> {
            Ok(None)
        }

        fn take_back_extension(&self, _before_bytes: u64) -> io::Result<()> {
            Ok(())
        }

        fn grow(&self, _capacity_bytes: u64) {}
    }

    #[test]
    fn what_is_set_is_announced() {
        let mut namespace = Namespace::new(1, "null:1M".parse().unwrap());
        let mut subsystem = subsystem("a");
        let (one, two) = (DataId([1; 16]), DataId([2; 16]));
        assert_ne!(identifiers(&subsystem, &namespace, one, false), identifiers(&subsystem, &namespace, two, false));
        subsystem.identity = IdentityRule::Name;
        let by_name = identifiers(&subsystem, &namespace, one, false);
        assert_eq!(by_name, identifiers(&subsystem, &namespace, two, false));
        assert_eq!((by_name.uuid, by_name.nguid), (default_uuid(&subsystem.nqn, 1), by_name.uuid.0));
        namespace.uuid = Some(Uuid([7; 16]));
        assert_eq!(identifiers(&subsystem, &namespace, one, false).nguid, [7; 16]);
    }
}
