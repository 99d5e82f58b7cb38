//! The ways between hosts and target: byte streams, an RDMA network, the host's end of one queue
//! over any of them, and how the product's initiator reaches whichever target is running.

pub mod fabric;
pub mod reach;
pub mod stream;
pub mod wire;
