//! The whole target with a drive that its hosts manage, over the simulated disk; its hosts, the
//! simulation's own and the product's initiator, reach it over the in-memory transport and over
//! NVMe/TCP on simulated streams. In some stories they prove who they are, and somebody lies.

mod acts;
mod world;

pub use acts::{HostIo, Lie, Reserve, What};

use crate::random::Random;
use crate::rig::System as _;
use crate::rig::acts::Act;
use crate::story::{Failure, Level, Report};
use world::World;

/// Stories of a target and its hosts.
#[derive(Clone, Copy, Debug, Default)]
pub struct WholeTarget;

impl Level for WholeTarget {
    type Act = Act<What>;
    const NAME: &'static str = "target";

    fn acts(&self, seed: u64) -> Vec<Act<What>> {
        let acts = acts::story(&mut Random::for_part(seed, 1));
        if is_proven(seed) { acts::add_lies(acts, &mut Random::for_part(seed, 5)) } else { acts }
    }

    fn play(&self, seed: u64, acts: &[Act<What>]) -> Result<Report, Failure> {
        World::new(seed)?.play(acts)
    }
}

/// Whether hosts prove in this story who they are.
fn is_proven(seed: u64) -> bool {
    Random::for_part(seed, 4).percent(40)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_story_is_the_same_when_it_is_told_again() {
        let mut reconnects = 0;
        for seed in [8, 10, 12, 13] {
            let acts = WholeTarget.acts(seed);
            let report = WholeTarget.play(seed, &acts).unwrap();
            reconnects += report.counts.iter().filter(|(what, _)| *what == "reconnects").count();
            assert_eq!(WholeTarget.play(seed, &acts), Ok(report));
        }
        assert!(reconnects > 0, "no initiator has come back in any of them");
    }

    #[test]
    fn a_host_whose_queues_are_refused_comes_to_rest_when_it_has_its_new_secret() {
        let pause = Duration::from_secs(4);
        let mut denied = 0;
        for steps in (300..=900).step_by(200) {
            let vanish = What::Vanish { host: 2, pause: Duration::from_millis(1) };
            let rekey = What::Rekey { host: 2, is_mistake: true, pause };
            let acts = [Act { chances: 5, steps, what: vanish }, Act { chances: 7, steps: 1, what: rekey }];
            let report = WholeTarget.play(1203, &acts).unwrap();
            denied += report.counts.iter().filter(|(what, _)| *what == "proofs denied").count();
        }
        assert!(denied > 0, "it was always believed");
    }

    #[test]
    fn in_some_stories_hosts_prove_who_they_are_and_somebody_lies() {
        let seed = (1..).find(|&seed| is_proven(seed)).unwrap();
        let acts = WholeTarget.acts(seed);
        let report = WholeTarget.play(seed, &acts).unwrap();
        for what in ["proofs", "lies refused", "lies answered"] {
            assert!(report.counts.iter().any(|(name, _)| *name == what), "there are no {what}: {report:?}");
        }
        assert_eq!(WholeTarget.play(seed, &acts), Ok(report));
    }
}
