//! A story: what happens to a system, one act after the other, and how it is reported: played,
//! replayed, made shorter when it fails.
//!
//! An act is data that says all about itself, its chances too (each has a seed of its own): a story
//! from which acts were taken remains a story, in which the others happen as they did, as far as
//! they can.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Why a story failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub String);

impl Failure {
    /// Whether both are of the same kind: they read alike, numbers aside.
    fn is_like(&self, other: &Self) -> bool {
        let kind = |failure: &Self| -> String {
            failure.0.chars().filter(|letter| letter.is_alphabetic() || *letter == ' ').take(60).collect()
        };
        kind(self) == kind(other)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Fails with a text.
///
/// # Errors
/// Always.
pub fn fail<T>(what: impl Into<String>) -> Result<T, Failure> {
    Err(Failure(what.into()))
}

/// What a story has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How long it took in its own time.
    pub time: Duration,
    /// Things that were counted, by name.
    pub counts: Vec<(&'static str, u64)>,
    /// A number that two plays of the same story share.
    pub digest: u64,
}

impl Report {
    /// Adds what another one counted.
    pub fn add(&mut self, other: &Self) {
        self.time += other.time;
        for &(name, count) in &other.counts {
            match self.counts.iter_mut().find(|(own, _)| *own == name) {
                Some((_, sum)) => *sum += count,
                None => self.counts.push((name, count)),
            }
        }
        self.digest = crate::random::mix(self.digest ^ other.digest);
    }
}

/// A system that stories are about.
pub trait Level {
    /// Something that happens to it.
    type Act: Clone + fmt::Debug;

    /// For people.
    const NAME: &'static str;

    /// The acts that follow from a seed.
    fn acts(&self, seed: u64) -> Vec<Self::Act>;

    /// Plays them.
    ///
    /// # Errors
    /// What was not as the model has it.
    fn play(&self, seed: u64, acts: &[Self::Act]) -> Result<Report, Failure>;
}

/// A story that failed, as short as it could be made.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// Why the whole story failed.
    pub first: Failure,
    /// Why the short one does.
    pub failure: Failure,
    /// Acts of the whole story.
    pub whole: usize,
    /// What is left: the number in the whole story, and the act.
    pub acts: Vec<(usize, String)>,
    /// What happened in the short one, line by line; the end of it.
    pub trace: Vec<String>,
}

impl fmt::Display for Shrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.failure)?;
        if self.first != self.failure {
            writeln!(f, "(the whole story: {})", self.first)?;
        }
        writeln!(f, "{} of {} acts do it:", self.acts.len(), self.whole)?;
        for (number, act) in &self.acts {
            writeln!(f, "  {number:4} {act}")?;
        }
        writeln!(f, "what happened in the end:")?;
        self.trace.iter().try_for_each(|line| writeln!(f, "  | {line}"))
    }
}

/// Plays the story of `seed`; shortens it for at most `patience` where it fails.
///
/// # Errors
/// The story that fails.
pub fn tell<L: Level>(level: &L, seed: u64, patience: Duration) -> Result<Report, Box<Shrunk>> {
    let acts = level.acts(seed);
    let first = match play(level, seed, &acts) {
        Ok(report) => return Ok(report),
        Err(failure) => failure,
    };
    let end = Instant::now() + patience;
    let kept = shorten(acts.len(), end, |kept| {
        let some: Vec<L::Act> = kept.iter().map(|&at| acts[at].clone()).collect();
        play(level, seed, &some).is_err_and(|failure| failure.is_like(&first))
    });
    let some: Vec<L::Act> = kept.iter().map(|&at| acts[at].clone()).collect();
    trace_begin();
    // A story that fails by chance would be no story of this seed: then the whole one is what there
    // is.
    let failure = play(level, seed, &some).err().unwrap_or(Failure("not when it is played again".to_owned()));
    let trace = trace_end();
    let acts_left = kept.iter().map(|&at| (at, format!("{:?}", acts[at]))).collect();
    Err(Box::new(Shrunk { first, failure, whole: acts.len(), acts: acts_left, trace }))
}

/// Plays it; a panic is a failure.
fn play<L: Level>(level: &L, seed: u64, acts: &[L::Act]) -> Result<Report, Failure> {
    PANIC.with_borrow_mut(|panic| *panic = None);
    match catch_unwind(AssertUnwindSafe(|| level.play(seed, acts))) {
        Ok(result) => result,
        Err(_payload) => {
            let told = PANIC.with_borrow_mut(Option::take);
            Err(Failure(told.unwrap_or_else(|| "a panic that nothing is known about".to_owned())))
        }
    }
}

/// The indices that are left of `0..count` when everything is taken away without which `fails`
/// holds still: halves first, then smaller parts (Zeller and Hildebrandt, "Simplifying and
/// Isolating Failure-Inducing Input").
fn shorten(count: usize, end: Instant, mut fails: impl FnMut(&[usize]) -> bool) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..count).collect();
    // What comes last is rarely the reason: whoever fails in the middle has no use for the rest.
    let mut size = kept.len().div_ceil(2);
    while size > 0 {
        let mut at = kept.len();
        let mut any = false;
        while at > 0 {
            let from = at.saturating_sub(size);
            let without: Vec<usize> = [&kept[..from], &kept[at..]].concat();
            if Instant::now() >= end {
                return kept;
            }
            if fails(&without) {
                kept = without;
                any = true;
            }
            at = from;
        }
        size = match size {
            1 if any => 1,
            1 => 0,
            size => size.div_ceil(2),
        };
    }
    kept
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static TRACE: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Lines of a trace that are kept.
const TRACE_MAX: usize = 400;

/// From now on panics of this process are kept for the story that they end, in place of being
/// printed.
pub fn keep_panics() {
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        let location = info.location().map_or_else(String::new, |at| format!("{}:{}: ", at.file(), at.line()));
        PANIC.with_borrow_mut(|panic| *panic = Some(format!("panicked at {location}{text}")));
    }));
}

fn trace_begin() {
    TRACE.with_borrow_mut(|trace| *trace = Some(Vec::new()));
}

fn trace_end() -> Vec<String> {
    let lines = TRACE.with_borrow_mut(Option::take).unwrap_or_default();
    lines[lines.len().saturating_sub(TRACE_MAX)..].to_vec()
}

/// Whether lines are kept.
#[must_use]
pub fn is_traced() -> bool {
    TRACE.with_borrow(Option::is_some)
}

/// Keeps a line for the report of a failing story; `line` is called only then.
pub fn trace(line: impl FnOnce() -> String) {
    TRACE.with_borrow_mut(|trace| {
        if let Some(lines) = trace {
            lines.push(line());
            if lines.len() > 4 * TRACE_MAX {
                lines.drain(..2 * TRACE_MAX);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbers;

    impl Level for Numbers {
        type Act = u64;
        const NAME: &'static str = "numbers";

        fn acts(&self, seed: u64) -> Vec<u64> {
            (0..100).map(|number| number * seed).collect()
        }

        fn play(&self, _seed: u64, acts: &[u64]) -> Result<Report, Failure> {
            acts.iter().for_each(|act| trace(|| act.to_string()));
            match (acts.contains(&51), acts.iter().position(|&act| act == 9)) {
                (true, Some(_)) => fail("9 and 51"),
                _ => Ok(Report::default()),
            }
        }
    }

    #[test]
    fn a_story_that_fails_is_told_with_the_acts_that_matter_alone() {
        let shrunk = tell(&Numbers, 3, Duration::from_secs(60)).unwrap_err();
        assert_eq!(shrunk.acts, [(3, "9".to_owned()), (17, "51".to_owned())]);
        assert_eq!((shrunk.whole, shrunk.trace), (100, vec!["9".to_owned(), "51".to_owned()]));
        assert!(tell(&Numbers, 2, Duration::ZERO).is_ok());
    }
}
