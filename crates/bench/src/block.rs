//! The buffer of one operation.

use ebof_backend::Buffer;

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
