//! What udev learns about a block device, for names that stay (`/dev/disk/by-id/nvme-uuid.*`,
//! `/dev/ebof/by-nqn/*`): the numbers of ublk and loop devices do not.
//!
//! The kernel announces a device before anybody can know what it is. So the daemon writes a file of
//! properties, `udev/ublkb0` in the state directory, and has the kernel announce the device again;
//! a rule of the package (61-ebof.rules) reads the file of `/run/ebof` and makes the links. Without
//! the rule nothing happens. What a target reports gets into the file only in characters that are
//! harmless in a link.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use ebof_state::Place;

use crate::request::Device;

/// The most characters of a name that a target reports: those of an NQN.
const NAME_MAX: usize = 223;

/// Announces what `device`, of the subsystem `nqn`, is. `states` is the state directory. Errors are
/// logged: the device works without.
pub(crate) fn announce(states: &Path, nqn: &str, device: &Device) {
    let Some(kernel_name) = kernel_name(device) else { return };
    let announced = write(states, kernel_name, &properties(nqn, device)).and_then(|()| trigger(kernel_name));
    if let Err(error) = announced {
        tracing::debug!(%error, kernel_name, "udev is not told what the device is");
    }
}

/// Forgets what `device` was, before another one gets its number.
pub(crate) fn retract(states: &Path, device: &Device) {
    let Some(kernel_name) = kernel_name(device) else { return };
    match std::fs::remove_file(file(states, kernel_name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, kernel_name, "the file for udev is not removed");
        }
        _ => {}
    }
}

/// `ublkb0`
fn kernel_name(device: &Device) -> Option<&str> {
    device.path.as_deref()?.file_name()?.to_str()
}

fn file(states: &Path, kernel_name: &str) -> PathBuf {
    states.join("udev").join(kernel_name)
}

fn write(states: &Path, kernel_name: &str, properties: &str) -> io::Result<()> {
    let place = Place::make(&states.join("udev"), 0o755).map_err(io::Error::other)?;
    place.replace(kernel_name, 0o644, properties.as_bytes()).map_err(io::Error::other)
}

/// Has the kernel announce the device again.
fn trigger(kernel_name: &str) -> io::Result<()> {
    std::fs::write(format!("/sys/class/block/{kernel_name}/uevent"), "change")
}

/// The lines of the file. The identifier is the one that Linux' own host would name the device by.
fn properties(nqn: &str, device: &Device) -> String {
    let mut text = String::new();
    let name = safe(nqn);
    let _infallible = writeln!(text, "EBOF_NAME={}\nEBOF_NQN={name}\nEBOF_NSID={}", safe(&device.name), device.nsid);
    if let Some(id) = identifier(&device.identifiers) {
        let _infallible = writeln!(text, "EBOF_ID={id}");
    }
    text
}

/// `uuid.0a057e8e-5200-8d76-b261-cb099f447d93`, or `eui.` with NGUID or EUI-64.
fn identifier(identifiers: &str) -> Option<String> {
    let named = |name: &str| identifiers.split(' ').find_map(|id| id.strip_prefix(name)?.strip_prefix('.'));
    if let Some(hex) = named("uuid").filter(|hex| hex.len() == 32 && hex.is_ascii()) {
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        return Some(format!("uuid.{}", parts.map(safe).join("-")));
    }
    named("nguid").or_else(|| named("eui64")).map(|hex| format!("eui.{}", safe(hex)))
}

/// Only characters that udev keeps in links.
fn safe(text: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || ".:-".contains(c) { c } else { '_' };
    text.chars().take(NAME_MAX).map(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(path: Option<&str>, identifiers: &str) -> Device {
        Device {
            name: "nvme0n1".to_owned(),
            nsid: 1,
            path: path.map(PathBuf::from),
            problem: None,
            block_bytes: 512,
            metadata_bytes: 0,
            blocks: 8,
            read_only: false,
            identifiers: identifiers.to_owned(),
            file: None,
        }
    }

    #[test]
    fn properties_are_lines_whatever_a_target_reports() {
        let all = "nguid.00112233445566778899aabbccddeeff uuid.0a057e8e52008d76b261cb099f447d93";
        let text = properties("nqn.2014-08.org.example:a/../b\nX=\"$(y)\"", &device(Some("/dev/x"), all));
        let expected = "EBOF_NAME=nvme0n1\nEBOF_NQN=nqn.2014-08.org.example:a_.._b_X____y__\nEBOF_NSID=1\n\
                        EBOF_ID=uuid.0a057e8e-5200-8d76-b261-cb099f447d93\n";
        assert_eq!(text, expected);
        assert_eq!(identifier("nguid.0011 eui64.22").as_deref(), Some("eui.0011"));
        assert_eq!(identifier("eui64.22").as_deref(), Some("eui.22"));
        assert_eq!(identifier(""), None);
    }

    #[test]
    fn a_file_is_written_and_removed_again() {
        let states = tempfile::tempdir().unwrap();
        // No such block device: the file is there for the next one to announce it.
        let device = device(Some("/dev/ebof-test"), "");
        announce(states.path(), "nqn.x", &device);
        let path = states.path().join("udev/ebof-test");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "EBOF_NAME=nvme0n1\nEBOF_NQN=nqn.x\nEBOF_NSID=1\n");
        retract(states.path(), &device);
        assert!(!path.exists());
        retract(states.path(), &device);
        announce(states.path(), "nqn.x", &super::tests::device(None, ""));
        assert_eq!(std::fs::read_dir(states.path().join("udev")).unwrap().count(), 0);
    }
}
