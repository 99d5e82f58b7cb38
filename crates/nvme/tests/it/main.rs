//! Data structures against golden bytes, and decoders against any bytes of a peer.

mod drive_log;
mod feature_event;
mod identify;
mod log;
mod virtualization;
