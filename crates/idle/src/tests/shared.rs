//! The policy on processors that other programs use, too, on a simulated machine.

use std::sync::LazyLock;
use std::time::Duration;

use super::super::{Idle, IdleStep};
use super::machine::{Machine, Waits};

/// Where the ends are and the programs that compute, and how the ends load the processors.
#[derive(Clone, Copy, Debug)]
struct Case {
    ends: [usize; 2],
    programs: &'static [usize],
    /// The programs have nice 19.
    nice: bool,
    /// Commands between the ends.
    depth: u64,
}

/// The processors of the ends and of the programs.
const PLACES: [([usize; 2], &[usize]); 7] = [
    ([0, 1], &[]),
    ([0, 1], &[0]),
    ([0, 1], &[0, 1]),
    ([0, 0], &[]),
    ([0, 0], &[0]),
    ([0, 0], &[0, 0]),
    ([0, 0], &[1]),
];

/// Nice values and depths.
const LOADS: [(bool, u64); 4] = [(false, 1), (true, 1), (false, 32), (true, 32)];

/// The right way has to be found within this time, milliseconds.
const FOUND_MS: u64 = 100;

/// The time of a measurement, milliseconds: trials are part of it.
const MEASURED_MS: u64 = 200;

/// What each way brings if both ends keep to it, commands per measurement, by load and place.
static WAYS: LazyLock<Vec<Vec<[u64; 3]>>> = LazyLock::new(|| {
    let ways = |load| (0..PLACES.len()).map(|place| Case::new(place, load).ways()).collect();
    LOADS.map(ways).into()
});

impl Case {
    fn new(place: usize, (nice, depth): (bool, u64)) -> Self {
        let (ends, programs) = PLACES[place];
        Self { ends, programs, nice, depth }
    }

    fn machine(self, waits: &Waits) -> Machine {
        let mut machine = Machine::new(self.ends, self.depth, [waits.clone(), waits.clone()]);
        machine.arrange(self.ends, self.programs, self.nice);
        machine
    }

    fn ways(self) -> [u64; 3] {
        [Waits::Yielding, Waits::Spinning, Waits::Sleeping].map(|waits| self.machine(&waits).run(MEASURED_MS))
    }

    fn check(self, found: u64, ways: [u64; 3]) {
        let best = ways.into_iter().max().unwrap();
        assert!(2 * found >= best, "{found} commands; if both yield, spin, sleep: {ways:?}: {self:?}");
    }
}

fn policy() -> Waits {
    Waits::Policy(Box::new(Idle::new(50)))
}

/// None of the three ways is right everywhere: each is far behind another one somewhere.
#[test]
fn no_way_is_right_everywhere() {
    let lags = |way: usize| WAYS[0].iter().any(|ways| ways.iter().max().unwrap() > &(3 * ways[way]));
    assert!((0..3).all(lags));
}

// @test speed.shared-processors
#[test]
fn the_best_way_is_found_wherever_ends_and_programs_are() {
    for (load, ways) in LOADS.into_iter().zip(&*WAYS) {
        for (place, &ways) in ways.iter().enumerate() {
            let case = Case::new(place, load);
            let mut machine = case.machine(&policy());
            machine.run(FOUND_MS);
            case.check(machine.run(MEASURED_MS), ways);
        }
    }
}

/// Programs start and end, and an end moves to the other processor.
// @test speed.shared-processors
#[test]
fn a_change_is_noticed_within_100_ms() {
    for (load, ways) in LOADS.into_iter().zip(&*WAYS) {
        let mut machine = Case::new(0, load).machine(&policy());
        for place in [2, 4, 0, 5, 1, 3, 2, 6, 1, 4, 2, 0, 4, 6, 0] {
            let case = Case::new(place, load);
            machine.arrange(case.ends, case.programs, case.nice);
            machine.run(FOUND_MS);
            case.check(machine.run(MEASURED_MS), ways[place]);
        }
    }
}

/// A thread that nobody disturbs never tries anything.
#[test]
fn on_a_quiet_machine_nothing_is_tried() {
    let case = Case::new(0, LOADS[0]);
    let mut machine = case.machine(&policy());
    assert_eq!(machine.run(1000), case.machine(&Waits::Yielding).run(1000));
}

/// A hypervisor that takes the processor makes yields slow, too.
#[test]
fn only_yields_to_other_threads_tell_that_the_processor_is_shared() {
    let mut stolen = Idle::new(50);
    let mut shared = Idle::new(50);
    for at in 0..10 {
        let now_us = at * 10_000;
        for (idle, switches) in [(&mut stolen, 7), (&mut shared, 7 + at)] {
            let _ = idle.step(now_us);
            idle.gave_way(now_us, Duration::from_millis(3), || switches);
            idle.found(now_us + 3_000);
        }
        assert_eq!((stolen.is_shared(), shared.is_shared()), (false, at > 0), "{at}");
    }
    let mut seldom = Idle::new(50);
    (1..10).for_each(|at| seldom.gave_way(at * 100_000, Duration::from_millis(3), || at));
    assert!(!seldom.is_shared());
}

/// Keep Alives: whatever the processor is used for besides, the thread is awake for them only.
#[test]
fn rare_work_costs_nothing_on_a_shared_processor() {
    let mut idle = Idle::new(50);
    (1..3).for_each(|at| idle.gave_way(at * 10_000, Duration::from_millis(3), || at));
    assert!(idle.is_shared());
    let (mut now_us, mut awake_us) = (30_000, 0);
    for _ in 0..100 {
        let arrives_us = now_us + 40_000;
        while now_us < arrives_us {
            match idle.step(now_us) {
                IdleStep::GiveWay => (now_us, awake_us) = (now_us + 1, awake_us + 1),
                IdleStep::Sleep(_) => {
                    now_us = arrives_us + 10;
                    idle.woke(now_us, true);
                }
            }
        }
    }
    assert!(awake_us <= 3 * 200, "{awake_us} µs in 100 waits");
}
