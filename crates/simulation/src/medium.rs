//! The lowest level: a drive's medium over the simulated disk, used as the target uses it, by
//! requests to namespaces and by work for the drive's thread. Nothing of NVMe is in it.

mod acts;
mod life;
mod world;

pub use acts::What;

use crate::random::Random;
use crate::rig::System as _;
use crate::rig::acts::Act;
use crate::story::{Failure, Level, Report};
use world::World;

/// Stories of a drive's medium.
#[derive(Clone, Copy, Debug, Default)]
pub struct Medium;

impl Level for Medium {
    type Act = Act<What>;
    const NAME: &'static str = "medium";

    fn acts(&self, seed: u64) -> Vec<Act<What>> {
        acts::story(&mut Random::for_part(seed, 1))
    }

    fn play(&self, seed: u64, acts: &[Act<What>]) -> Result<Report, Failure> {
        World::new(seed)?.play(acts)
    }
}
