//! The whole target with a drive that its hosts manage, over the simulated disk; its hosts, the
//! simulation's own and the product's initiator, reach it over the in-memory transport and over
//! NVMe/TCP on simulated streams.

mod acts;
mod world;

pub use acts::{HostIo, Reserve, What};

use crate::acts::Act;
use crate::random::Random;
use crate::rig::System as _;
use crate::story::{Failure, Level, Report};
use world::World;

/// Stories of a target and its hosts.
#[derive(Clone, Copy, Debug, Default)]
pub struct WholeTarget;

impl Level for WholeTarget {
    type Act = Act<What>;
    const NAME: &'static str = "target";

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
        let mut reconnects = 0;
        for seed in [7, 9, 10, 11] {
            let acts = WholeTarget.acts(seed);
            let report = WholeTarget.play(seed, &acts).unwrap();
            reconnects += report.counts.iter().filter(|(what, _)| *what == "reconnects").count();
            assert_eq!(WholeTarget.play(seed, &acts), Ok(report));
        }
        assert!(reconnects > 0, "no initiator has come back in any of them");
    }
}
