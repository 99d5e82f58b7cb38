//! From a drive's specification to a device, or to a clear refusal.

use std::sync::Arc;

use crate::spec::Name;
use crate::{Device, Memory, Null, OpenError, Source, Spec};

/// Opens the drive, creating its file where the specification says so.
///
/// # Errors
/// Says what is wrong with the drive and what to do.
pub fn open(spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
    let block_bytes = spec.block_bytes.map_or(512, |block| block.bytes());
    match &spec.source {
        Source::Memory { size_bytes } => {
            check_blocks(Name::Memory, *size_bytes, block_bytes)?;
            Ok(Arc::new(Memory::new(*size_bytes, block_bytes, spec.read_only)))
        }
        Source::Null { size_bytes } => {
            check_blocks(Name::Null, *size_bytes, block_bytes)?;
            Ok(Arc::new(Null::new(*size_bytes, block_bytes, spec.read_only)))
        }
        Source::Path { path, .. } => Err(OpenError::Missing { path: path.clone() }),
    }
}

fn check_blocks(what: Name, size_bytes: u64, block_bytes: u32) -> Result<(), OpenError> {
    if size_bytes.is_multiple_of(u64::from(block_bytes)) {
        return Ok(());
    }
    Err(OpenError::NotWholeBlocks { what, size_bytes, block_bytes })
}
