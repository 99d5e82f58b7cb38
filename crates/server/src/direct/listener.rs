//! The socket at which clients of vfio-user arrive.
//!
//! Owns the socket's file: it is replaced if its owner is gone, and removed at the end.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A socket in the file system that listens.
#[derive(Debug)]
pub(crate) struct DirectListener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, so that nobody else's is removed.
    file: (u64, u64),
}

/// Whoever may open the socket is the virtual machine's owner.
const MODE: u32 = 0o600;

impl DirectListener {
    /// Listens at `path`. A socket there whose process is gone is replaced.
    ///
    /// # Errors
    /// Something else is there, another process listens, or the folder cannot be written.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        remove_stale(path)?;
        // Made elsewhere and then renamed, so that nobody finds a socket that does not listen yet
        // or has other permissions.
        let new = beside(path);
        let _ = fs::remove_file(&new);
        let socket = UnixListener::bind(&new)?;
        let placed = (|| -> io::Result<_> {
            fs::set_permissions(&new, fs::Permissions::from_mode(MODE))?;
            socket.set_nonblocking(true)?;
            // Fails if something has come there meanwhile.
            fs::hard_link(&new, path)?;
            let metadata = fs::symlink_metadata(path)?;
            Ok((metadata.dev(), metadata.ino()))
        })();
        let _ = fs::remove_file(&new);
        Ok(Self { socket, path: path.to_owned(), file: placed? })
    }

    /// The next client; `None`: nobody waits.
    pub(crate) fn accept(&self) -> io::Result<Option<UnixStream>> {
        match self.socket.accept() {
            Ok((client, _)) => {
                client.set_nonblocking(true)?;
                Ok(Some(client))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the socket's file, if it is still the one that was made: from now on nobody comes.
    pub(crate) fn remove(&self) {
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.file);
        if is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for DirectListener {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A name in the same folder, short enough where `path` is.
fn beside(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{:x}", std::process::id()))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_without_a_process_is_replaced_and_others_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        drop(UnixListener::bind(&path).unwrap());
        let first = DirectListener::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(first.accept().unwrap().is_none());
        let client = UnixStream::connect(&path).unwrap();
        assert!(first.accept().unwrap().is_some());
        drop(client);
        assert_eq!(DirectListener::bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(!path.exists());
        fs::write(&path, "data").unwrap();
        assert_eq!(DirectListener::bind(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"data");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
