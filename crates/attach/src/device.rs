//! Which sort of block device a machine can have, and the set of those that one controller's namespaces have become.
//! It owns the choice and the order in which things are made and taken away; how each sort works is in [`crate::fuse`],
//! [`crate::loopdev`] and [`crate::ublk`].

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
            let place = repair::mount_point(directory);
            std::fs::create_dir(&place).map_err(|error| Error::io(format!("making {}", place.display()), error))?;
            let options = fuse::Options { transfer_max_bytes, ..fuse::Options::default() };
            Sort::Loop(Server::mount(&place, &table, blocks, options)?)
        };
        Ok(Self { table, sort, paths: HashMap::new() })
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
        let path = match &mut self.sort {
            Sort::Loop(server) => {
                self.table.insert(name, namespace.clone());
                let made = loopdev::attach(&server.file(name), namespace.block_bytes, namespace.read_only);
                made.inspect_err(|_| {
                    self.table.remove(name);
                })?
            }
            Sort::Ublk(server) => server.add(name, namespace)?,
        };
        self.paths.insert(name.to_owned(), path.clone());
        Ok(path)
    }

    /// Makes the device follow a namespace that changed. `false` when it has to be removed and added: its blocks are
    /// no longer what they were.
    ///
    /// # Errors
    /// What losetup refuses.
    pub fn update(&mut self, name: &str, namespace: &Namespace) -> Result<bool, Error> {
        match (&self.sort, self.paths.get(name)) {
            (Sort::Loop(server), Some(path)) if self.table.update(name, namespace) => {
                // Before Linux 6.16 a loop device takes the size that the kernel remembers of the file: have it ask.
                let file = server.file(name);
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
        match &mut self.sort {
            Sort::Loop(_) => {
                let detached = loopdev::detach(&path);
                self.table.remove(name);
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

    /// Takes all devices away and ends the threads. What does not work is logged: nothing stops the end.
    pub fn stop(mut self) {
        let names: Vec<String> = self.paths.keys().cloned().collect();
        for name in names {
            if let Err(error) = self.remove(&name) {
                tracing::error!(%error, name, "taking a device away");
            }
        }
    }
}
