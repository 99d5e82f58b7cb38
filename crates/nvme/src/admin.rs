//! Commands of the Admin Queue beside those that are tables of their own (Identify, features, log
//! pages): their dwords and data. What a controller makes of them is decided elsewhere.

pub mod firmware;
pub mod lba_status;
pub mod media;
pub mod namespace;
pub mod security;
pub mod virtualization;
