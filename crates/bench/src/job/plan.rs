//! The sequence of a thread's operations and their offsets. Knows no clock and no device.

use crate::job::Job;
use crate::pattern::mix;

/// An operation to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) write: bool,
    pub(crate) offset: u64,
}

/// The operations of one thread.
#[derive(Debug)]
pub(crate) struct ThreadPlan {
    random: u64,
    state: u64,
    is_random: bool,
    read_percent: u64,
    block: u64,
    /// The thread's part: random jobs share the whole, sequential ones divide it.
    start: u64,
    blocks: u64,
    at: u64,
    /// Operations that are left; `None` if the job is limited by time.
    left: Option<u64>,
}

impl ThreadPlan {
    /// For thread `thread` of `job` on the `size` bytes from `start` on.
    pub(crate) fn new(job: &Job, thread: u16, start: u64, size: u64) -> Self {
        let block = u64::from(job.block_bytes);
        let threads = u64::from(job.threads);
        let share = size / block / threads;
        let (start, blocks) =
            if job.rw.is_random() { (start, size / block) } else { (start + u64::from(thread) * share * block, share) };
        let read_percent = match (job.rw.reads(), job.rw.writes()) {
            (true, false) => 100,
            (false, _) => 0,
            _ => u64::from(job.read_percent),
        };
        Self {
            random: mix(job.seed ^ mix(u64::from(thread))),
            state: 0,
            is_random: job.rw.is_random(),
            read_percent,
            block,
            start,
            blocks,
            at: 0,
            left: job.runtime.is_none().then_some(share),
        }
    }

    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(1);
        mix(self.random ^ self.state)
    }

    /// A number below `bound`: the high half of a product, which spreads evenly and costs no
    /// division.
    fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.random()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }
}

impl Iterator for ThreadPlan {
    type Item = Next;

    fn next(&mut self) -> Option<Next> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        let write = match self.read_percent {
            100 => false,
            0 => true,
            percent => self.below(100) >= percent,
        };
        let block = if self.is_random {
            self.below(self.blocks)
        } else {
            let at = self.at;
            self.at = if at + 1 == self.blocks { 0 } else { at + 1 };
            at
        };
        Some(Next { write, offset: self.start + block * self.block })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Mix;

    fn job(rw: Mix) -> Job {
        Job { threads: 2, runtime: None, ..Job::new(rw) }
    }

    #[test]
    fn sequential_threads_divide_the_range_and_cover_it_once() {
        let mut offsets: Vec<u64> = (0..2)
            .flat_map(|thread| ThreadPlan::new(&job(Mix::Write), thread, 8192, 40 * 4096))
            .map(|n| n.offset)
            .collect();
        assert_eq!(offsets[..3], [8192, 12288, 16384]);
        offsets.sort_unstable();
        let all: Vec<u64> = (0..40).map(|block| 8192 + block * 4096).collect();
        assert_eq!(offsets, all);
    }

    #[test]
    fn random_addresses_cover_the_range_and_are_reproducible() {
        let job = Job { runtime: Some(std::time::Duration::from_secs(1)), ..job(Mix::RandRw) };
        let some = |job: &Job| ThreadPlan::new(job, 1, 4096, 1000 * 4096).take(20_000).collect::<Vec<_>>();
        let operations = some(&job);
        assert_eq!(operations, some(&job));
        assert_ne!(operations, some(&Job { seed: 1, ..job }));
        let mut hits = vec![0; 1001];
        for next in &operations {
            hits[usize::try_from(next.offset / 4096).unwrap()] += 1;
        }
        assert_eq!(hits[0], 0, "before the part");
        assert!(hits[1..].iter().all(|&hits| (2..60).contains(&hits)));
        let writes = operations.iter().filter(|next| next.write).count();
        assert!((9_000..11_000).contains(&writes), "{writes} of 20000");
    }
}
