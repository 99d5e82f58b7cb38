//! Both ends of the transport as drivers see them: in memory, however the stream is cut.

mod conversation;
mod golden;
mod hostile;
mod model;
mod violations;
