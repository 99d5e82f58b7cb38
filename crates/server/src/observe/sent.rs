//! What is counted of payloads that are sent without a copy, over all connections.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counted since this was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fresh {
    /// Sends without a copy.
    pub(crate) sends: u64,
    /// Sends for which the kernel had no room to remember pinned pages: made with a copy.
    pub(crate) refused: u64,
}

/// Figures of a target, over all connections.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    sends: AtomicU64,
    copied: AtomicU64,
    refused: AtomicU64,
    fallbacks: AtomicU64,
}

/// What [`Counts`] say at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Sends without a copy.
    pub(crate) sends: u64,
    /// Those of them that the kernel made with a copy all the same.
    pub(crate) copied: u64,
    /// Sends that were to be without a copy, and for which the kernel had no room.
    pub(crate) refused: u64,
    /// Connections that went back to copying.
    pub(crate) fallbacks: u64,
}

impl Counts {
    /// What a connection did.
    pub(crate) fn add(&self, fresh: Fresh) {
        self.sends.fetch_add(fresh.sends, Relaxed);
        self.refused.fetch_add(fresh.refused, Relaxed);
    }

    /// Counts what the kernel reported about a connection's sends.
    pub(crate) fn count(&self, copied: u32, fell_back: bool) {
        self.copied.fetch_add(copied.into(), Relaxed);
        self.fallbacks.fetch_add(fell_back.into(), Relaxed);
    }

    pub(crate) fn figures(&self) -> Figures {
        Figures {
            sends: self.sends.load(Relaxed),
            copied: self.copied.load(Relaxed),
            refused: self.refused.load(Relaxed),
            fallbacks: self.fallbacks.load(Relaxed),
        }
    }
}
