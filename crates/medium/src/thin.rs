//! A thin namespace as a block device: the quick way for what is allocated, the drive's thread for everything else.

use std::ops::Range;

use ebof_backend::{Device, Geometry, Io, Request, Submitted};

use crate::Instance;

/// A thin namespace.
#[derive(Debug)]
pub struct Thin {}

/// A part of a namespace of which all or nothing is allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where, in bytes.
    pub range: Range<u64>,
    /// Whether the medium holds something for it; otherwise it reads as zeros.
    pub allocated: bool,
}

impl Thin {
    /// Its name.
    #[must_use]
    pub fn instance(&self) -> Instance {
        todo!("follows")
    }

    /// What is allocated in a range of bytes, in order and without gaps; at most `runs_max` runs, from the beginning. What
    /// lies beyond the end is not in them.
    #[must_use]
    pub fn allocated(&self, range: Range<u64>, runs_max: usize) -> Vec<Run> {
        let _ = (range, runs_max);
        todo!("follows")
    }

    /// Bytes allocated (NUSE).
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        todo!("follows")
    }

    /// Whether any of the blocks is marked bad, see [`Store::mark_bad`](crate::Store::mark_bad).
    #[must_use]
    pub fn is_bad(&self, blocks: Range<u64>) -> bool {
        let _ = blocks;
        todo!("follows")
    }
}

impl Device for Thin {
    fn geometry(&self) -> Geometry {
        todo!("follows")
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        let _ = (io, request);
        todo!("follows")
    }

    fn describe(&self) -> String {
        todo!("follows")
    }
}
