//! A file that is locked as long as this process wants.

use std::fs::File;
use std::io;
use std::ops::Deref;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// A file that nobody else locks until this is dropped (flock(2)).
#[derive(Debug)]
pub struct Lock(File);

/// Why a file is not locked.
#[derive(Debug)]
pub enum LockError {
    /// Somebody has locked it: the file, in which may be who.
    Held(File),
    /// The system does not lock it.
    System(io::Error),
}

impl Lock {
    /// Locks a file, if nobody has.
    ///
    /// # Errors
    /// Somebody has, or it cannot be locked.
    pub fn take(file: File) -> Result<Self, LockError> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(file)),
            Err(Errno::WOULDBLOCK) => Err(LockError::Held(file)),
            Err(error) => Err(LockError::System(error.into())),
        }
    }
}

impl Deref for Lock {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Lock {
    /// Closing the file is not enough: the lock belongs to the open file, and a process that
    /// another thread is starting right now has a descriptor of it until its exec.
    fn drop(&mut self) {
        // Cannot fail: the descriptor is open, and unlocking does not wait.
        let _unlocked: Result<(), Errno> = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_free_as_soon_as_its_lock_is_dropped() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        let lock = Lock::take(File::create(&path).unwrap()).unwrap();
        // What a process has until its exec.
        let inherited = lock.try_clone().unwrap();
        assert!(matches!(Lock::take(File::open(&path).unwrap()), Err(LockError::Held(_))));
        drop(lock);
        Lock::take(File::open(&path).unwrap()).unwrap();
        drop(inherited);
    }
}
