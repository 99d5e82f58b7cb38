//! What a block device is to its users. How a device stores bytes is in its own file; what it is
//! asked for, in `request.rs`; what it is, in `geometry.rs`.

use std::fmt;

use crate::{Completion, FileDevice, Geometry, Io, Request, Resident};

/// What became of a submission.
#[derive(Debug)]
#[must_use = "a request that was not accepted is in here"]
pub enum Submitted {
    /// It is over, well or not; nothing will come from [`Io::poll`].
    Done(Completion),
    /// It is under way: [`Io::poll`] will return its completion, after [`Io::kick`].
    Pending,
    /// As much is in flight as the [`Io`] allows: take the request back and submit it after a
    /// completion was polled.
    Busy(Request),
}

/// A block device. Shared by all threads; each brings the [`Io`] that its requests run on.
pub trait Device: Send + Sync + fmt::Debug {
    /// What the device is and can do.
    fn geometry(&self) -> Geometry;

    /// Starts (or does at once) what `request` asks for. Never blocks on the medium.
    fn submit(&self, io: &mut Io, request: Request) -> Submitted;

    /// The way to the bytes themselves, for devices that have them in memory.
    fn resident(&self) -> Option<&dyn Resident> {
        None
    }

    /// What can be asked of a device that is a file or a block device of the system.
    fn file(&self) -> Option<&FileDevice> {
        None
    }

    /// Where it may hold something besides zeros, from byte `from` on; `None` if there is nothing.
    /// May wait for the medium.
    fn next_data(&self, from: u64) -> Option<u64> {
        Some(from)
    }

    /// One line for a person: what it is, where, how large.
    fn describe(&self) -> String;
}
