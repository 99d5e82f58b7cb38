//! A part of a buffer, so that a transfer is split without copying.

use std::sync::Arc;

use ebof_region::Region;

use crate::command::data::IoBuffer;

/// The data of one command.
#[derive(Debug)]
pub(super) enum Span<B> {
    /// A part of a caller's buffer.
    Part { buffer: B, start: usize, length: usize },
    /// Data made for the command.
    Scratch(Vec<u8>),
}

impl<B> Span<B> {
    pub(super) fn part(buffer: B, start: usize, length: usize) -> Self {
        Self::Part { buffer, start, length }
    }

    pub(super) fn from_buffer(buffer: B) -> Self
    where
        B: IoBuffer,
    {
        let length = buffer.as_ref().len();
        Self::Part { buffer, start: 0, length }
    }

    pub(super) fn scratch(data: Vec<u8>) -> Self {
        Self::Scratch(data)
    }

    /// The caller's whole buffer.
    pub(super) fn into_buffer(self) -> Option<B> {
        match self {
            Self::Part { buffer, .. } => Some(buffer),
            Self::Scratch(_) => None,
        }
    }
}

impl<B: IoBuffer> AsRef<[u8]> for Span<B> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Part { buffer, start, length } => &buffer.as_ref()[*start..][..*length],
            Self::Scratch(data) => data,
        }
    }
}

impl<B: IoBuffer> AsMut<[u8]> for Span<B> {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Part { buffer, start, length } => &mut buffer.as_mut()[*start..][..*length],
            Self::Scratch(data) => data,
        }
    }
}

impl<B: IoBuffer> IoBuffer for Span<B> {
    fn region(&self) -> Option<&Arc<Region>> {
        match self {
            Self::Part { buffer, .. } => buffer.region(),
            Self::Scratch(_) => None,
        }
    }
}
