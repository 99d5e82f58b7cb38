//! Extents of the medium: which are free, and which holds what part of a namespace.

pub mod allocator;
pub mod map;
