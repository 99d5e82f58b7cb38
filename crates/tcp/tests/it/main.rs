//! Both ends of the transport in memory, with the stream split at any byte.

mod conversation;
mod golden;
mod hostile;
mod model;
mod violations;
