//! The lowest level: a drive's medium over the simulated disk, used as the target uses it, by
//! requests to namespaces and by work for the drive's thread. Nothing of NVMe is in it.

mod acts;
mod life;
mod world;

pub use acts::{Act, What};

use std::time::Duration;

use crate::random::Random;
use crate::story::{Failure, Level, Report};
use world::World;

/// Stories of a drive's medium.
#[derive(Clone, Copy, Debug, Default)]
pub struct Medium;

impl Level for Medium {
    type Act = Act;
    const NAME: &'static str = "medium";

    fn acts(&self, seed: u64) -> Vec<Act> {
        acts::story(&mut Random::of(seed, 1))
    }

    fn play(&self, seed: u64, acts: &[Act]) -> Result<Report, Failure> {
        let mut world = World::new(seed)?;
        for act in acts {
            world.play(act)?;
        }
        world.finish()?;
        Ok(world.report())
    }
}

/// Virtual time after which everything that was asked for has come to its end, if nothing fails.
const PATIENCE: Duration = Duration::from_secs(60);
