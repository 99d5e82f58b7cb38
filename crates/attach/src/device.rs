//! Which sort of block device a machine can have, and the set of those that one controller's
//! namespaces have become. It owns the choice and the order in which things are made and taken
//! away; how each sort works is in [`crate::fuse`], [`crate::loopdev`] and [`crate::ublk`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::blocks::{Blocks, Namespace, Table};
use crate::error::Error;
use crate::fuse::{self, Server};
use crate::request::Kind;
use crate::{loopdev, repair, ublk};

/// The sort of block device that `kind` comes down to on this machine: never [`Kind::Auto`].
///
/// # Errors
/// What is missing, for each sort, and what to do.
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
    sort: Sort,
    /// What the names of the files end with that are behind loop devices.
    token: String,
    paths: HashMap<String, PathBuf>,
}

#[derive(Debug)]
enum Sort {
    Loop(Server),
    Ublk(Box<ublk::Server>),
}

impl Front {
    /// Starts the threads, one for each of `blocks`; no devices yet. `directory` is the instance's.
    ///
    /// # Errors
    /// As [`choose`]; what the kernel refuses.
    pub fn start<B: Blocks + Send + 'static>(
        kind: Kind,
        directory: &Path,
        transfer_max_bytes: u32,
        blocks: Vec<B>,
    ) -> Result<Self, Error> {
        let table = Arc::new(Table::new());
        let sort = if choose(kind)? == Kind::Ublk {
            Sort::Ublk(Box::new(ublk::Server::start(blocks)?))
        } else {
            let mounted_at = repair::mount_point(directory);
            std::fs::create_dir(&mounted_at)
                .map_err(|error| Error::io(format!("making {}", mounted_at.display()), error))?;
            let options = fuse::Options { transfer_max_bytes, ..fuse::Options::default() };
            Sort::Loop(Server::mount(&mounted_at, &table, blocks, options)?)
        };
        Ok(Self { table, sort, token: token()?, paths: HashMap::new() })
    }

    /// The name of the file behind the loop device `name`, which no other file of a loop device on
    /// this machine has, now or later: it tells whose the device is when this process is gone.
    /// `None` where there are no loop devices.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<String> {
        matches!(self.sort, Sort::Loop(_)).then(|| format!("{name}-{}", self.token))
    }

    /// `ublk` or `loop`.
    #[must_use]
    pub const fn sort(&self) -> &'static str {
        match self.sort {
            Sort::Loop(_) => "loop",
            Sort::Ublk(_) => "ublk",
        }
    }

    /// Makes the block device of a namespace, and says where it is.
    ///
    /// # Errors
    /// What the kernel, or losetup, refuses.
    pub fn add(&mut self, name: &str, namespace: &Namespace) -> Result<PathBuf, Error> {
        let file = self.file(name).unwrap_or_default();
        let path = match &mut self.sort {
            Sort::Loop(server) => {
                self.table.insert(&file, namespace.clone());
                let made = loopdev::attach(&server.file(&file), namespace.block_bytes, namespace.read_only);
                made.inspect_err(|_| {
                    self.table.remove(&file);
                })?
            }
            Sort::Ublk(server) => server.add(name, namespace)?,
        };
        self.paths.insert(name.to_owned(), path.clone());
        Ok(path)
    }

    /// Makes the device follow a namespace that changed. `false` when it has to be removed and
    /// added: its blocks are no longer what they were.
    ///
    /// # Errors
    /// What losetup refuses.
    pub fn update(&mut self, name: &str, namespace: &Namespace) -> Result<bool, Error> {
        match (&self.sort, self.paths.get(name), self.file(name)) {
            (Sort::Loop(server), Some(path), Some(file)) if self.table.update(&file, namespace) => {
                // Before Linux 6.16 a loop device takes the size that the kernel remembers of the
                // file: have it ask.
                let file = server.file(&file);
                std::fs::metadata(&file).map_err(|error| Error::io(format!("looking at {}", file.display()), error))?;
                loopdev::resize(path)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Takes a device away. Whoever still uses it gets errors.
    ///
    /// # Errors
    /// What the kernel, or losetup, refuses; the namespace is not served any more all the same.
    pub fn remove(&mut self, name: &str) -> Result<(), Error> {
        let Some(path) = self.paths.remove(name) else { return Ok(()) };
        let file = self.file(name).unwrap_or_default();
        match &mut self.sort {
            Sort::Loop(_) => {
                // Whoever detached it by hand may have given its number to another file.
                let is_ours = loopdev::all().iter().any(|(other, behind)| *other == path && behind.ends_with(&file));
                let detached = if is_ours { loopdev::detach(&path) } else { Ok(()) };
                self.table.remove(&file);
                detached
            }
            Sort::Ublk(server) => server.remove(name),
        }
    }

    /// Who uses one of the devices: its name and by what.
    #[must_use]
    pub fn used_by(&self) -> Option<(String, String)> {
        self.paths.iter().find_map(|(name, path)| Some((name.clone(), loopdev::used_by(path)?)))
    }

    /// Takes all devices away and ends the threads. What does not work is logged: nothing stops the
    /// end.
    pub fn stop(mut self) {
        let names: Vec<String> = self.paths.keys().cloned().collect();
        for name in names {
            if let Err(error) = self.remove(&name) {
                tracing::error!(%error, name, "taking a device away");
            }
        }
    }
}

/// 48 random bits in hexadecimal: short enough for a name that FUSE is asked for.
fn token() -> Result<String, Error> {
    let path = "/proc/sys/kernel/random/uuid";
    let uuid = std::fs::read_to_string(path).map_err(|error| Error::io(format!("reading {path}"), error))?;
    // The last group of a version 4 UUID has no bits that are always the same.
    Ok(uuid.trim_end().rsplit('-').next().unwrap_or_default().to_owned())
}
