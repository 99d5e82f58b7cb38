//! How the receiving direction ended, and whether the caller knows.

use std::io;

use super::error::RecordError;

/// How the stream ended: as the peer wished, or with an error.
#[derive(Clone, Copy, Default)]
pub(super) struct ReceiveEnd {
    fault: Option<RecordError>,
    /// The caller knows.
    is_told: bool,
}

impl ReceiveEnd {
    pub(super) fn with(fault: RecordError) -> Self {
        Self { fault: Some(fault), is_told: false }
    }

    /// Whether the caller does not know yet.
    pub(super) fn is_news(self) -> bool {
        !self.is_told
    }

    /// What the caller is given, now and from now on.
    pub(super) fn tell(&mut self) -> io::Result<usize> {
        self.is_told = true;
        self.fault.map_or(Ok(0), |fault| Err(fault.into()))
    }
}
