//! Keys in the kernel's keyrings (keyrings(7)): who has put them there, keeps them.
//!
//! What there is, is in `/proc/keys`, which has the keys that this process may look at.

use std::fs;
use std::io;

use linux_keyutils::{Key, KeyError, KeyRing, KeyRingIdentifier, KeySerialId};
use thiserror::Error;
use zeroize::Zeroizing;

/// The longest payload that is read, bytes. Longer ones are no keys of hosts.
const PAYLOAD_BYTES_MAX: usize = 4096;
/// The most keys that are looked at in a keyring.
const KEYS_MAX: usize = 4096;
const LIST: &str = "/proc/keys";

/// Why a key is not read.
#[derive(Debug, Error)]
pub enum KeyringError {
    /// The system has no keyrings, or shows them to nobody.
    #[error("this system's keys cannot be listed ({LIST}: {0}); in a container they may be hidden")]
    Unlisted(#[source] io::Error),
    /// There is none of that name.
    #[error("the kernel has no {what} {name:?} that this user may see (`keyctl show`, `cat {LIST}`)")]
    NotThere {
        /// Keyring or key.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Somebody else could change it.
    #[error("it belongs to user {owner}, who could change it: it has to be root's or this user's own")]
    Foreign {
        /// Its owner.
        owner: u32,
    },
    /// The kernel does not give it to this process.
    #[error("the kernel refuses to read {what}: {reason}")]
    Refused {
        /// What was to be read.
        what: String,
        /// What it said.
        reason: String,
    },
    /// It is not text.
    #[error("it is not text")]
    NotText,
}

/// A key of a keyring.
#[derive(Clone, Debug)]
pub struct KeyringKey {
    /// What it is found by.
    pub description: String,
    /// Its number.
    pub serial: i32,
    /// What it holds.
    pub payload: Zeroizing<Vec<u8>>,
}

/// What the kernel tells of a key.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    serial: i32,
    owner: u32,
    kind: String,
    description: String,
}

/// Reads the text of a key of type `user` with this description.
///
/// # Errors
/// There is none that this process may read, or others could have changed it.
pub fn read_user_key(description: &str) -> Result<Zeroizing<String>, KeyringError> {
    let list = list()?;
    let payload = read(find(&list, "user", description, "key")?, &format!("key {description:?}"))?;
    let text = std::str::from_utf8(&payload).map_err(|_| KeyringError::NotText)?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Whether there is a keyring of this name.
///
/// # Errors
/// The system's keys cannot be listed.
pub fn has_keyring(name: &str) -> Result<bool, KeyringError> {
    Ok(list()?.iter().any(|key| key.kind == "keyring" && key.description == name))
}

/// Reads the keys of type `psk` in the keyring of this name (`.nvme` of Linux' NVMe over TCP) whose
/// description or number is wanted. One that this process may not read is left out.
///
/// # Errors
/// There is no such keyring, or this process may not read it.
pub fn read_psks(keyring: &str, is_wanted: impl Fn(&str, i32) -> bool) -> Result<Vec<KeyringKey>, KeyringError> {
    let list = list()?;
    let ring = find(&list, "keyring", keyring, "keyring")?;
    let members = read(ring, &format!("keyring {keyring:?}"))?;
    let members: Vec<i32> =
        members.as_chunks::<4>().0.iter().take(KEYS_MAX).map(|bytes| i32::from_ne_bytes(*bytes)).collect();
    let is_one =
        |key: &&Listed| key.kind == "psk" && members.contains(&key.serial) && is_wanted(&key.description, key.serial);
    let mut keys = Vec::new();
    for key in list.iter().filter(is_one) {
        if let Ok(payload) = read(key, &key.description) {
            keys.push(KeyringKey { description: key.description.clone(), serial: key.serial, payload });
        }
    }
    Ok(keys)
}

fn find<'l>(list: &'l [Listed], kind: &str, name: &str, what: &'static str) -> Result<&'l Listed, KeyringError> {
    let found = list.iter().find(|key| key.kind == kind && key.description == name);
    let found = found.ok_or_else(|| KeyringError::NotThere { what, name: name.to_owned() })?;
    let is_ours = found.owner == 0 || found.owner == rustix::process::geteuid().as_raw();
    if is_ours { Ok(found) } else { Err(KeyringError::Foreign { owner: found.owner }) }
}

/// Reads what a key holds; of a keyring, the numbers of its keys.
fn read(listed: &Listed, what: &str) -> Result<Zeroizing<Vec<u8>>, KeyringError> {
    let refused = |error: KeyError| KeyringError::Refused { what: what.to_owned(), reason: error.to_string() };
    let key = Key::from_id(KeySerialId(listed.serial));
    // What is linked to a keyring of this thread, it possesses. Where that is not allowed, it may
    // still be readable for this user.
    if let Ok(own) = KeyRing::from_special_id(KeyRingIdentifier::Thread, true) {
        let _ = own.link_keyring_id(KeyRingIdentifier::User);
        let _ = own.link_key(key);
    }
    let most = if listed.kind == "keyring" { KEYS_MAX * 4 } else { PAYLOAD_BYTES_MAX };
    let mut payload = Zeroizing::new(vec![0; most]);
    let length = key.read(&mut *payload).map_err(refused)?;
    if length > most {
        let reason = format!("it has {length} bytes, too many for a key");
        return Err(KeyringError::Refused { what: what.to_owned(), reason });
    }
    payload.truncate(length);
    Ok(payload)
}

fn list() -> Result<Vec<Listed>, KeyringError> {
    let text = fs::read_to_string(LIST).map_err(KeyringError::Unlisted)?;
    Ok(text.lines().filter_map(parse).collect())
}

/// A line of `/proc/keys`: number, flags, usage, time, rights, user, group, type and what the type
/// shows, which is the description, and behind a colon something about the payload.
fn parse(line: &str) -> Option<Listed> {
    let mut rest = line;
    let mut fields = [""; 8];
    for field in &mut fields {
        rest = rest.trim_start();
        let end = rest.find(' ').unwrap_or(rest.len());
        (*field, rest) = rest.split_at(end);
    }
    let [serial, _, _, _, _, owner, _, kind] = fields;
    // Numbers above 7fffffffh are not given out.
    let serial = i32::from_str_radix(serial, 16).ok()?;
    let shown = rest.trim();
    let description = shown.rsplit_once(": ").map_or(shown, |(description, _)| description);
    Some(Listed { serial, owner: owner.parse().ok()?, kind: kind.to_owned(), description: description.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernels_list_are_read() {
        let parsed = |line| parse(line).map(|key| (key.serial, key.owner, key.kind, key.description));
        let own = |serial, owner, kind: &str, text: &str| Some((serial, owner, kind.to_owned(), text.to_owned()));
        assert_eq!(
            parsed("03b6be3b I--Q---    11 perm 1f3f0000     0     0 keyring   .nvme: 2"),
            own(0x3b6_be3b, 0, "keyring", ".nvme")
        );
        assert_eq!(
            parsed("1dfb6c3e I------     1 2w   1b013000  1000     0 psk       NVMe1R01 nqn.a:b nqn.c:d aa=: 32"),
            own(0x1dfb_6c3e, 1000, "psk", "NVMe1R01 nqn.a:b nqn.c:d aa=")
        );
        assert_eq!(
            parsed("20411d3a I--Q---     2 perm 1f3f0000     0 65534 keyring   _uid.0: empty"),
            own(0x2041_1d3a, 0, "keyring", "_uid.0")
        );
        for bad in ["", "xyz", "20411d3a I--Q---     2 perm 1f3f0000", "20411d3a I 2 perm 1f x 0 user a: 1"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    /// Where the system lets nobody make a key, there is nothing to see here.
    #[test]
    fn a_key_of_the_kernel_is_read_by_its_description() {
        let name = format!("ebof-test-{}", std::process::id());
        let Ok(ring) = KeyRing::from_special_id(KeyRingIdentifier::Thread, true) else { return skipped() };
        if ring.add_key(&name, "some text\n").is_err() {
            return skipped();
        }
        assert_eq!(*read_user_key(&name).unwrap(), "some text\n");
        let missing = read_user_key("ebof-test-there-is-none").unwrap_err();
        assert!(matches!(missing, KeyringError::NotThere { .. }), "{missing}");
        let missing = read_psks("ebof-test-there-is-none", |_, _| true).unwrap_err();
        assert!(missing.to_string().starts_with("the kernel has no keyring \"ebof-test-there-is-none\""), "{missing}");
        assert!(!has_keyring("ebof-test-there-is-none").unwrap());
    }

    fn skipped() {
        println!("skipped: this system does not let a program make keys");
    }
}
