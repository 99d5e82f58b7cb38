//! NVMe/RDMA without verbs, from outside.

mod conversation;
mod fairness;
mod golden;
mod hostile;
mod posting;
