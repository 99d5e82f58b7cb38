//! What connections arrive at, and from where: listeners and the options of their sockets, ports
//! with what they offer, peers, and what connections over RDMA bring along.
//!
//! Accepts nobody: that is the control thread's matter, and admission's (`reactor/admission.rs`).

pub(crate) mod listener;
pub(crate) mod peer;
pub(crate) mod port;
pub(crate) mod rdma_connection;
pub(crate) mod shared_receives;
pub(crate) mod sockets;
