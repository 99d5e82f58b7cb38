//! The choice of the kind of block devices, and the block devices of one controller. Owns the order
//! in which things are made and removed; the kinds are in [`crate::fuse`], [`crate::loopdev`] and
//! [`crate::ublk`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::block_queue::{BlockQueue, Namespace, Table};
use crate::error::Error;
use crate::fuse::{self, Server};
use crate::request::Kind;
use crate::{loopdev, repair, ublk};

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
    paths: HashMap<String, PathBuf>,
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
            let options = fuse::Options { transfer_max_bytes, ..fuse::Options::default() };
            FrontServer::Loop(Server::mount(&mounted_at, &table, blocks, options)?)
        };
        Ok(Self { table, server, token: token()?, paths: HashMap::new() })
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
        self.paths.insert(name.to_owned(), path.clone());
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
        if let Some(path) = self.paths.get(name) {
            loopdev::set_read_only(path, namespace.read_only)?;
        }
        match (&self.server, self.paths.get(name), self.file(name)) {
            (FrontServer::Loop(server), Some(path), Some(file)) if self.table.update(&file, namespace) => {
                // Before Linux 6.16 a loop device uses the cached size of the file: refresh it.
                let file = server.file(&file);
                std::fs::metadata(&file).map_err(|error| Error::io(format!("looking at {}", file.display()), error))?;
                loopdev::resize(path)?;
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
        let Some(path) = self.paths.remove(name) else { return Ok(()) };
        let file = self.file(name).unwrap_or_default();
        match &mut self.server {
            FrontServer::Loop(_) => {
                // It may have been detached by hand, and its number reused for another file.
                let is_ours = loopdev::all().iter().any(|(other, behind)| *other == path && behind.ends_with(&file));
                let detached = if is_ours { loopdev::detach(&path) } else { Ok(()) };
                self.table.remove(&file);
                detached
            }
            FrontServer::Ublk(server) => server.remove(name),
        }
    }

    /// The first device in use: its name and its user.
    #[must_use]
    pub fn used_by(&self) -> Option<(String, String)> {
        self.paths.iter().find_map(|(name, path)| Some((name.clone(), loopdev::used_by(path)?)))
    }

    /// Removes all devices and ends the threads. Errors are logged.
    pub fn stop(mut self) {
        let names: Vec<String> = self.paths.keys().cloned().collect();
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
