//! Tests of the link under an engine, with a controller at the other end of a socket in the same
//! thread.

mod mixed;
mod unread;
