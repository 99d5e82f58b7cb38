//! Requests to a device, and their completions. A request owns its memory, and returns it with its
//! completion. The memory itself, and a copy of it that is aligned, are in the folder.

pub(crate) mod bounce;
pub(crate) mod segments;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::{Action, Error, Segments};

/// An operation. Offsets and lengths are in bytes; a transfer starts at the first byte of its
/// memory.
#[derive(Debug)]
pub enum Operation {
    /// Fills the first `len` bytes of `data` from the device.
    Read {
        /// Where to start on the device.
        offset: u64,
        /// How many bytes; at most what fits into `data`.
        len: usize,
        /// Receives the bytes; what is behind `len` stays as it was.
        data: Segments,
    },
    /// Stores the first `len` bytes of `data`.
    Write {
        /// Where to start on the device.
        offset: u64,
        /// How many bytes; at most what fits into `data`.
        len: usize,
        /// The bytes.
        data: Segments,
        /// Complete only when these bytes are durable.
        fua: bool,
    },
    /// Makes all writes durable that completed before this was submitted.
    Flush,
    /// Makes the range read as zeros.
    WriteZeroes {
        /// Where to start on the device.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// The storage may be freed.
        deallocate: bool,
        /// Complete only when the zeros are durable.
        fua: bool,
    },
    /// Advice that the contents are not needed any more. Succeeds also if the medium cannot
    /// deallocate.
    Deallocate {
        /// Byte ranges, in any order.
        ranges: Vec<Range<u64>>,
    },
}

impl Operation {
    /// What kind of operation this is.
    #[must_use]
    pub fn action(&self) -> Action {
        match self {
            Operation::Read { .. } => Action::Read,
            Operation::Write { .. } => Action::Write,
            Operation::Flush => Action::Flush,
            Operation::WriteZeroes { .. } => Action::WriteZeroes,
            Operation::Deallocate { .. } => Action::Deallocate,
        }
    }

    /// The memory of the operation, if it has any.
    #[must_use]
    pub fn into_data(self) -> Option<Segments> {
        match self {
            Operation::Read { data, .. } | Operation::Write { data, .. } => Some(data),
            Operation::Flush | Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => None,
        }
    }
}

/// A hook for the completion of a request. A device on top of another one attaches it to the
/// requests that it passes down.
pub trait CompletionHook: Send + Sync + fmt::Debug {
    /// Called with the completion before it is delivered, and may change it. Once per request, on
    /// the thread that completes it; not if a request is dropped before it is done.
    fn finish(&self, completion: &mut Completion);
}

/// An operation, and a tag that identifies its completion.
#[derive(Debug)]
pub struct Request {
    /// Chosen by the caller and returned as it is. [`Io::cancel`](crate::Io::cancel) finds a
    /// request by it, so it should be unique among what is in flight on one [`Io`](crate::Io).
    pub tag: u64,
    /// What is to be done.
    pub operation: Operation,
    /// Called on completion, and dropped only then: the device is not accessed for this request any
    /// more.
    pub hook: Option<Arc<dyn CompletionHook>>,
}

impl Request {
    /// A request without a hook.
    #[must_use]
    pub fn new(tag: u64, operation: Operation) -> Request {
        Request { tag, operation, hook: None }
    }

    /// Completes the request: calls its hook, and returns the completion with its memory.
    pub fn complete(self, result: Result<(), Error>) -> Completion {
        let mut completion = Completion { tag: self.tag, result, data: self.operation.into_data() };
        if let Some(hook) = self.hook {
            hook.finish(&mut completion);
        }
        completion
    }
}

/// The completion of a request. Every accepted request has exactly one.
#[derive(Debug)]
#[must_use = "the memory of the request is in here"]
pub struct Completion {
    /// The request's.
    pub tag: u64,
    /// After an error a write may have been done in part, and the memory of a read is undefined.
    pub result: Result<(), Error>,
    /// The memory of a read or write; `None` for other operations.
    pub data: Option<Segments>,
}
