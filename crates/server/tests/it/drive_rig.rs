//! A target with a drive that its hosts manage, and helpers for its tests.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use ebof_initiator::{AdminData, Controller, Error, Options};
use ebof_manage::config::{Attach, ManagedDrive, Port, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::log::{ErrorInformation, GetLogPage, Lid, SmartHealth};
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::{Nqn, Nsid, Sqe, Status};
use ebof_server::{Settings, StartError, Target};
use zerocopy::{FromBytes, IntoBytes};

pub(crate) const NQN: &str = "nqn.2014-08.org.example:drive0";
pub(crate) const ALICE: &str = "nqn.2014-08.org.example:alice";
pub(crate) const BOB: &str = "nqn.2014-08.org.example:bob";

/// A target with [`drive`].
pub(crate) fn start(backing: &Path, size_bytes: Option<u64>) -> (Target, SocketAddr) {
    serve(&drive(backing, size_bytes))
}

/// A drive on this file or block device, whose namespaces are attached to all controllers. With a
/// size a missing file is created.
pub(crate) fn drive(backing: &Path, size_bytes: Option<u64>) -> ManagedDrive {
    let mut drive = ManagedDrive::new("d0", backing.to_str().unwrap().parse().unwrap());
    drive.size_bytes = size_bytes;
    drive.attach = Attach::Everyone;
    drive
}

/// A target with this drive.
pub(crate) fn serve(drive: &ManagedDrive) -> (Target, SocketAddr) {
    // The kernel releases a file a little after its process has closed it.
    let target = wait("the lock of the file", || try_serve(drive).ok());
    let address = target.addresses()[0].1;
    (target, address)
}

/// The same, if it starts.
pub(crate) fn try_serve(drive: &ManagedDrive) -> Result<Target, StartError> {
    let port = Port::new(1, Listen::new([127, 0, 0, 1].into(), 0));
    let mut subsystem = Subsystem::of_drive(Nqn::parse(NQN).unwrap(), drive);
    subsystem.allow_any_host = true;
    subsystem.ports = vec![port.name.clone()];
    let config =
        Config { ports: vec![port], subsystems: vec![subsystem], drives: vec![drive.clone()], ..Config::default() };
    Target::start(config, Settings { threads: Some(1), pin: false, ..Settings::default() })
}

pub(crate) fn connect(address: SocketAddr) -> Controller {
    connect_as(address, ALICE)
}

/// A controller of this host.
pub(crate) fn connect_as(address: SocketAddr, host: &str) -> Controller {
    connect_with(address, |options| options.set_host_nqn(Nqn::parse(host).unwrap()))
}

/// A controller with these options.
pub(crate) fn connect_with(address: SocketAddr, change: impl FnOnce(&mut Options)) -> Controller {
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    // One queue for namespaces, one for single commands.
    options.nr_io_queues = 2;
    change(&mut options);
    Controller::connect(&options).unwrap()
}

/// An admin command without data.
pub(crate) fn admin(controller: &Controller, sqe: Sqe) -> Status {
    controller.admin(sqe, AdminData::None, None).unwrap().status()
}

/// An I/O command without data.
pub(crate) fn io(controller: &Controller, sqe: Sqe) -> Status {
    let mut queue = controller.queue_pair::<Vec<u8>>().unwrap();
    queue.execute(sqe, AdminData::None).unwrap().status()
}

/// Creates a namespace that may be shared.
pub(crate) fn create(controller: &Controller, blocks: u64) -> Nsid {
    let command = NamespaceManagement { select: ManagementSelect::Create, csi: ebof_nvme::identify::Csi::NVM };
    let mut wanted = NewNamespace::new(blocks);
    wanted.nmic = 1;
    let cqe = controller.admin(command.encode(Nsid::NONE), AdminData::FromHost(wanted.as_bytes()), None).unwrap();
    assert!(cqe.status().is_success(), "{}", cqe.status());
    let nsid = Nsid(u32::try_from(cqe.result() & 0xffff_ffff).unwrap());
    wait("the namespace", || controller.namespace(nsid).ok());
    nsid
}

/// The result of a command of a namespace.
pub(crate) fn status(outcome: Result<(), Error>) -> Status {
    match outcome {
        Ok(()) => Status::SUCCESS,
        Err(Error::Status { status, .. }) => status,
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn log<T: FromBytes>(controller: &Controller, lid: Lid) -> T {
    let mut page = vec![0; size_of::<T>()];
    controller.log_page(Nsid::ALL, lid.0, 0, &mut page).unwrap();
    T::read_from_bytes(&page).unwrap()
}

pub(crate) fn health(controller: &Controller) -> SmartHealth {
    log(controller, Lid::SMART_HEALTH)
}

/// The latest errors, the newest first.
pub(crate) fn errors(controller: &Controller, count: usize) -> Vec<ErrorInformation> {
    let mut page = vec![0; 64 * count];
    let get = GetLogPage::new(Lid::ERROR_INFORMATION, page.len() as u64).encode(Nsid::ALL);
    assert!(controller.admin(get, AdminData::ToHost(&mut page), None).unwrap().status().is_success());
    page.chunks_exact(64).map(|entry| ErrorInformation::read_from_bytes(entry).unwrap()).collect()
}

pub(crate) fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} takes longer than a minute");
        std::thread::yield_now();
    }
}

/// A small file system in memory, unmounted at the end.
pub(crate) struct SmallFileSystem(tempfile::TempDir);

impl SmallFileSystem {
    /// `None` if mounting is not permitted.
    pub(crate) fn new(mib: u32) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"])
            .arg(directory.path())
            .stderr(std::process::Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(directory))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn resize(&self, mib: u32) {
        let status =
            std::process::Command::new("mount").args(["-o", &format!("remount,size={mib}m")]).arg(self.path()).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _left = std::process::Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// A loop device, detached at the end.
pub(crate) struct LoopDevice(String);

impl LoopDevice {
    /// On a new file of this many bytes; `None` if that is not permitted.
    pub(crate) fn new(file: &Path, bytes: u64) -> Option<Self> {
        std::fs::File::create(file).unwrap().set_len(bytes).unwrap();
        let output = std::process::Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        let name = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        (output.status.success() && !name.is_empty()).then_some(Self(name))
    }

    pub(crate) fn path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _left = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
    }
}
