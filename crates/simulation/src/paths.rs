//! Hosts that reach one namespace by several paths: two ports of one target, or two targets over
//! one disk.
//!
//! Connections break at any byte, or become silent in one direction or both; ports change their
//! states (ANA); targets are killed and come back; the disk takes long, so that writes are executed
//! after their path was given up. The hosts' paths are the product's, with their fences and
//! Cross-Controller Resets. Forbidden are an older write over a newer one that was acknowledged, a
//! write that is acknowledged and lost, reads of old data, and commands that do not end although a
//! path can be used.

mod acts;
mod target;
mod world;

pub use acts::What;

use crate::random::Random;
use crate::rig::System as _;
use crate::rig::acts::Act;
use crate::story::{Failure, Level, Report};
use world::World;

/// Stories of paths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paths;

impl Level for Paths {
    type Act = Act<What>;
    const NAME: &'static str = "paths";

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
        for seed in [1, 2, 3] {
            let acts = Paths.acts(seed);
            let report = Paths.play(seed, &acts).unwrap();
            assert_eq!(Paths.play(seed, &acts), Ok(report));
        }
    }
}
