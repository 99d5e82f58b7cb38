//! The buffer of one operation.

use std::sync::Arc;

use ebof_backend::{Buffer, Region};

/// A buffer of exactly the job's block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) buffer: Buffer,
    pub(crate) length: usize,
}

impl Block {
    pub(crate) fn new(length: usize) -> Self {
        Self { buffer: Buffer::zeroed(length), length }
    }

    /// `count` blocks in one region, which an RDMA adapter then knows by one registration.
    pub(crate) fn together(length: usize, count: usize) -> Vec<Self> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let buffers = Buffer::zeroed_together(length, count).into_iter();
        buffers.map(|buffer| Self { buffer, length }).collect()
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.as_slice()[..self.length]
    }
}

impl AsMut<[u8]> for Block {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.as_mut_slice()[..self.length]
    }
}

impl ebof_initiator::IoBuffer for Block {
    fn region(&self) -> Option<&Arc<Region>> {
        Some(self.buffer.region())
    }
}
