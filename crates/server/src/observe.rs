//! What threads note while they work: counters, slow commands, troubles, signs of life, and how
//! many lines of the log others can cause.
//!
//! Knows nothing of connections, commands or drives. What becomes of the figures is
//! [`crate::report`]'s matter.

pub(crate) mod heartbeat;
pub(crate) mod host_labels;
pub(crate) mod log_limit;
pub(crate) mod queues;
pub(crate) mod sampler;
pub(crate) mod sent;
pub(crate) mod slow;
pub(crate) mod stats;
pub(crate) mod troubles;
pub(crate) mod uptime;
