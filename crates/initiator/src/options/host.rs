//! Who this host is: its NQN and Host Identifier, from `/etc/nvme` where an administrator or
//! nvme-cli wrote them, else derived from the machine so that they stay the same. Writes nothing,
//! except where nothing names the machine: an identity is made at random then and kept
//! (`options/host/kept.rs`).

mod kept;

use std::fs;
use std::path::Path;
use std::sync::{Once, OnceLock};

use ebof_nvme::{HostId, Nqn, Uuid};

/// A host's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Host NQN.
    pub nqn: Nqn,
    /// Host Identifier.
    pub id: HostId,
    /// Where they come from.
    pub source: Source,
}

/// The source of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `/etc/nvme/hostnqn` (and `hostid` where it exists).
    Configured,
    /// The machine's DMI product UUID.
    Dmi,
    /// `/etc/machine-id`.
    MachineId,
    /// Nothing names this machine: a name that was made at random and is kept.
    Kept,
    /// Nothing names this machine, and nothing can be kept: a name that was made at random for this
    /// process.
    Process,
}

impl Source {
    /// Its description, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configured => "/etc/nvme/hostnqn",
            Self::Dmi => "the machine's DMI product UUID",
            Self::MachineId => "/etc/machine-id",
            Self::Kept => "made at random and kept, because nothing names this machine",
            Self::Process => {
                "made at random for this process, because nothing names this machine and nothing can be kept"
            }
        }
    }
}

/// This machine's identity. The same at every call as long as the files it reads stay the same.
#[must_use]
pub fn identity() -> Identity {
    identity_under(Path::new("/"))
}

/// The identity of the machine whose file system is mounted at `root`.
#[must_use]
pub fn identity_under(root: &Path) -> Identity {
    let configured = read_word(&root.join("etc/nvme/hostnqn")).and_then(|text| configured(&text));
    let configured_id = read_word(&root.join("etc/nvme/hostid")).and_then(|text| HostId::parse(&text));
    if let Some(nqn) = configured {
        let id = configured_id.or_else(|| uuid_of(&nqn)).unwrap_or_else(|| derived_id(&nqn));
        return Identity { nqn, id, source: Source::Configured };
    }
    let (uuid, source) = machine_uuid(root);
    Identity { nqn: Nqn::from_uuid(uuid), id: configured_id.unwrap_or(HostId(uuid.0)), source }
}

/// What distinguishes this machine from all others, whatever its host is called.
#[must_use]
pub fn machine() -> Uuid {
    machine_uuid(Path::new("/")).0
}

/// The name in `/etc/nvme/hostnqn`. One that cannot be used is reported, once: another identity
/// takes its place, which targets may not know.
fn configured(text: &str) -> Option<Nqn> {
    static TOLD: Once = Once::new();
    let parsed = Nqn::parse(text);
    if let Err(error) = &parsed {
        TOLD.call_once(|| tracing::warn!(%error, "/etc/nvme/hostnqn cannot be used: this host has another name"));
    }
    parsed.ok()
}

/// A Host Identifier for a host NQN that came without one: the UUID in its name, or one derived
/// from the name.
///
/// Linux refuses two host NQNs with one host identifier, so a foreign NQN must not go with this
/// machine's identifier.
#[must_use]
pub fn id_for(nqn: &Nqn) -> HostId {
    let own = identity();
    if own.nqn == *nqn {
        return own.id;
    }
    uuid_of(nqn).unwrap_or_else(|| derived_id(nqn))
}

fn machine_uuid(root: &Path) -> (Uuid, Source) {
    // nvme-cli prefers the DMI UUID too: it survives a reinstallation.
    let dmi = read_word(&root.join("sys/class/dmi/id/product_uuid")).and_then(|text| Uuid::parse(&text));
    if let Some(uuid) = dmi.filter(|uuid| uuid.0 != [0; 16] && uuid.0 != [0xff; 16]) {
        return (uuid, Source::Dmi);
    }
    let machine = read_word(&root.join("etc/machine-id")).filter(|text| text.len() == 32);
    if let Some(id) = machine.and_then(|text| HostId::parse(&text)) {
        // machine-id(5) asks not to show the id itself on a network: derive.
        return (name_uuid(&id.0), Source::MachineId);
    }
    // Not the same for all such machines: they would write through each other's reservations.
    if let Some(uuid) = kept::identity(&kept::directories(root), &kept::name_of(root)) {
        return (uuid, Source::Kept);
    }
    static PROCESS: OnceLock<Uuid> = OnceLock::new();
    let uuid = *PROCESS.get_or_init(|| {
        tracing::warn!(
            "nothing names this machine, and no directory takes a name that is made for it: it has another identity with each \
             process, for reservations and lists of hosts, too; `ebof gen-hostnqn` makes a line for /etc/nvme/hostnqn"
        );
        kept::random()
    });
    (uuid, Source::Process)
}

fn uuid_of(nqn: &Nqn) -> Option<HostId> {
    HostId::parse(nqn.as_str().strip_prefix(Nqn::UUID_PREFIX)?)
}

fn derived_id(nqn: &Nqn) -> HostId {
    HostId(name_uuid(nqn.as_str().as_bytes()).0)
}

/// A UUID of version 8 (RFC 9562, custom contents) derived from `name`: two rounds of 128-bit
/// FNV-1a. It has to be stable and well distributed, not secure.
fn name_uuid(name: &[u8]) -> Uuid {
    const PRIME: u128 = 0x0100_0000_0000_0000_0000_013b;
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut hash = BASIS;
    for &byte in b"ebof host identity".iter().chain(name).chain(name) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME);
    }
    let mut bytes = hash.to_be_bytes();
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid(bytes)
}

/// The first word of a small file; `None` when there is none.
fn read_word(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let word = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))?;
    Some(word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_administrators_configuration_has_priority() {
        let root = root(&[
            ("etc/nvme/hostnqn", "nqn.2014-08.org.example:host7\n"),
            ("etc/nvme/hostid", "00112233-4455-6677-8899-aabbccddeeff\n"),
            ("etc/machine-id", "3d1219c7c4c5404aaa1f6d2a48adfda4\n"),
        ]);
        let identity = identity_under(root.path());
        assert_eq!(identity.nqn.as_str(), "nqn.2014-08.org.example:host7");
        assert_eq!(identity.id.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(identity.source, Source::Configured);
    }

    #[test]
    fn a_uuid_in_the_configured_name_is_the_host_id() {
        let nqn = "nqn.2014-08.org.nvmexpress:uuid:00112233-4455-6677-8899-aabbccddeeff";
        let root = root(&[("etc/nvme/hostnqn", nqn)]);
        assert_eq!(identity_under(root.path()).id.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
        // As some tools write it, and Linux and SPDK take it; the name stays as it is.
        let plain = "nqn.2014-08.org.nvmexpress:uuid:00112233445566778899aabbccddeeff";
        let identity = identity_under(self::root(&[("etc/nvme/hostnqn", plain)]).path());
        assert_eq!((identity.nqn.as_str(), identity.source), (plain, Source::Configured));
        assert_eq!(identity.id.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn without_configuration_the_dmi_uuid_names_the_host_and_then_the_machine_id() {
        let uuid = "4C4C4544-0044-4A10-8052-B4C04F4E4432";
        let machine = ("etc/machine-id", "3d1219c7c4c5404aaa1f6d2a48adfda4\n");
        let identity = identity_under(root(&[("sys/class/dmi/id/product_uuid", uuid), machine]).path());
        assert_eq!(identity.nqn.as_str(), format!("{}{}", Nqn::UUID_PREFIX, uuid.to_lowercase()));

        let derived = identity_under(root(&[machine]).path());
        assert_eq!(derived, identity_under(root(&[machine]).path()));
        assert_eq!(derived.source, Source::MachineId);
        assert!(!derived.nqn.as_str().contains("3d1219c7"), "the machine id itself must not be shown");
        assert_eq!(derived.nqn.as_str(), format!("{}{}", Nqn::UUID_PREFIX, derived.id));
    }

    #[test]
    fn invalid_dmi_uuids_are_ignored() {
        let zeros = ("sys/class/dmi/id/product_uuid", "00000000-0000-0000-0000-000000000000");
        assert_eq!(identity_under(root(&[zeros]).path()).source, Source::Kept);
    }

    // @test output.host-identities
    #[test]
    fn machines_without_a_name_have_identities_of_their_own_that_they_keep() {
        let (one, two) = (root(&[]), root(&[]));
        let [first, second] = [&one, &two].map(|root| identity_under(root.path()));
        assert_eq!((first.source, second.source), (Source::Kept, Source::Kept));
        assert!(first.nqn != second.nqn && first.id != second.id);
        assert_eq!(identity_under(one.path()), first);
        // What was made for another machine, and came with its image, is not this one's.
        fs::create_dir_all(one.path().join("proc/sys/kernel")).unwrap();
        fs::write(one.path().join("proc/sys/kernel/hostname"), "two\n").unwrap();
        let renamed = identity_under(one.path());
        assert!(renamed.nqn != first.nqn && renamed == identity_under(one.path()));
    }

    #[test]
    fn without_a_place_the_identity_is_that_of_the_process() {
        let [first, second] = [root(&[("var", ""), ("run", "")]), root(&[("var", ""), ("run", "")])];
        let [first, second] = [first, second].map(|root| identity_under(root.path()));
        assert_eq!((first.source, &first), (Source::Process, &second));
    }

    #[test]
    fn another_host_nqn_gets_its_own_identifier() {
        let one = id_for(&Nqn::parse("nqn.2014-08.org.example:one").unwrap());
        let two = id_for(&Nqn::parse("nqn.2014-08.org.example:two").unwrap());
        assert_ne!(one, two);
        assert_ne!(one, identity().id);
    }
}
