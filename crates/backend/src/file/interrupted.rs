//! What a process that has ended in between has left of a change of a file's size: it is finished,
//! or taken back where nobody has stored anything there.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, SeekFrom};
use rustix::io::Errno;

use crate::error::size::round_up;
use crate::job::open_file::Handle;

/// What has become of something that was to be finished or taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// There is nothing to do: it was not begun, or is complete, or somebody has changed the file
    /// since.
    Nothing,
    /// The file was changed.
    Changed,
    /// The file stays as it is, because something was stored there.
    HasData,
}

/// Finishes making a regular file larger that had `from_bytes`, and is to have `to_bytes`.
///
/// # Errors
/// It cannot be made larger, or another process has it.
pub fn finish_extension(path: &Path, from_bytes: u64, to_bytes: u64) -> io::Result<Interrupted> {
    let Some(file) = of_size(path, from_bytes)? else { return Ok(Interrupted::Nothing) };
    if from_bytes >= round_up(to_bytes) {
        return Ok(Interrupted::Nothing);
    }
    file.set_len(round_up(to_bytes))?;
    file.sync_all()?;
    Ok(Interrupted::Changed)
}

/// Takes it back, if nothing was stored beyond `from_bytes`.
///
/// # Errors
/// It cannot be made smaller, or another process has it.
pub fn take_back_extension(path: &Path, from_bytes: u64, to_bytes: u64) -> io::Result<Interrupted> {
    let Some(file) = of_size(path, round_up(to_bytes))? else { return Ok(Interrupted::Nothing) };
    if from_bytes >= round_up(to_bytes) {
        return Ok(Interrupted::Nothing);
    }
    if has_data(&file, from_bytes)? {
        return Ok(Interrupted::HasData);
    }
    file.set_len(from_bytes)?;
    file.sync_all()?;
    Ok(Interrupted::Changed)
}

/// Makes a file that was to be made with `size_bytes`, if there is none.
///
/// # Errors
/// It cannot be made.
pub fn finish_file(path: &Path, size_bytes: u64) -> io::Result<Interrupted> {
    let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    let file = match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match of_size(path, 0)? {
            Some(file) => file,
            None => return Ok(Interrupted::Nothing),
        },
        made => Handle::from(made?),
    };
    file.set_len(round_up(size_bytes))?;
    file.sync_all()?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()?;
    Ok(Interrupted::Changed)
}

/// Removes a regular file that was made with `size_bytes`, if nothing was stored in it.
///
/// # Errors
/// It cannot be removed, or another process has it.
pub fn take_back_file(path: &Path, size_bytes: u64) -> io::Result<Interrupted> {
    let file = match of_size(path, round_up(size_bytes))? {
        Some(file) => file,
        // It was made, and has not got its size.
        None => match of_size(path, 0)? {
            Some(file) => file,
            None => return Ok(Interrupted::Nothing),
        },
    };
    if has_data(&file, 0)? {
        return Ok(Interrupted::HasData);
    }
    std::fs::remove_file(path)?;
    Ok(Interrupted::Changed)
}

/// A regular file of this size, locked; `None` if it is something else, or of another size.
fn of_size(path: &Path, bytes: u64) -> io::Result<Option<Handle>> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let file = Handle::from(OpenOptions::new().read(true).write(true).open(path)?);
    rustix::fs::flock(&*file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(Some(file).filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == bytes)))
}

/// Whether something was stored from `begin` on. A file system that does not tell says so.
fn has_data(file: &File, begin: u64) -> io::Result<bool> {
    match rustix::fs::seek(file, SeekFrom::Data(begin)) {
        Ok(_) => Ok(true),
        // lseek(2), SEEK_DATA: there are no data from there to the end of the file.
        Err(Errno::NXIO) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    const SMALL: u64 = 1 << 20;
    const LARGE: u64 = 68_000_000;

    fn file(bytes: u64) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.img");
        File::create_new(&path).unwrap().set_len(bytes).unwrap();
        (directory, path)
    }

    fn bytes(path: &Path) -> u64 {
        std::fs::metadata(path).unwrap().len()
    }

    #[test]
    fn an_extension_is_finished_or_taken_back_from_wherever_it_was_left() {
        let (_directory, path) = file(SMALL);
        assert_eq!(take_back_extension(&path, SMALL, LARGE).unwrap(), Interrupted::Nothing);
        assert_eq!(finish_extension(&path, SMALL, LARGE).unwrap(), Interrupted::Changed);
        assert_eq!(bytes(&path), round_up(LARGE));
        assert_eq!(finish_extension(&path, SMALL, LARGE).unwrap(), Interrupted::Nothing);
        assert_eq!(take_back_extension(&path, SMALL, LARGE).unwrap(), Interrupted::Changed);
        assert_eq!(bytes(&path), SMALL);
    }

    // @test data.interrupted-file-change
    #[test]
    fn nothing_that_was_stored_is_cut_off_or_removed() {
        let (_directory, path) = file(round_up(LARGE));
        File::options().write(true).open(&path).unwrap().write_all_at(b"data", LARGE - 4).unwrap();
        assert_eq!(take_back_extension(&path, SMALL, LARGE).unwrap(), Interrupted::HasData);
        assert_eq!(take_back_file(&path, LARGE).unwrap(), Interrupted::HasData);
        assert_eq!(bytes(&path), round_up(LARGE));
        // Somebody has given it another size since.
        let (_directory, path) = file(2 * SMALL);
        assert_eq!(finish_extension(&path, SMALL, LARGE).unwrap(), Interrupted::Nothing);
        assert_eq!(take_back_extension(&path, SMALL, LARGE).unwrap(), Interrupted::Nothing);
        assert_eq!(take_back_file(&path, LARGE).unwrap(), Interrupted::Nothing);
        assert_eq!(bytes(&path), 2 * SMALL);
    }

    #[test]
    fn a_file_that_was_made_goes_and_one_that_others_have_stays() {
        for left in [0, round_up(LARGE)] {
            let (_directory, path) = file(left);
            let holder = File::open(&path).unwrap();
            rustix::fs::flock(&holder, FlockOperation::NonBlockingLockShared).unwrap();
            assert_eq!(take_back_file(&path, LARGE).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            drop(holder);
            assert_eq!(take_back_file(&path, LARGE).unwrap(), Interrupted::Changed);
            assert!(!path.exists());
            assert_eq!(take_back_file(&path, LARGE).unwrap(), Interrupted::Nothing);
            assert_eq!(finish_file(&path, LARGE).unwrap(), Interrupted::Changed);
            assert_eq!((bytes(&path), finish_file(&path, LARGE).unwrap()), (round_up(LARGE), Interrupted::Nothing));
        }
    }
}
