//! A target whose drive is administered up to its limits: namespaces, the hosts that they are
//! attached to, write protection, registrants and reservations. No blocks are read or written.
//!
//! One command is under way at a time, so the model knows exactly what the drive has to remember,
//! and what it may refuse.

mod acts;
mod model;
mod world;

pub use acts::{Ask, What};

use crate::random::Random;
use crate::rig::System as _;
use crate::rig::acts::Act;
use crate::story::{Failure, Level, Report};
use world::World;

/// Stories of a drive's administration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Administration;

impl Level for Administration {
    type Act = Act<What>;
    const NAME: &'static str = "administration";

    fn acts(&self, seed: u64) -> Vec<Act<What>> {
        acts::story(&mut Random::for_part(seed, 1))
    }

    fn play(&self, seed: u64, acts: &[Act<What>]) -> Result<Report, Failure> {
        World::new(seed)?.play(acts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_is_the_same_when_it_is_told_again() {
        let acts = Administration.acts(5);
        let report = Administration.play(5, &acts).unwrap();
        assert_eq!(Administration.play(5, &acts), Ok(report));
    }
}
