//! Hosts, target, drive, medium and disk in one thread, from one seed, in virtual time, against a
//! model.
//!
//! Owns the seed, the order in which things happen, the disk, and what hosts may see. Decides
//! nothing that the product decides, and nothing of the product depends on it.
//! `cargo xtask simulate` runs it.
#![forbid(unsafe_code)]

pub mod acts;
pub mod administration;
pub mod disk;
mod drive;
pub mod fabric;
pub mod functions;
pub mod host;
pub mod image;
pub mod medium;
pub mod model;
pub mod random;
pub mod reach;
mod rig;
pub mod story;
pub mod stream;
mod target_life;
pub mod whole_target;
pub mod wire;
