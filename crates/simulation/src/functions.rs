//! A target whose drive has functions: they come and go, move between ports, and namespaces move
//! between them, while hosts read and write.
//!
//! The box asks the drive for one thing at a time, so the model knows whose everything is. When it
//! is notified that something was taken from a host, no write of his is at the disk, nor comes
//! there; what was acknowledged is there for the next owner; reservations bind hosts wherever a
//! namespace goes; and nobody gets more resources than there are.

mod acts;
mod world;

pub use acts::What;

use crate::random::Random;
use crate::rig::System as _;
use crate::rig::acts::Act;
use crate::story::{Failure, Level, Report};
use world::World;

/// Stories of functions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Functions;

impl Level for Functions {
    type Act = Act<What>;
    const NAME: &'static str = "functions";

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
        let mut moved = 0;
        for seed in [3, 5, 8] {
            let acts = Functions.acts(seed);
            let report = Functions.play(seed, &acts).unwrap();
            moved += report.counts.iter().filter(|(what, _)| *what == "moved namespaces").count();
            assert_eq!(Functions.play(seed, &acts), Ok(report));
        }
        assert!(moved > 0, "no namespace has moved in any of them");
    }
}
