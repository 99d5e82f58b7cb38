//! Making the directory with its parents, so that a power cut does not take it away again: each
//! name is put on the medium by syncing the directory that has it.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use crate::StateError;
use crate::calls::{Calls, SystemCall};

/// Opens the directory, which is made if there is none.
pub(crate) fn open_or_make(path: &Path, calls: &dyn Calls) -> Result<OwnedFd, StateError> {
    let open = || fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let opened = match open() {
        Err(Errno::NOENT) => {
            make(path, calls)?;
            open()
        }
        opened => opened,
    };
    opened.map_err(|error| match error {
        Errno::NOTDIR => StateError::Kind { path: path.to_owned(), found: "something else", expected: "a directory" },
        error => StateError::system("opening", path, error),
    })
}

fn make(path: &Path, calls: &dyn Calls) -> Result<(), StateError> {
    let missing: Vec<&Path> = path.ancestors().take_while(|part| is_missing(part)).collect();
    for part in missing.into_iter().rev() {
        let made = calls.make(SystemCall::MakeDirectory, part, &mut || DirBuilder::new().mode(0o700).create(part));
        match made {
            // By another process, which had the same idea.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(|error| StateError::writing("making", path, 0, error))?,
        }
    }
    Ok(())
}

fn is_missing(part: &Path) -> bool {
    !part.as_os_str().is_empty() && matches!(fs::stat(part), Err(Errno::NOENT))
}

/// Puts the names of a directory and of its parents on the medium.
pub(crate) fn sync(path: &Path, calls: &dyn Calls) -> Result<(), StateError> {
    let failed = |error| StateError::system("storing the name of", path, error);
    let real = std::fs::canonicalize(path).map_err(failed)?;
    let mut parents: Vec<PathBuf> = real.ancestors().skip(1).map(Path::to_owned).collect();
    // Where it is a link: the directory that has the link.
    let of_name = std::path::absolute(path).map_err(failed)?;
    parents.extend(of_name.parent().map(Path::to_owned).filter(|parent| !parents.contains(parent)));
    for parent in parents {
        calls.make(SystemCall::SyncDirectory, &parent, &mut || sync_one(&parent)).map_err(failed)?;
    }
    Ok(())
}

fn sync_one(directory: &Path) -> io::Result<()> {
    match File::open(directory).and_then(|directory| directory.sync_all()) {
        // Directories of others, of which this user could not have made anything; and file systems
        // that have nothing to put on a medium.
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::INVAL | Errno::NOSYS)
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}
