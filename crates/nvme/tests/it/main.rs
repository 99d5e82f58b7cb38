//! The words on the wire against golden bytes, and against whatever a peer may send.

mod drive_log;
mod feature_event;
mod identify;
mod log;
