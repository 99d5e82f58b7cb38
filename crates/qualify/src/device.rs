//! The devices that a procedure measures: what they are called, what they say of themselves, and
//! both of their ends, where partition tables and file systems leave their signatures.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ebof_backend::{BackingError, Spec};
use ebof_bench::{Source, SourceError, open_direct};
use ebof_initiator::{Controller, Options};
use ebof_nvme::uri::{Transport, Uri, UriError};
use ebof_nvme::{Nqn, Nsid};

use crate::conditions::hottest;
use crate::document::Identity;
use crate::machine::read;

/// A device.
#[derive(Clone, Debug)]
pub struct Device {
    /// As it was named.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// What a device is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A namespace of a target.
    Namespace(Box<Options>, Nsid),
    /// A file or a block device of this machine.
    Path(PathBuf, Spec),
    /// Memory of this process, or nothing: opened once for all runs.
    Opened(Source, &'static str),
    /// A logical unit of an iSCSI target, which other programs measure.
    Iscsi,
    /// An export of an NBD server, which other programs measure.
    Nbd,
}

/// The error of a device that cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Its URI is invalid.
    #[error("{name}: {error}")]
    Uri {
        /// The device.
        name: String,
        /// What is wrong.
        error: UriError,
    },
    /// It names no namespace.
    #[error("{0} names no subsystem: want nvme+tcp://HOST[:PORT]/NQN/NSID, as `ebof discover` lists them")]
    NoSubsystem(String),
    /// It is no specification of a local device.
    #[error("{name}: {error}; {}", error.advice())]
    Backing {
        /// The device.
        name: String,
        /// What is wrong.
        error: BackingError,
    },
    /// It cannot be opened.
    #[error("{name}: {error}")]
    Open {
        /// The device.
        name: String,
        /// What is wrong.
        error: SourceError,
    },
    /// Its ends cannot be read.
    #[error("{name}: reading its first and last blocks failed: {error}")]
    Read {
        /// The device.
        name: String,
        /// What is wrong.
        error: std::io::Error,
    },
}

/// What an inspection of a device found.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What it says of itself.
    pub identity: Identity,
    /// The largest transfer of one command, in bytes; `None` has no limit.
    pub transfer_bytes_max: Option<u64>,
    /// I/O queues that the target grants, of [`QUEUES_ASKED`]; `None` where there are none to
    /// grant.
    pub io_queues_max: Option<u16>,
    /// Writes are refused.
    pub is_read_only: bool,
    /// Nobody can miss what is on it: it is memory, or was created just now.
    pub is_new: bool,
    /// The first and the last bytes: at most [`END_BYTES`] of each.
    pub ends: [Vec<u8>; 2],
}

/// As many I/O queues as a procedure uses.
pub const QUEUES_ASKED: u16 = 16;

/// How long a target may be away before a run fails.
const AWAY_MAX: Duration = Duration::from_secs(5);
/// Log Page Identifier of SMART / Health Information.
const HEALTH: u8 = 0x02;

/// Bytes of each end that are inspected. All signatures that blkid knows are within them, but for
/// those of file systems on discs: VMFS begins at 2 MiB, Promise's RAID up to 1.6 MB before the
/// end.
pub const END_BYTES: u64 = 4 << 20;

/// Bytes of one read of an end.
const READ_BYTES: usize = 1 << 20;

impl Device {
    /// The device of this name. `options` makes the options of a connection.
    ///
    /// # Errors
    /// The name is invalid.
    pub fn parse(name: &str, options: impl FnOnce(&Uri) -> Options) -> Result<Self, DeviceError> {
        let kind = if name.starts_with("iscsi://") {
            Kind::Iscsi
        } else if name.starts_with("nbd://") || name.starts_with("nbd+unix:") {
            Kind::Nbd
        } else if Uri::looks_like(name) {
            let uri = Uri::parse(name).map_err(|error| DeviceError::Uri { name: name.to_owned(), error })?;
            if uri.nqn.as_ref().is_none_or(Nqn::is_discovery) {
                return Err(DeviceError::NoSubsystem(name.to_owned()));
            }
            let mut options = options(&uri);
            // What is measured across a reconnect means nothing: a target that is away ends the
            // run.
            options.ctrl_loss_tmo = Some(AWAY_MAX);
            options.reconnect_delay_ms = 1000;
            Kind::Namespace(Box::new(options), uri.nsid.unwrap_or(Nsid(1)))
        } else {
            let spec: Spec = name.parse().map_err(|error| DeviceError::Backing { name: name.to_owned(), error })?;
            match &spec.source {
                ebof_backend::Source::Path { path, .. } => Kind::Path(path.clone(), spec),
                ebof_backend::Source::Memory { .. } => opened(name, &spec, "memory")?,
                ebof_backend::Source::Null { .. } => opened(name, &spec, "null")?,
                ebof_backend::Source::Named { .. } => opened(name, &spec, "registered")?,
            }
        };
        Ok(Self { name: name.to_owned(), kind })
    }

    /// Nothing will be written to it: a file or block device is opened for reading only.
    #[must_use]
    pub fn for_reading(mut self) -> Self {
        if let Kind::Path(_, spec) = &mut self.kind {
            spec.read_only = true;
        }
        self
    }

    /// The word for what it is, as in [`Identity::kind`].
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        match &self.kind {
            Kind::Namespace(options, _) => match options.transport.protocol() {
                Transport::Tcp => "nvme+tcp",
                Transport::Rdma => "nvme+rdma",
            },
            Kind::Path(path, _) if is_block_device(path) => "block",
            Kind::Path(..) => "file",
            Kind::Opened(_, name) => name,
            Kind::Iscsi => "iscsi",
            Kind::Nbd => "nbd",
        }
    }

    /// The source for ebof's own load generator; `None` if it has none for this kind.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        match &self.kind {
            Kind::Namespace(options, nsid) => Some(Source::Fabric(options.clone(), *nsid)),
            Kind::Path(_, spec) => Some(Source::Local(spec.clone())),
            Kind::Opened(source, _) => Some(source.clone()),
            Kind::Iscsi | Kind::Nbd => None,
        }
    }

    /// The path, of a file or a block device.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Path(path, _) => Some(path),
            _ => None,
        }
    }

    /// The TCP port of this machine that serves it; `None` if it is elsewhere, or not served.
    #[must_use]
    pub fn local_port(&self) -> Option<u16> {
        let (host, port) = match &self.kind {
            Kind::Namespace(options, _) => (options.traddr.clone(), options.trsvcid),
            Kind::Iscsi => authority(self.name.strip_prefix("iscsi://")?, 3260)?,
            Kind::Nbd => authority(self.name.strip_prefix("nbd://")?, 10_809)?,
            _ => return None,
        };
        let address: std::net::IpAddr = if host == "localhost" { [127, 0, 0, 1].into() } else { host.parse().ok()? };
        // An address that can be bound is one of this machine's.
        std::net::UdpSocket::bind((address, 0)).is_ok().then_some(port)
    }

    /// Opens and inspects it. A file with a size in its specification is created.
    ///
    /// # Errors
    /// It cannot be opened or read.
    pub fn inspect(&self) -> Result<Seen, DeviceError> {
        let open_error = |error| DeviceError::Open { name: self.name.clone(), error };
        match &self.kind {
            Kind::Namespace(options, nsid) => self.inspect_namespace(options, *nsid).map_err(open_error),
            Kind::Path(path, spec) => self.inspect_path(path, spec),
            Kind::Opened(source, _) => {
                let mut identity = self.identity();
                if let Source::Device(device, _) = source {
                    identity.capacity_bytes = device.geometry().capacity_bytes;
                    identity.block_bytes = device.geometry().logical_block_bytes;
                    identity.details = vec![("description".to_owned(), device.describe())];
                }
                Ok(Seen { is_new: true, ..Seen::new(identity) })
            }
            // The programs that measure them find out.
            Kind::Iscsi | Kind::Nbd => Ok(Seen::new(self.identity())),
        }
    }

    /// Its temperature in degrees Celsius; `None` if it does not tell.
    pub(crate) fn celsius(&self) -> Option<f64> {
        match &self.kind {
            Kind::Namespace(options, _) => {
                let mut options = options.clone();
                (options.nr_io_queues, options.nr_write_queues, options.nr_poll_queues) = (0, 0, 0);
                let controller = Controller::connect(&options).ok()?;
                let mut health = [0; 512];
                controller.log_page(Nsid::ALL, HEALTH, 0, &mut health).ok()?;
                let is_ours = controller.identify().mn.starts_with(b"ebof");
                controller.disconnect();
                // SMART / Health Information, Composite Temperature: bytes 1 and 2, in kelvin.
                let kelvin = u16::from_le_bytes([health[1], health[2]]);
                // A drive of ebof without a sensor has to report some temperature, too: it names no
                // sensor (bytes 200 to 215).
                let is_made_up = is_ours && health[200..216].iter().all(|&it| it == 0);
                (kelvin > 0 && !is_made_up).then(|| f64::from(kelvin) - 273.0)
            }
            Kind::Path(path, _) => {
                let device = sys_directory(path)?.join("device");
                let monitors = fs::read_dir(device).ok()?.flatten();
                let monitors = monitors.filter(|entry| entry.file_name().to_string_lossy().starts_with("hwmon"));
                monitors.filter_map(|entry| hottest(&entry.path())).reduce(f64::max)
            }
            _ => None,
        }
    }

    fn identity(&self) -> Identity {
        Identity { name: self.name.clone(), kind: self.kind_name().to_owned(), ..Identity::default() }
    }

    fn inspect_namespace(&self, options: &Options, nsid: Nsid) -> Result<Seen, SourceError> {
        let mut options = options.clone();
        (options.nr_io_queues, options.nr_write_queues, options.nr_poll_queues) = (QUEUES_ASKED, 0, 0);
        let controller = Controller::connect(&options)?;
        let namespace = controller.namespace(nsid)?;
        let identify = controller.identify();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let mut identity = self.identity();
        let block_bytes = namespace.block_bytes();
        identity.capacity_bytes = u64::try_from(namespace.size_bytes()).unwrap_or(u64::MAX);
        identity.block_bytes = block_bytes;
        identity.details = vec![
            ("model".to_owned(), text(&identify.mn)),
            ("serial number".to_owned(), text(&identify.sn)),
            ("firmware".to_owned(), text(&identify.fr)),
            ("subsystem".to_owned(), options.nqn.to_string()),
            ("namespace".to_owned(), format!("{nsid}, {}", namespace.identifiers())),
            ("address".to_owned(), options.address()),
            ("host".to_owned(), options.host_nqn.to_string()),
            ("controller".to_owned(), controller.id().0.to_string()),
        ];
        let ends =
            ends_of(identity.capacity_bytes, |offset, bytes| namespace.read(offset / u64::from(block_bytes), bytes))?;
        let transfer = u64::from(namespace.max_transfer_blocks()) * u64::from(block_bytes);
        let is_read_only = namespace.is_write_protected();
        let io_queues_max = Some(controller.io_queues());
        let seen =
            Seen { transfer_bytes_max: Some(transfer), io_queues_max, is_read_only, ends, ..Seen::new(identity) };
        controller.disconnect();
        Ok(seen)
    }

    fn inspect_path(&self, path: &Path, spec: &Spec) -> Result<Seen, DeviceError> {
        let was_there = path.exists();
        let device =
            open_direct(spec).map_err(|error| DeviceError::Open { name: self.name.clone(), error: error.into() })?;
        let geometry = device.geometry();
        let is_uncached = device.file().is_some_and(ebof_backend::FileDevice::bypasses_cache);
        drop(device);
        let mut identity = self.identity();
        identity.capacity_bytes = geometry.capacity_bytes;
        identity.block_bytes = geometry.logical_block_bytes;
        identity.details = details_of_path(path);
        let cache = if is_uncached { "bypassed" } else { "used: the file system does not let it be bypassed" };
        identity.details.push(("page cache".to_owned(), cache.to_owned()));
        let read_error = |error| DeviceError::Read { name: self.name.clone(), error };
        let mut file = File::open(path).map_err(read_error)?;
        let ends = ends_of(geometry.capacity_bytes, |offset, bytes| {
            file.seek(SeekFrom::Start(offset))?;
            file.read_exact(bytes)
        });
        Ok(Seen {
            is_read_only: geometry.read_only || is_read_only(path),
            is_new: !was_there,
            ends: ends.map_err(read_error)?,
            ..Seen::new(identity)
        })
    }
}

impl Seen {
    fn new(identity: Identity) -> Self {
        let ends = [Vec::new(), Vec::new()];
        Self { identity, transfer_bytes_max: None, io_queues_max: None, is_read_only: false, is_new: false, ends }
    }
}

fn opened(name: &str, spec: &Spec, kind: &'static str) -> Result<Kind, DeviceError> {
    let device = open_direct(spec).map_err(|error| DeviceError::Open { name: name.to_owned(), error: error.into() })?;
    Ok(Kind::Opened(Source::Device(device, name.to_owned()), kind))
}

/// Host and port of `HOST[:PORT]/...`.
fn authority(rest: &str, default: u16) -> Option<(String, u16)> {
    let authority = rest.split('/').next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if let Some((host, port)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return Some((host.to_owned(), port.strip_prefix(':').map_or(Some(default), |port| port.parse().ok())?));
    }
    match authority.split_once(':') {
        Some((host, port)) => Some((host.to_owned(), port.parse().ok()?)),
        None => Some((authority.to_owned(), default)),
    }
}

/// Reads both ends of `capacity` bytes, the second one without what is in the first.
fn ends_of<E>(capacity: u64, mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>) -> Result<[Vec<u8>; 2], E> {
    let mut end = |from: u64, to: u64| {
        let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(0)];
        for (index, piece) in bytes.chunks_mut(READ_BYTES).enumerate() {
            read(from + (index * READ_BYTES) as u64, piece)?;
        }
        Ok(bytes)
    };
    // Whole blocks of any size.
    let capacity = capacity / 4096 * 4096;
    let first = end(0, capacity.min(END_BYTES))?;
    let last = end(capacity.saturating_sub(END_BYTES).max(capacity.min(END_BYTES)), capacity)?;
    Ok([first, last])
}

pub(crate) fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// The directory in /sys of a block device, or of the block device below a file system.
pub(crate) fn sys_directory(path: &Path) -> Option<PathBuf> {
    let metadata = fs::metadata(path).ok()?;
    let device = if metadata.file_type().is_block_device() { metadata.st_rdev() } else { metadata.st_dev() };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let directory = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    Some(directory)
}

fn is_read_only(path: &Path) -> bool {
    is_block_device(path)
        && sys_directory(path).and_then(|sys| read(&sys.join("ro"))).is_some_and(|text| text.trim() == "1")
}

/// What /sys says of a block device, or of the disk below a file.
fn details_of_path(path: &Path) -> Vec<(String, String)> {
    let Some(sys) = sys_directory(path) else { return Vec::new() };
    // What a disk is called is with the disk, not with its partitions.
    let disk = if sys.join("partition").exists() { sys.parent().unwrap_or(&sys).to_owned() } else { sys.clone() };
    let mut details = Vec::new();
    if !is_block_device(path) {
        details.push(("on".to_owned(), sys.file_name().unwrap_or_default().to_string_lossy().into_owned()));
    }
    let files = [
        ("model", "device/model"),
        ("serial number", "device/serial"),
        ("firmware", "device/firmware_rev"),
        ("transport", "device/transport"),
        ("address", "device/address"),
        ("subsystem", "device/subsysnqn"),
        ("rotational", "queue/rotational"),
        ("scheduler", "queue/scheduler"),
        ("write cache", "queue/write_cache"),
        ("requests", "queue/nr_requests"),
        ("backing file", "loop/backing_file"),
    ];
    details.extend(files.iter().filter_map(|(name, file)| {
        let text = read(&disk.join(file))?.trim().to_owned();
        (!text.is_empty()).then(|| ((*name).to_owned(), text))
    }));
    details
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> Result<Device, DeviceError> {
        Device::parse(name, Options::from_uri)
    }

    #[test]
    fn a_name_tells_what_a_device_is() {
        let kind = |name: &str| parse(name).unwrap().kind_name();
        assert_eq!(kind("nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:a/1"), "nvme+tcp");
        assert_eq!(kind("nvme+rdma://127.0.0.1/nqn.2014-08.org.example:a"), "nvme+rdma");
        assert_eq!((kind("mem:1Mi"), kind("null:1Ti")), ("memory", "null"));
        assert_eq!(
            (kind("iscsi://127.0.0.1/iqn.2014-08.org.example:a/1"), kind("nbd://127.0.0.1/a")),
            ("iscsi", "nbd")
        );
        assert_eq!(kind("/tmp/file"), "file");
        let refused = parse("nvme+tcp://127.0.0.1").unwrap_err().to_string();
        assert!(refused.contains("names no subsystem"), "{refused}");
        assert!(parse("mem:many").is_err() && parse("nvme+tcp://127.0.0.1:99999/x").is_err());
    }

    #[test]
    fn a_file_is_created_and_its_ends_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let new = parse(&format!("{}:4Mi", path.display())).unwrap().inspect().unwrap();
        assert!(new.is_new && !new.is_read_only);
        assert_eq!((new.identity.capacity_bytes, new.ends[0].len(), new.ends[1].len()), (4 << 20, 4 << 20, 0));
        fs::write(&path, vec![7; 9 << 20]).unwrap();
        let seen = parse(&path.display().to_string()).unwrap().inspect().unwrap();
        assert_eq!((seen.ends[0].len(), seen.ends[1].len()), (4 << 20, 4 << 20));
        fs::write(&path, vec![7; 1_500_000 / 4096 * 4096]).unwrap();
        let seen = parse(&path.display().to_string()).unwrap().inspect().unwrap();
        assert!(!seen.is_new && seen.ends.iter().flatten().all(|&byte| byte == 7));
        assert_eq!(seen.ends[0].len() + seen.ends[1].len(), 1_500_000 / 4096 * 4096);
        let missing = parse("/nonexistent/disk.img").unwrap().inspect().unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/disk.img"), "{missing}");
    }

    #[test]
    fn a_port_is_local_if_the_address_is() {
        let port = |name: &str| parse(name).unwrap().local_port();
        assert_eq!(port("nvme+tcp://127.0.0.1:4421/nqn.2014-08.org.example:a/1"), Some(4421));
        assert_eq!(port("nvme+tcp://192.0.2.1:4421/nqn.2014-08.org.example:a/1"), None);
        assert_eq!(port("iscsi://127.0.0.1/iqn.2014-08.org.example:a/1"), Some(3260));
        assert_eq!(port("nbd://[::1]:99/a").unwrap_or(99), 99);
        assert_eq!(port("mem:1Mi"), None);
    }
}
