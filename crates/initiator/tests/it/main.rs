//! The host against a scripted peer, which also misbehaves.

mod asynchronous;
mod connect;
mod identity;
mod io;
mod loss;
mod paths;
mod peer;
mod queues;
mod rdma;
mod rdma_peer;
mod stepped;
