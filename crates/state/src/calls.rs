//! The system calls that change a state directory, so that tests can have each of them fail.

use std::fmt;
use std::io;
use std::path::Path;

/// A system call that changes what is stored, or puts it on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemCall {
    /// A directory is made.
    MakeDirectory,
    /// A file is made.
    Create,
    /// A file is written.
    Write,
    /// The content of a file is put on the medium.
    SyncFile,
    /// A file gets its name.
    Rename,
    /// A file is removed.
    Remove,
    /// The names in a directory are put on the medium.
    SyncDirectory,
}

/// Makes system calls.
pub trait Calls: fmt::Debug + Send + Sync {
    /// Makes one, by calling `work`; `path` is what it is about.
    ///
    /// # Errors
    /// That of `work`. One that does not come from there stands for a medium that failed, with or
    /// without having done what was asked for.
    fn make(&self, call: SystemCall, path: &Path, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()>;
}

/// Those of the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemCalls;

impl Calls for SystemCalls {
    fn make(&self, _call: SystemCall, _path: &Path, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        work()
    }
}
