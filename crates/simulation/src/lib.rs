//! Hosts, target, drive, medium and disk in one thread, from one seed, in virtual time, against a
//! model.
//!
//! Owns the seed, the order in which things happen, the disk, and what hosts may see. Decides
//! nothing that the product decides, and nothing of the product depends on it.
//! `cargo xtask simulate` runs it.
//!
//! # Modules
//!
//! A folder imports from those on lower layers only. `cargo xtask tidy` compares this table with
//! the code.
//!
//! | layer | folder | what is in it |
//! |---|---|---|
//! | 6 | `simulation/lib.rs` | what the crate offers |
//! | 5 | `administration` | a drive that is administered up to its limits; no blocks |
//! | 5 | `functions` | a drive whose functions come, go and move while hosts read and write |
//! | 5 | `whole_target` | the whole target, with hosts of both kinds, proofs and a liar |
//! | 4 | `medium` | the lowest level: a drive's medium over the disk, without NVMe |
//! | 4 | `paths` | hosts with several paths to one namespace, over two ports or two targets |
//! | 4 | `target_life` | a target from its start to when it is stopped, killed or cut off |
//! | 3 | `host` | hosts: the simulation's own, the product's, and a liar |
//! | 3 | `rig` | what all levels are built on: clock, chances, disk, turns; acts that they have in common |
//! | 2 | `disk` | a disk that forgets with the power what was not flushed, and its image |
//! | 2 | `story` | acts, one after the other: played, replayed, made shorter |
//! | 2 | `transport` | streams, an RDMA network, the host's end of a queue, and how the initiator reaches a target |
//! | 1 | `model` | what hosts may see |
//! | 1 | `random` | a repeatable source of numbers |
#![forbid(unsafe_code)]

pub mod administration;
pub mod disk;
pub mod functions;
pub mod host;
pub mod medium;
pub mod model;
pub mod paths;
pub mod random;
mod rig;
pub mod story;
mod target_life;
mod transport;
pub mod whole_target;

pub use disk::image;
pub use rig::acts;
pub use transport::{fabric, reach, stream, wire};
