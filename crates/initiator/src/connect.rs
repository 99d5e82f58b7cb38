//! From an address to a queue that takes commands: connecting queues and controllers, whether
//! there is somebody at all, and the discovery service, which says where to connect.
//!
//! What of that is a transport's is in its link. Reconnecting is the background thread's matter
//! ([`crate::admin`]), and so is everything on a controller that is connected.

pub(crate) mod authenticate;
pub(crate) mod discover;
pub(crate) mod establish;
pub(crate) mod reach;
pub(crate) mod steps;
