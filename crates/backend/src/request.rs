//! What a device is asked for, and how that ends. A request owns its memory, and gives it back with
//! its completion.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::{Action, Error, Segments};

/// What is to be done. Offsets and lengths are in bytes; a transfer always starts at the first byte
/// of its memory.
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
        /// Complete only when these bytes are on the medium.
        fua: bool,
    },
    /// Puts on the medium everything whose completion was seen before this was submitted.
    Flush,
    /// Makes the range read as zeros.
    WriteZeroes {
        /// Where to start on the device.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// The storage may be given back.
        deallocate: bool,
        /// Complete only when the zeros are on the medium.
        fua: bool,
    },
    /// Advice that the contents are no longer needed. What the medium cannot do is left undone,
    /// successfully.
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

    /// Takes the operation apart for its memory.
    #[must_use]
    pub fn into_data(self) -> Option<Segments> {
        match self {
            Operation::Read { data, .. } | Operation::Write { data, .. } => Some(data),
            Operation::Flush | Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => None,
        }
    }
}

/// What accompanies a request until it is over: a device that lies on another one attaches it on
/// the way down.
pub trait CompletionHook: Send + Sync + fmt::Debug {
    /// Looks at the completion before anybody else does, and may change it: verify what was read,
    /// count, note. Called once, by whoever completes the request, on that thread; a request that
    /// is dropped undone has no completion.
    fn finish(&self, completion: &mut Completion);
}

/// One operation and the number by which its completion is recognised.
#[derive(Debug)]
pub struct Request {
    /// Chosen by the caller and returned as it is. [`Io::cancel`](crate::Io::cancel) finds a
    /// request by it, so it should be unique among what is in flight on one [`Io`](crate::Io).
    pub tag: u64,
    /// What is to be done.
    pub operation: Operation,
    /// Held until the request is over: the medium is not touched on its behalf after this was
    /// dropped.
    pub hook: Option<Arc<dyn CompletionHook>>,
}

impl Request {
    /// A request that nothing accompanies.
    #[must_use]
    pub fn new(tag: u64, operation: Operation) -> Request {
        Request { tag, operation, hook: None }
    }

    /// The completion of this request, with its memory, seen by what accompanies it.
    pub fn complete(self, result: Result<(), Error>) -> Completion {
        let mut completion = Completion { tag: self.tag, result, data: self.operation.into_data() };
        if let Some(hook) = self.hook {
            hook.finish(&mut completion);
        }
        completion
    }
}

/// How a request ended. Every accepted request has exactly one.
#[derive(Debug)]
#[must_use = "the memory of the request is in here"]
pub struct Completion {
    /// The request's.
    pub tag: u64,
    /// Success means all of it was done. After an error a write may have been done in part, and a
    /// read's memory holds bytes of no meaning.
    pub result: Result<(), Error>,
    /// The memory of a read or write always comes back; `None` for the others.
    pub data: Option<Segments>,
}
