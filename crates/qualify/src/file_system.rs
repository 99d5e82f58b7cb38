//! A file system on a device, with one file that is measured: made, mounted, and unmounted again.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::device::{Device, Kind};
use crate::procedure::DeviceUnderTest;

/// The part of a device that the file takes, in percent: a file system needs some for itself.
const FILE_PERCENT: u64 = 85;
/// The smallest file that can be measured.
const FILE_BYTES_MIN: u64 = 4 << 20;

/// Makes a block device of a namespace, for a file system on it.
pub trait Attach {
    /// Attaches `device`. What it returns detaches it again when it is dropped.
    ///
    /// # Errors
    /// Why that is not possible here.
    fn attach(&self, device: &Device) -> Result<AttachedNamespace, String>;
}

/// A namespace that is a block device.
pub struct AttachedNamespace {
    /// The block device.
    pub path: PathBuf,
    /// Detaches it when it is dropped.
    pub guard: Box<dyn std::any::Any>,
}

/// The file that is measured.
#[derive(Clone, Debug)]
pub struct Mount {
    /// Its path.
    pub file: PathBuf,
    /// Its size.
    pub bytes: u64,
}

impl Mount {
    /// As a specification of a local device.
    pub(crate) fn specification(&self) -> String {
        format!("{},direct=on", self.file.display().to_string().replace(',', ",,"))
    }
}

/// The file systems of a procedure, by device. They are unmounted when this is dropped.
#[derive(Default)]
pub(crate) struct FileSystems(BTreeMap<String, Mounted>);

/// A mounted file system. Dropping it takes everything apart in the reverse order.
struct Mounted {
    mount: Mount,
    directory: TempDir,
    is_mounted: bool,
    /// The device that has a file system of ours.
    made_on: Option<String>,
    /// Goes last.
    block: BlockDevice,
}

/// A device as a block device. Dropping it takes away what was made for that.
pub(crate) struct BlockDevice {
    pub(crate) path: PathBuf,
    loop_device: Option<PathBuf>,
    _attached: Option<AttachedNamespace>,
}

impl BlockDevice {
    /// Of `device`, which may be a file or a namespace.
    ///
    /// # Errors
    /// Why it cannot be one.
    pub(crate) fn open(device: &Device, attach: &dyn Attach) -> Result<Self, String> {
        match &device.kind {
            Kind::Path(path, _) if crate::device::is_block_device(path) => {
                Ok(Self { path: path.clone(), loop_device: None, _attached: None })
            }
            Kind::Path(path, _) => {
                let file = path.display().to_string();
                let looped = run("losetup", &["--direct-io=on", "--find", "--show", &file])
                    .or_else(|_| run("losetup", &["--direct-io=off", "--find", "--show", &file]))?;
                let path = PathBuf::from(looped.trim());
                Ok(Self { path: path.clone(), loop_device: Some(path), _attached: None })
            }
            Kind::Namespace(..) => {
                let attached = attach.attach(device)?;
                Ok(Self { path: attached.path.clone(), loop_device: None, _attached: Some(attached) })
            }
            _ => Err("it is no block device".to_owned()),
        }
    }
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        if let Some(path) = &self.loop_device {
            let _left_attached = run("losetup", &["--detach", &path.display().to_string()]);
        }
    }
}

impl FileSystems {
    /// The file on the file system `name` of a device, which is made when it is first asked for.
    ///
    /// # Errors
    /// Why there can be none.
    pub(crate) fn mount(
        &mut self,
        name: &str,
        device: &DeviceUnderTest,
        bytes: Option<u64>,
        attach: &dyn Attach,
    ) -> Result<Mount, String> {
        let key = device.device.name.clone();
        if !self.0.contains_key(&key) {
            let mounted = Mounted::new(name, device, bytes, attach)
                .map_err(|why| format!("no {name} on {}: {why}", device.device.name))?;
            self.0.insert(key.clone(), mounted);
        }
        self.0.get(&key).map(|mounted| mounted.mount.clone()).ok_or_else(|| "it is gone".to_owned())
    }
}

impl Mounted {
    fn new(name: &str, device: &DeviceUnderTest, bytes: Option<u64>, attach: &dyn Attach) -> Result<Self, String> {
        let directory = tempfile::Builder::new().prefix("ebof-qualify.").tempdir();
        let directory = directory.map_err(|error| format!("making a directory: {error}"))?;
        let mount = Mount { file: directory.path().join("mnt/file"), bytes: 0 };
        let block = BlockDevice::open(&device.device, attach)?;
        let mut made = Self { mount, directory, is_mounted: false, made_on: None, block };
        let block = made.block.path.display().to_string();
        let point = made.directory.path().join("mnt");
        std::fs::create_dir(&point).map_err(|error| format!("making {}: {error}", point.display()))?;
        made.made_on = Some(block.clone());
        // Something may be there: whoever asked for this has permitted that it goes.
        let force = if name == "xfs" { "-f" } else { "-F" };
        run(&format!("mkfs.{name}"), &["-q", force, &block])?;
        run("mount", &[&block, &point.display().to_string()])?;
        made.is_mounted = true;
        made.mount.bytes = create_file(&made.mount.file, &point, bytes)?;
        Ok(made)
    }
}

/// Makes the file, and returns its size.
fn create_file(file: &Path, point: &Path, bytes: Option<u64>) -> Result<u64, String> {
    let error = |error: std::io::Error| format!("{}: {error}", file.display());
    let space = rustix::fs::statvfs(point).map_err(|errno| error(errno.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let wanted = bytes.unwrap_or(free).min(free / 100 * FILE_PERCENT);
    let size = wanted >> 20 << 20;
    if size < FILE_BYTES_MIN {
        return Err(format!("{free} bytes are free on it: too few"));
    }
    let made = File::create_new(file).map_err(error)?;
    rustix::fs::fallocate(&made, rustix::fs::FallocateFlags::empty(), 0, size).map_err(|errno| error(errno.into()))?;
    made.sync_all().map_err(error)?;
    Ok(size)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_mounted {
            let point = self.directory.path().join("mnt").display().to_string();
            // A file system that is still busy is detached from the tree at least.
            let _left_mounted = run("umount", &[&point]).or_else(|_| run("umount", &["--lazy", &point]));
        }
        // What was measured is left as it was permitted: without a file system that nobody wants.
        if let Some(block) = &self.made_on {
            let _left_there = run("wipefs", &["--all", "--quiet", block]);
        }
    }
}

/// Runs a program of the system; its output, or why it failed.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let line = format!("`{program} {}`", arguments.join(" "));
    let output = Command::new(program)
        .env("PATH", path)
        .env("LC_ALL", "C")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{line}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{line}: {}", said.trim().lines().last().unwrap_or("it failed")))
}
