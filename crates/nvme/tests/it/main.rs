//! Data structures against golden bytes, and decoders against any bytes of a peer.

mod cross_controller_reset;
mod drive_log;
mod feature_event;
mod identify;
mod log;
mod virtualization;
