//! Which path a command takes. Pure: whoever sends describes the paths of each command's
//! namespace, and is told one.

use super::access::Rank;

/// How commands are divided between paths that are equally good for their namespace: optimized
/// ones, or where there is none, the others. The first three are those of Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathPolicy {
    /// The nearest one: at the network interface of the node whose processors run this thread, else
    /// the first.
    #[default]
    Numa,
    /// One after the other.
    RoundRobin,
    /// The one with the fewest outstanding commands, of all threads.
    QueueDepth,
    /// The one on which a command is expected to complete first. Another one has to be better by a
    /// fifth to be taken in its place.
    Latency,
}

impl PathPolicy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Numa, Self::RoundRobin, Self::QueueDepth, Self::Latency];

    /// Its name, as in Linux' `iopolicy`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Numa => "numa",
            Self::RoundRobin => "round-robin",
            Self::QueueDepth => "queue-depth",
            Self::Latency => "latency",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// A path, as it is for one command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Its place among the paths.
    pub(super) lane: usize,
    pub(super) rank: Rank,
    /// The user prefers it among its equals.
    pub(super) is_preferred: bool,
    /// It leaves from another node than that of this thread.
    pub(super) is_remote: bool,
    /// Outstanding commands of all threads.
    pub(super) in_flight: u32,
    /// Of this thread's commands that it completed, microseconds; 0: none yet.
    pub(super) latency_us: u32,
}

/// Every how many commands a path is tried that the latency speaks against: its latency may have
/// changed.
const TRIAL: u32 = 256;

/// What one thread has chosen so far.
#[derive(Debug, Default)]
pub(super) struct Chooser {
    last: usize,
    chosen: u32,
}

impl Chooser {
    /// The path for a command; `None` without candidates. Where commands are refused on all, it is
    /// one of those: its answer says what to do.
    pub(super) fn choose(&mut self, policy: PathPolicy, candidates: &[Candidate]) -> Option<usize> {
        let class = |candidate: &Candidate| (candidate.rank, !candidate.is_preferred);
        let best = candidates.iter().map(class).min()?;
        let mut equal = candidates.iter().filter(|candidate| class(candidate) == best);
        let chosen = match policy {
            PathPolicy::Numa => equal.min_by_key(|candidate| (candidate.is_remote, candidate.lane)),
            PathPolicy::RoundRobin => {
                let next = equal.clone().find(|candidate| candidate.lane > self.last);
                next.or_else(|| equal.next())
            }
            PathPolicy::QueueDepth => equal.min_by_key(|candidate| (candidate.in_flight, candidate.lane)),
            PathPolicy::Latency => self.by_latency(&equal),
        }?;
        self.last = chosen.lane;
        Some(chosen.lane)
    }

    fn by_latency<'c>(&mut self, equal: &(impl Iterator<Item = &'c Candidate> + Clone)) -> Option<&'c Candidate> {
        self.chosen = self.chosen.wrapping_add(1);
        if self.chosen.is_multiple_of(TRIAL) {
            let others = equal.clone().filter(|candidate| candidate.lane != self.last);
            return others.min_by_key(|candidate| candidate.in_flight).or_else(|| equal.clone().next());
        }
        let expected = |candidate: &Candidate| u64::from(candidate.latency_us) * (u64::from(candidate.in_flight) + 1);
        let best = equal.clone().min_by_key(|candidate| expected(candidate))?;
        let last = equal.clone().find(|candidate| candidate.lane == self.last);
        // One that was never tried is expected to take no time.
        let is_better = |last: &&Candidate| expected(best) * 5 < expected(last) * 4 || best.latency_us == 0;
        Some(match last {
            Some(last) if !is_better(&last) => last,
            _ => best,
        })
    }
}

/// The latency of a path after another command took `took_us` on it.
pub(super) fn smoothed_us(before_us: u32, took_us: u32) -> u32 {
    let took_us = took_us.max(1);
    if before_us == 0 {
        return took_us;
    }
    // An eighth of the difference: some ten commands are remembered.
    let smoothed = (u64::from(before_us) * 7 + u64::from(took_us)) / 8;
    u32::try_from(smoothed.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(lane: usize, rank: Rank) -> Candidate {
        Candidate { lane, rank, is_preferred: false, is_remote: false, in_flight: 0, latency_us: 100 }
    }

    fn chosen(policy: PathPolicy, candidates: &[Candidate], count: usize) -> Vec<usize> {
        let mut chooser = Chooser::default();
        (0..count).map(|_| chooser.choose(policy, candidates).unwrap()).collect()
    }

    #[test]
    fn names_are_those_of_linux() {
        for policy in PathPolicy::ALL {
            assert_eq!(PathPolicy::from_name(policy.name()), Some(policy));
        }
        assert_eq!(PathPolicy::from_name("service-time"), None);
    }

    // @test paths.policy
    #[test]
    fn the_access_decides_before_the_policy() {
        let candidates = [
            candidate(0, Rank::Refused),
            candidate(1, Rank::NonOptimized),
            candidate(2, Rank::Optimized),
            candidate(3, Rank::Lost),
        ];
        for policy in PathPolicy::ALL {
            assert_eq!(chosen(policy, &candidates, 3), [2, 2, 2], "{}", policy.name());
            assert_eq!(chosen(policy, &candidates[..2], 1), [1], "{}", policy.name());
            assert_eq!(chosen(policy, &[candidates[3], candidates[0]], 1), [0], "its answer says what to do");
            assert_eq!(Chooser::default().choose(policy, &[]), None);
        }
    }

    #[test]
    fn a_preferred_path_is_taken_among_its_equals_only() {
        let mut candidates = [0, 1, 2].map(|lane| candidate(lane, Rank::Optimized));
        candidates[1].is_preferred = true;
        for policy in PathPolicy::ALL {
            assert_eq!(chosen(policy, &candidates, 2), [1, 1], "{}", policy.name());
        }
        candidates[1].rank = Rank::NonOptimized;
        assert_eq!(chosen(PathPolicy::RoundRobin, &candidates, 4), [2, 0, 2, 0]);
    }

    #[test]
    fn each_policy_divides_as_its_name_says() {
        let mut candidates = [0, 1, 2].map(|lane| candidate(lane, Rank::Optimized));
        assert_eq!(chosen(PathPolicy::RoundRobin, &candidates, 4), [1, 2, 0, 1]);
        assert_eq!(chosen(PathPolicy::Numa, &candidates, 3), [0, 0, 0]);
        candidates[0].is_remote = true;
        assert_eq!(chosen(PathPolicy::Numa, &candidates, 2), [1, 1]);
        candidates[0].in_flight = 4;
        candidates[1].in_flight = 3;
        assert_eq!(chosen(PathPolicy::QueueDepth, &candidates, 2), [2, 2]);
    }

    #[test]
    fn latency_prefers_the_faster_with_hysteresis_and_tries_the_others_from_time_to_time() {
        let mut candidates = [0, 1].map(|lane| candidate(lane, Rank::Optimized));
        let mut chooser = Chooser::default();
        let mut choose = |candidates: &[Candidate]| chooser.choose(PathPolicy::Latency, candidates).unwrap();
        candidates[1].latency_us = 90;
        assert_eq!(choose(&candidates), 0, "a tenth is not worth a change");
        candidates[1].latency_us = 70;
        assert_eq!(choose(&candidates), 1);
        candidates[1].latency_us = 110;
        assert_eq!(choose(&candidates), 1);
        candidates[1].in_flight = 1;
        assert_eq!(choose(&candidates), 0);
        candidates[1].latency_us = 0;
        assert_eq!(choose(&candidates), 1, "it was never tried");
        candidates[1].latency_us = 10_000;
        let tried = (0..TRIAL * 4).filter(|_| choose(&candidates) == 1).count();
        assert_eq!(tried, 4);
    }

    #[test]
    fn latencies_are_smoothed() {
        assert_eq!((smoothed_us(0, 0), smoothed_us(0, 80), smoothed_us(80, 160)), (1, 80, 90));
        assert_eq!(smoothed_us(u32::MAX, u32::MAX), u32::MAX);
        assert!((0..100).fold(1000, |latency, _| smoothed_us(latency, 10)) < 20);
    }
}
