//! The choice of the kind of block devices, and the block devices of one controller. Owns the order
//! in which things are made and removed; the kinds are in [`crate::fuse`], [`crate::loopdev`] and
//! [`crate::ublk`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::block_queue::{BlockQueue, Namespace, Table};
use crate::error::Error;
use crate::fuse::{self, Server};
use crate::loopdev;
use crate::repair;
use crate::request::Kind;
use crate::ublk;
use crate::usage::{self, Use};

/// How long a program may have a device open that is to be taken away: udev's look at new ones.
const OPEN_MAX: Duration = Duration::from_secs(1);
/// How often to look meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The kind of block device that `kind` means on this machine: never [`Kind::Auto`].
///
/// # Errors
/// What is missing, for each kind, and what to do.
pub fn choose(kind: Kind) -> Result<Kind, Error> {
    match kind {
        Kind::Ublk => ublk::check().map(|()| Kind::Ublk),
        Kind::Loop => check_loop().map(|()| Kind::Loop),
        Kind::Auto => {
            let Err(ublk) = ublk::check() else { return Ok(Kind::Ublk) };
            let Err(fuse) = check_loop() else {
                tracing::debug!(%ublk, "a loop device is made");
                return Ok(Kind::Loop);
            };
            Err(Error::NoDevice { ublk: Box::new(ublk), fuse: Box::new(fuse) })
        }
    }
}

fn check_loop() -> Result<(), Error> {
    fuse::check()?;
    loopdev::check()
}

/// The block devices of one controller.
#[derive(Debug)]
pub struct Front {
    table: Arc<Table>,
    server: FrontServer,
    /// Suffix of the names of files behind loop devices.
    token: String,
    devices: HashMap<String, Made>,
}

/// A block device.
#[derive(Debug)]
struct Made {
    path: PathBuf,
    namespace: Namespace,
}

/// Why devices stay: one of them is in use, or whether it is cannot be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The device.
    pub name: String,
    /// Its user, or why that cannot be told.
    pub used_by: String,
}

#[derive(Debug)]
enum FrontServer {
    Loop(Server),
    Ublk(Box<ublk::Server>),
}

impl Front {
    /// Starts one thread for each of `blocks`, without devices. `directory` is the instance's.
    ///
    /// # Errors
    /// As [`choose`]; an error of the kernel.
    pub fn start<B: BlockQueue + Send + 'static>(
        kind: Kind,
        directory: &Path,
        transfer_max_bytes: u32,
        blocks: Vec<B>,
    ) -> Result<Self, Error> {
        let table = Arc::new(Table::new());
        let server = if choose(kind)? == Kind::Ublk {
            FrontServer::Ublk(Box::new(ublk::Server::start(blocks)?))
        } else {
            let mounted_at = repair::mount_point(directory);
            std::fs::create_dir(&mounted_at)
                .map_err(|error| Error::io(format!("making {}", mounted_at.display()), error))?;
            let options = fuse::FuseOptions { transfer_max_bytes, ..fuse::FuseOptions::default() };
            FrontServer::Loop(Server::mount(&mounted_at, &table, blocks, options)?)
        };
        Ok(Self { table, server, token: token()?, devices: HashMap::new() })
    }

    /// The name of the file behind the loop device `name`; `None` for ublk. It is unique on this
    /// machine for ever, so it identifies the device when this process is gone.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<String> {
        matches!(self.server, FrontServer::Loop(_)).then(|| format!("{name}-{}", self.token))
    }

    /// `ublk` or `loop`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self.server {
            FrontServer::Loop(_) => "loop",
            FrontServer::Ublk(_) => "ublk",
        }
    }

    /// Makes the block device of a namespace and returns its path.
    ///
    /// # Errors
    /// An error of the kernel or losetup.
    pub fn add(&mut self, name: &str, namespace: &Namespace) -> Result<PathBuf, Error> {
        let file = self.file(name).unwrap_or_default();
        let path = match &mut self.server {
            FrontServer::Loop(server) => {
                self.table.insert(&file, namespace.clone());
                let made = loopdev::attach(&server.file(&file), namespace.block_bytes);
                made.inspect_err(|_| {
                    self.table.remove(&file);
                })?
            }
            FrontServer::Ublk(server) => server.add(name, namespace)?,
        };
        self.devices.insert(name.to_owned(), Made { path: path.clone(), namespace: namespace.clone() });
        if namespace.read_only
            && let Err(error) = loopdev::set_read_only(&path, true)
        {
            self.remove(name)?;
            return Err(error);
        }
        Ok(path)
    }

    /// Updates the device of a namespace that changed: whether it may be written in any case.
    /// `false` if it has to be removed and added to have the other size, because its block size
    /// changed or it cannot follow.
    ///
    /// # Errors
    /// An error of losetup or blockdev.
    pub fn update(&mut self, name: &str, namespace: &Namespace) -> Result<bool, Error> {
        let file = self.file(name);
        let Some(made) = self.devices.get_mut(name) else { return Ok(false) };
        loopdev::set_read_only(&made.path, namespace.read_only)?;
        made.namespace.read_only = namespace.read_only;
        match (&self.server, file) {
            (FrontServer::Loop(server), Some(file)) if self.table.update(&file, namespace) => {
                made.namespace = namespace.clone();
                // Before Linux 6.16 a loop device uses the cached size of the file: refresh it.
                let file = server.file(&file);
                std::fs::metadata(&file).map_err(|error| Error::io(format!("looking at {}", file.display()), error))?;
                loopdev::resize(&made.path)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Removes a device. Its users get errors.
    ///
    /// # Errors
    /// An error of the kernel or losetup; the namespace is not served any more in any case.
    pub fn remove(&mut self, name: &str) -> Result<(), Error> {
        let Some(Made { path, .. }) = self.devices.remove(name) else { return Ok(()) };
        let file = self.file(name).unwrap_or_default();
        match &mut self.server {
            FrontServer::Loop(_) => {
                let detached = if loopdev::is_on(&path, &file) { loopdev::detach(&path) } else { Ok(()) };
                self.table.remove(&file);
                detached
            }
            FrontServer::Ublk(server) => server.remove(name),
        }
    }

    /// The path of a device.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<&Path> {
        self.devices.get(name).map(|made| made.path.as_path())
    }

    /// The user of a device, or why that cannot be told; `None` if it has none.
    #[must_use]
    pub fn used_by(&self, name: &str) -> Option<String> {
        usage::used_by(self.path(name)?)
    }

    /// The first device that somebody uses, as far as that can be told.
    #[must_use]
    pub fn user(&self) -> Option<String> {
        self.devices.values().find_map(|made| match usage::look(&made.path) {
            Use::Held(reason) | Use::Open(reason) => Some(reason),
            Use::Free | Use::Unknown(_) => None,
        })
    }

    /// Removes all devices unless somebody uses one of them. What can be seen is looked at first;
    /// then the kernel decides, device by device, where it can. What is gone already when one turns
    /// out to be in use comes back, under the same path unless another process was quicker: see
    /// [`path`](Self::path).
    ///
    /// # Errors
    /// All stay: one is in use, or whether it is cannot be told.
    pub fn remove_unused(&mut self) -> Result<(), InUse> {
        let names: Vec<String> = self.devices.keys().cloned().collect();
        for name in &names {
            self.await_unused(name)?;
        }
        for (index, name) in names.iter().enumerate() {
            let used_by = match self.take_unused(name) {
                Ok(true) => continue,
                Ok(false) => "a program has it open that is not seen here, in another container or for a moment".into(),
                Err(error) => format!("whether it is in use cannot be told: {error}"),
            };
            names[..index].iter().for_each(|name| self.put_back(name));
            return Err(InUse { name: name.clone(), used_by });
        }
        for name in names {
            if let Some(file) = self.file(&name) {
                self.table.remove(&file);
            }
            self.devices.remove(&name);
        }
        Ok(())
    }

    /// Waits until a device is not in use, as far as can be seen.
    fn await_unused(&self, name: &str) -> Result<(), InUse> {
        let Some(made) = self.devices.get(name) else { return Ok(()) };
        let end = Instant::now() + OPEN_MAX;
        loop {
            let used_by = match usage::look(&made.path) {
                Use::Free => return Ok(()),
                Use::Unknown(_) if self.kernel_counts() => return Ok(()),
                Use::Open(_) if Instant::now() < end => {
                    std::thread::sleep(LOOK_INTERVAL);
                    continue;
                }
                Use::Held(reason) | Use::Open(reason) | Use::Unknown(reason) => reason,
            };
            return Err(InUse { name: name.to_owned(), used_by });
        }
    }

    /// Whether the kernel takes a device away only if nobody uses it.
    const fn kernel_counts(&self) -> bool {
        match &self.server {
            FrontServer::Loop(_) => true,
            FrontServer::Ublk(server) => server.counts_openers(),
        }
    }

    /// Takes a block device away if nobody uses it, and keeps what is known of it.
    fn take_unused(&mut self, name: &str) -> Result<bool, Error> {
        let file = self.file(name).unwrap_or_default();
        let Some(made) = self.devices.get(name) else { return Ok(true) };
        match &mut self.server {
            FrontServer::Loop(_) if loopdev::is_on(&made.path, &file) => loopdev::detach_unused(&made.path),
            FrontServer::Loop(_) => Ok(true),
            FrontServer::Ublk(server) => server.remove_unused(name),
        }
    }

    /// Makes a device again that was taken away. Errors are logged.
    fn put_back(&mut self, name: &str) {
        let file = self.file(name).unwrap_or_default();
        let Some(made) = self.devices.get_mut(name) else { return };
        let again = match &mut self.server {
            FrontServer::Loop(server) => {
                loopdev::attach_again(&made.path, &server.file(&file), made.namespace.block_bytes)
            }
            FrontServer::Ublk(server) => server.add(name, &made.namespace),
        };
        match again {
            Ok(path) => made.path = path,
            Err(error) => tracing::error!(%error, name, "a device that was to stay is gone"),
        }
        if let Err(error) = loopdev::set_read_only(&made.path, made.namespace.read_only) {
            tracing::error!(%error, name, "whether it may be written");
        }
    }

    /// Removes all devices and ends the threads. Errors are logged.
    pub fn stop(mut self) {
        let names: Vec<String> = self.devices.keys().cloned().collect();
        for name in names {
            if let Err(error) = self.remove(&name) {
                tracing::error!(%error, name, "taking a device away");
            }
        }
    }
}

/// 48 random bits in hexadecimal: short enough for a name in a FUSE request.
fn token() -> Result<String, Error> {
    let path = "/proc/sys/kernel/random/uuid";
    let uuid = std::fs::read_to_string(path).map_err(|error| Error::io(format!("reading {path}"), error))?;
    // The last group of a version 4 UUID is completely random.
    Ok(uuid.trim_end().rsplit('-').next().unwrap_or_default().to_owned())
}
