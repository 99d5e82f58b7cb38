//! Which block devices of this machine are namespaces of a subsystem, and who uses them: for
//! commands that remove namespaces or write to them beside a file system. Reads the state
//! directory, /sys, /proc and the devices.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::Error;
use crate::loopdev;
use crate::state::StateDir;

/// A block device of this machine that is a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalDevice {
    /// The namespace.
    pub nsid: u32,
    /// Its name: `nvme0n1`.
    pub name: String,
    /// The block device: `/dev/loop0`.
    pub path: PathBuf,
    /// Its user: a mount point or a stacked device; `None` without a user that the kernel shows.
    pub used_by: Option<String>,
}

/// The block devices of this machine that are namespaces of the subsystem `nqn`: those of ebof, and
/// those of the kernel's own NVMe host.
///
/// # Errors
/// The state directory cannot be read.
pub fn local_devices(nqn: &str) -> Result<Vec<LocalDevice>, Error> {
    local_devices_in(&StateDir::standard(), Path::new("/sys/block"), nqn)
}

/// As [`local_devices`], with other paths of the state directory and /sys/block.
///
/// # Errors
/// As [`local_devices`].
pub fn local_devices_in(states: &StateDir, sys_block: &Path, nqn: &str) -> Result<Vec<LocalDevice>, Error> {
    let mut found = Vec::new();
    for state in states.records()?.into_iter().filter(|record| record.live).filter_map(|record| record.state) {
        if state.subnqn != nqn {
            continue;
        }
        for device in state.devices {
            let Some(path) = device.path else { continue };
            found.push(LocalDevice { nsid: device.nsid, name: device.name, used_by: used_by(&path), path });
        }
    }
    found.extend(kernel_devices(sys_block, nqn));
    Ok(found)
}

/// The user of a block device or a partition of it. Found in /sys and /proc; a user that is not
/// visible there (in another mount namespace) is found by opening the device exclusively, as
/// nvme-cli does.
#[must_use]
pub fn used_by(path: &Path) -> Option<String> {
    loopdev::used_by(path).or_else(|| {
        let claimed = "is claimed: by a mount in another namespace, a device mapper or a program";
        is_claimed(path).then(|| format!("{} {claimed}", path.display()))
    })
}

fn is_claimed(path: &Path) -> bool {
    let flags = i32::try_from((OFlags::EXCL | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    // Other errors of opening it say nothing about its use.
    opened.is_err_and(|error| error.raw_os_error() == Some(Errno::BUSY.raw_os_error()))
}

/// The namespaces of a subsystem that the kernel's own host has connected.
fn kernel_devices(sys_block: &Path, nqn: &str) -> Vec<LocalDevice> {
    let Ok(entries) = std::fs::read_dir(sys_block) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let device = |name: String| {
        let read = |file: &str| std::fs::read_to_string(sys_block.join(&name).join(file)).ok();
        if !name.starts_with("nvme") || read("device/subsysnqn")?.trim() != nqn {
            return None;
        }
        let nsid = read("nsid")?.trim().parse().ok()?;
        let path = Path::new("/dev").join(&name);
        Some(LocalDevice { nsid, used_by: used_by(&path), path, name })
    };
    names.filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_of_the_kernels_host_are_found_by_their_subsystem() {
        let sys = tempfile::tempdir().unwrap();
        let states = tempfile::tempdir().unwrap();
        for (name, nqn, nsid) in [("nvme3n1", "nqn.a", "7\n"), ("nvme4n1", "nqn.b", "1\n"), ("sda", "nqn.a", "1\n")] {
            std::fs::create_dir_all(sys.path().join(name).join("device")).unwrap();
            std::fs::write(sys.path().join(name).join("device/subsysnqn"), format!("{nqn}\n")).unwrap();
            std::fs::write(sys.path().join(name).join("nsid"), nsid).unwrap();
        }
        let found = local_devices_in(&StateDir::at(states.path()), sys.path(), "nqn.a").unwrap();
        let expected = LocalDevice { nsid: 7, name: "nvme3n1".into(), path: "/dev/nvme3n1".into(), used_by: None };
        assert_eq!(found, [expected]);
    }
}
