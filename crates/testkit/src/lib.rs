//! Golden bytes, builders, model ends and fuzz entry points, for tests only.

pub mod fuzz;
pub mod hex;
pub mod random;
pub mod rdma;
pub mod tcp;
pub mod vfio;
