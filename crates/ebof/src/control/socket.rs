//! The control socket's file: who may have it, and what becomes of one that was left behind.
//!
//! A target holds a lock beside its socket as long as it runs; the kernel releases it however the
//! process ends. So a socket without a locked file is stale, and replaced.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use ebof_cli::Failure;
use ebof_state::{Lock, LockError};

/// A bound control socket. Dropping it removes its file.
#[derive(Debug)]
pub(super) struct ControlSocket {
    path: PathBuf,
    /// Device and inode of the file.
    id: (u64, u64),
    /// Given back when everything else is.
    _lock: Lock,
}

impl ControlSocket {
    /// Binds a socket at `path` that only this user and its group may connect to.
    ///
    /// # Errors
    /// Another target has it, something else is there, or the directory cannot be written.
    pub(super) fn bind(path: &Path) -> Result<(Self, UnixListener), Failure> {
        let failed = |what: &str, error: io::Error| {
            let advice = "choose another path with `--control PATH` or `control` in [target], or none";
            Failure::new("io", format!("the control socket {}: {what}: {error}", path.display()), advice)
        };
        let lock_path = beside(path, ".lock");
        let mut options = OpenOptions::new();
        // Not where somebody else's link leads to.
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
        let lock = options.write(true).create(true).truncate(false).mode(0o600).open(&lock_path);
        let lock = lock.map_err(|error| failed(&format!("making {}", lock_path.display()), error))?;
        let lock = match Lock::take(lock) {
            Ok(lock) => lock,
            Err(LockError::Held(_)) => {
                let advice = "several targets on one machine need paths of their own: `--control PATH`, or `control` in \
                              [target]; `none` goes without";
                let message = format!("a running target has the control socket {}", path.display());
                return Err(Failure::new("in-use", message, advice));
            }
            Err(LockError::System(error)) => return Err(failed("locking it", error)),
        };
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.file_type().is_socket() => {
                let message = format!("the control socket {}: something else than a socket is there", path.display());
                return Err(Failure::new("in-use", message, "move it away, or choose another path"));
            }
            _ => {}
        }
        // Made in a directory that nobody else can enter, so that nobody connects before it has its
        // permissions; then put in place of a stale one in a single step.
        let folder = beside(path, ".new");
        let new = folder.join("s");
        // Left of a target that was killed there.
        let _gone = std::fs::remove_file(&new).and_then(|()| std::fs::remove_dir(&folder));
        let _empty = std::fs::remove_dir(&folder);
        DirBuilder::new().mode(0o700).create(&folder).map_err(|error| failed("making it", error))?;
        let placed = UnixListener::bind(&new).and_then(|listener| {
            std::fs::set_permissions(&new, Permissions::from_mode(MODE))?;
            listener.set_nonblocking(true)?;
            std::fs::rename(&new, path)?;
            Ok((listener, std::fs::symlink_metadata(path)?))
        });
        let _gone = std::fs::remove_file(&new);
        let _gone = std::fs::remove_dir(&folder);
        let (listener, metadata) = placed.map_err(|error| failed("putting it in place", error))?;
        let id = (metadata.dev(), metadata.ino());
        Ok((Self { path: path.to_owned(), id, _lock: lock }, listener))
    }
}

/// Who may connect, as the system checks it: this user, this user's group, and root.
const MODE: u32 = 0o660;

impl ControlSocket {
    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let is_ours = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino()) == self.id;
        if std::fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            let _gone = std::fs::remove_file(&self.path);
        }
    }
}

/// The path of a file beside the socket. Both have to be short enough for a socket's address.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_one_target_has_a_socket_and_a_stale_one_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        let (socket, listener) = ControlSocket::bind(&path).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o660);
        assert_eq!(metadata.gid(), rustix::process::getegid().as_raw());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "the socket and its lock");
        UnixStream::connect(&path).unwrap();
        let refused = ControlSocket::bind(&path).unwrap_err().to_string();
        assert!(refused.contains("a running target has") && refused.contains("--control PATH"), "{refused}");
        // As after SIGKILL: the file stays, the lock does not.
        let stale = directory.path().join("stale.sock");
        drop(listener);
        std::fs::rename(&path, &stale).unwrap();
        drop(socket);
        assert!(stale.exists(), "another file is not removed");
        let (socket, _listener) = ControlSocket::bind(&stale).unwrap();
        UnixStream::connect(&stale).unwrap();
        drop(socket);
        assert!(!stale.exists());
    }

    #[test]
    fn what_a_killed_target_has_left_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        for leaves_socket in [false, true] {
            std::fs::create_dir(beside(&path, ".new")).unwrap();
            if leaves_socket {
                drop(UnixListener::bind(beside(&path, ".new/s")).unwrap());
            }
            let (_socket, _listener) = ControlSocket::bind(&path).unwrap();
            UnixStream::connect(&path).unwrap();
        }
    }

    #[test]
    fn a_link_in_place_of_the_lock_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        let victim = directory.path().join("victim");
        std::os::unix::fs::symlink(&victim, beside(&path, ".lock")).unwrap();
        assert!(ControlSocket::bind(&path).is_err());
        assert!(!victim.exists());
    }

    #[test]
    fn what_is_no_socket_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes.txt");
        std::fs::write(&path, "keep").unwrap();
        let refused = ControlSocket::bind(&path).unwrap_err().to_string();
        assert!(refused.contains("something else than a socket"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "keep");
        let missing = ControlSocket::bind(&directory.path().join("no/such/control.sock")).unwrap_err().to_string();
        assert!(missing.contains("No such file"), "{missing}");
    }
}
