//! NVMe/RDMA without verbs, from outside.

mod conversation;
mod golden;
mod hostile;
