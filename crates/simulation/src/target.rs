//! The whole target with a drive that its hosts manage, over the simulated disk; its hosts, the
//! simulation's own and the product's initiator, reach it over the in-memory transport and over
//! NVMe/TCP on simulated streams.

mod acts;
mod life;
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
        acts::story(&mut Random::of(seed, 1))
    }

    fn play(&self, seed: u64, acts: &[Act<What>]) -> Result<Report, Failure> {
        World::new(seed)?.play(acts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acts::SystemAct;
    use crate::disk::{DiskFault, FaultKind};

    /// A sanitize that failed had made a volume, which could not be removed at once; the next one
    /// made another volume under the same identifier, and hosts were led to the first one.
    #[test]
    fn a_namespace_is_there_after_a_sanitize_that_failed_at_first() {
        let io = |host, queue, slot, block, count, io| What::Io { host, queue, slot, block, count, io, times: 1 };
        let write = HostIo::Write { fua: false };
        let fault = DiskFault { after: 4, count: 3, kind: FaultKind::Write, done: false, percent: 100 };
        let acts = [
            (13_636_851_726_766_645_369, 37, What::Create { host: 0, format: 0 }),
            (13_620_863_395_609_118_960, 4, What::Create { host: 1, format: 3 }),
            (2_665_461_177_286_983_251, 58, io(2, 3, 1, 0, 2, write)),
            (17_363_845_396_516_117_682, 19, io(1, 2, 3, 1, 3, HostIo::Read)),
            (9_272_689_559_637_760_626, 14, io(2, 2, 1, 1, 1, write)),
            (5_352_004_723_708_858_334, 5, What::Sanitize { host: 2, overwrite: false }),
            (6_517_037_965_931_213_573, 5, What::System(SystemAct::Fail(fault))),
        ];
        let acts = acts.map(|(chances, steps, what)| Act { chances, steps, what });
        WholeTarget.play(154, &acts).unwrap();
    }

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
