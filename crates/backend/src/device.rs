//! The interface of block devices, and a device that can be pulled out, whatever it wraps. Requests
//! are in `request.rs`, sizes and abilities in `geometry.rs`.

pub(crate) mod removable;

use std::fmt;

use crate::{Completion, FileDevice, Geometry, Io, Persistent, Request, Resident, Segments};

/// The result of a submission.
#[derive(Debug)]
#[must_use = "a request that was not accepted is in here"]
pub enum Submitted {
    /// It has completed already; [`Io::poll`] will not return it.
    Done(Completion),
    /// It is in flight: [`Io::poll`] will return its completion, after [`Io::kick`].
    Pending,
    /// The [`Io`] has as many requests in flight as it allows: submit this one again after a
    /// completion.
    Busy(Request),
}

/// A block device. All threads share it, each with an [`Io`] of its own.
pub trait Device: Send + Sync + fmt::Debug {
    /// Its size and abilities.
    fn geometry(&self) -> Geometry;

    /// Starts a request, or does it at once. Never blocks on the medium.
    fn submit(&self, io: &mut Io, request: Request) -> Submitted;

    /// Whether reads and writes use this memory as it is. Otherwise a request takes a copy, which
    /// belongs to no budget: callers that have one use a buffer of their own instead.
    fn uses(&self, _memory: &Segments) -> bool {
        true
    }

    /// Direct access to the bytes, for devices in memory.
    fn resident(&self) -> Option<&dyn Resident> {
        None
    }

    /// The file or block device of the system, for devices that are one.
    fn file(&self) -> Option<&FileDevice> {
        None
    }

    /// What of it outlives the process, for devices whose data do.
    fn persistent(&self) -> Option<&dyn Persistent> {
        None
    }

    /// The next byte from `from` on that may not be zero (end of a hole); `None` if all are zeros.
    /// May block on the medium.
    fn next_data(&self, from: u64) -> Option<u64> {
        Some(from)
    }

    /// A description for people in one line: kind, name, size.
    fn describe(&self) -> String;
}
