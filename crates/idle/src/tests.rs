//! The policy on simulated machines: virtual time, and wake-ups with a given cost.

use super::*;

mod machine;
mod shared;

/// Waits from `now_us` for work that arrives at `arrival_us`, on a machine on which every wake-up
/// takes `cost_us`; returns when the work was found, and how long the thread was awake without
/// work.
fn wait(idle: &mut Idle, now_us: u64, arrival_us: u64, cost_us: u64) -> (u64, u64) {
    let (mut now_us, mut awake_us) = (now_us, 0);
    loop {
        if arrival_us <= now_us {
            idle.found(now_us);
            return (now_us, awake_us);
        }
        match idle.step(now_us) {
            IdleStep::GiveWay => {
                now_us += 1;
                awake_us += 1;
            }
            IdleStep::Sleep(bound_us) => {
                let due_us = bound_us.map_or(arrival_us, |bound_us| arrival_us.min(now_us + bound_us));
                now_us = due_us + cost_us;
                idle.woke(now_us, arrival_us <= due_us);
            }
        }
    }
}

/// Two ends that respond after 5 µs: the number of messages in the first second.
fn pair(first: &mut Idle, second: &mut Idle, cost_us: u64) -> u64 {
    let (mut messages, mut sent_us) = (0, 0);
    // Since when each end waits.
    let mut waits_us = [0, 0];
    while sent_us < 1_000_000 {
        for (end, idle) in [&mut *first, &mut *second].into_iter().enumerate() {
            let (found_us, _) = wait(idle, waits_us[end], sent_us + 1, cost_us);
            sent_us = found_us + 5;
            waits_us[end] = sent_us;
            messages += 1;
        }
    }
    messages
}

// @test speed.late-wake-ups
#[test]
fn late_wake_ups_cost_a_busy_pair_little() {
    let quiet = pair(&mut Idle::new(50), &mut Idle::new(50), 10);
    for cost_us in [50, 100, 200, 500, 1000] {
        let late = pair(&mut Idle::new(50), &mut Idle::new(50), cost_us);
        assert!(late * 10 > quiet * 9, "{cost_us} µs: {late} messages of {quiet}");
    }
}

#[test]
fn an_end_that_sleeps_immediately_does_not_make_the_other_sleep() {
    let alone = pair(&mut Idle::new(50), &mut Idle::new(0), 200);
    // Each round trip has one wake-up, not two.
    assert!(alone > 2 * 1_000_000 / 250, "{alone} messages");
}

#[test]
fn with_fast_wake_ups_a_thread_sleeps_while_it_waits_for_slow_work() {
    let mut idle = Idle::new(50);
    let (mut now_us, mut awake_us) = (0, 0);
    for _ in 0..1000 {
        let (found_us, awake) = wait(&mut idle, now_us, now_us + 300, 10);
        (now_us, awake_us) = (found_us, awake_us + awake);
    }
    assert_eq!(awake_us / 1000, 50, "as configured");
}

#[test]
fn with_late_wake_ups_a_thread_spins_for_the_same_work() {
    let mut idle = Idle::new(50);
    let mut now_us = 0;
    for _ in 0..1000 {
        (now_us, _) = wait(&mut idle, now_us, now_us + 300, 200);
    }
    assert!(now_us < 1000 * 320, "{now_us} µs for 1000 waits of 300 µs");
}

#[test]
fn a_machine_that_became_fast_again_is_noticed() {
    let mut idle = Idle::new(50);
    let mut now_us = 0;
    for _ in 0..200 {
        (now_us, _) = wait(&mut idle, now_us, now_us + 300, 200);
    }
    assert!(idle.spin_us() > 300);
    for _ in 0..4000 {
        (now_us, _) = wait(&mut idle, now_us, now_us + 300, 10);
    }
    let mut awake_us = 0;
    for _ in 0..100 {
        let (found_us, awake) = wait(&mut idle, now_us, now_us + 300, 10);
        (now_us, awake_us) = (found_us, awake_us + awake);
    }
    assert_eq!(awake_us / 100, 50);
}

#[test]
fn without_traffic_the_learned_time_is_reset() {
    let mut idle = Idle::new(50);
    let mut now_us = 0;
    for _ in 0..200 {
        (now_us, _) = wait(&mut idle, now_us, now_us + 900, 1000);
    }
    assert!(idle.spin_us() > 900, "{}", idle.spin_us());
    // After the last traffic the thread spins once, and a second later the configured time applies.
    let (found_us, awake_us) = wait(&mut idle, now_us, now_us + 1_100_000, 1000);
    assert!(awake_us <= SPIN_MAX_US);
    assert_eq!(idle.spin_us(), 50);
    let (found_us, awake_us) = wait(&mut idle, found_us, found_us + 1_000_000, 1000);
    assert_eq!(awake_us, 50);
    let (_, awake_us) = wait(&mut idle, found_us, found_us + 1_000_000, 1000);
    assert_eq!(awake_us, 0, "work has become rare");
}

/// A command whose data arrive in a second message, every 20 ms: the thread spins for the data.
#[test]
fn bursts_do_not_count_as_rare_work() {
    let mut idle = Idle::new(50);
    let mut now_us = 0;
    for _ in 0..100 {
        (now_us, _) = wait(&mut idle, now_us, now_us + 20_000, 10);
        let sent_us = now_us;
        let (found_us, awake_us) = wait(&mut idle, now_us, now_us + 40, 10);
        assert_eq!((found_us - sent_us, awake_us), (40, 40), "without a sleep");
        now_us = found_us;
    }
}

/// A long configured time is used while work arrives within it.
#[test]
fn a_long_configured_time_is_respected() {
    let mut idle = Idle::new(20_000);
    let mut now_us = 0;
    for _ in 0..10 {
        (now_us, _) = wait(&mut idle, now_us, now_us + 30_000, 10);
    }
    assert_eq!(idle.spin_us(), 20_000);
}

/// Keep Alives of many connections: nothing is learned from them, and each costs one wake-up.
#[test]
fn rare_work_wakes_a_thread_once() {
    let mut idle = Idle::new(50);
    let mut now_us = 0;
    let mut sleeps = |idle: &mut Idle, after_us: u64| {
        let (mut sleeps, arrival_us) = (0, now_us + after_us);
        while now_us < arrival_us {
            match idle.step(now_us) {
                IdleStep::GiveWay => now_us += 1,
                IdleStep::Sleep(bound_us) => {
                    now_us = bound_us.map_or(arrival_us, |bound_us| arrival_us.min(now_us + bound_us)) + 20;
                    idle.woke(now_us, now_us >= arrival_us);
                    sleeps += 1;
                }
            }
        }
        sleeps
    };
    assert_eq!(sleeps(&mut idle, 40_000), 2, "the first one measures");
    let often = (0..1000).map(|_| sleeps(&mut idle, 40_000)).sum::<u32>();
    assert!((1010..1020).contains(&often), "{often} sleeps in 1000 waits; few of them measure");
    assert_eq!((idle.spin_us(), idle.polls_per_step()), (0, 1), "and no look");
    // If work arrives sooner, the thread spins again.
    assert_eq!((sleeps(&mut idle, 500), sleeps(&mut idle, 500)), (1, 2));
}

/// Bursts of Keep Alives, because the hosts connected together.
#[test]
fn keep_alives_in_bursts_do_not_count_as_traffic() {
    let mut idle = Idle::new(50);
    let (mut now_us, mut awake_us) = (0, 0);
    for _ in 0..20 {
        now_us += 2_500_000;
        for gap_us in [40, 150, 300, 450].repeat(16) {
            let (found_us, awake) = wait(&mut idle, now_us, now_us + gap_us, 60);
            (now_us, awake_us) = (found_us, awake_us + awake);
        }
    }
    assert!(awake_us <= 20 * 64 * 50, "{awake_us} µs awake");
}

/// A fast pair, both ends of which sleep immediately, when wake-ups become late.
#[test]
fn a_machine_that_became_slow_is_noticed() {
    let ends = &mut (Idle::new(50), Idle::new(50));
    let mut now_us = 0;
    for _ in 0..100 {
        (now_us, _) = wait(&mut ends.0, now_us, now_us + 3_000, 10);
    }
    assert_eq!(ends.0.spin_us(), 0);
    ends.1 = ends.0.clone();
    let late = pair(&mut ends.0, &mut ends.1, 1_000);
    let quick = pair(&mut Idle::new(50), &mut Idle::new(50), 10);
    assert!(late * 10 > quick * 8, "{late} messages of {quick}");
}

#[test]
fn late_work_reduces_the_spin_time() {
    let mut idle = Idle::new(50);
    let mut now_us = 0;
    for _ in 0..200 {
        (now_us, _) = wait(&mut idle, now_us, now_us + 900, 1000);
    }
    let mut awake_us = 0;
    for _ in 0..1000 {
        let (found_us, awake) = wait(&mut idle, now_us, now_us + 20_000, 1000);
        (now_us, awake_us) = (found_us, awake_us + awake);
    }
    assert!(awake_us < 1000 * 50 + 4 * SPIN_MAX_US, "{awake_us} µs awake in 1000 waits");
}

#[test]
fn a_pause_of_a_second_is_not_a_wake_up_cost() {
    let mut idle = Idle::new(50);
    assert_eq!(idle.step(0), IdleStep::GiveWay);
    assert_eq!(idle.step(50), IdleStep::Sleep(Some(PROBE_US)));
    idle.woke(1_000_000, true);
    assert!(idle.wake_cost_us <= SAMPLE_MAX_US);
}

#[test]
fn zero_never_spins_and_the_maximum_never_sleeps() {
    let mut idle = Idle::new(0);
    assert_eq!(idle.step(7), IdleStep::Sleep(None));
    idle.woke(1000, true);
    idle.found(1000);
    assert_eq!(idle.step(1001), IdleStep::Sleep(None));
    let mut idle = Idle::new(u64::MAX);
    assert_eq!(idle.step(0), IdleStep::GiveWay);
    assert_eq!(idle.step(3_600_000_000), IdleStep::GiveWay);
}

#[test]
fn time_of_other_threads_does_not_count_as_spinning() {
    let mut idle = Idle::new(50);
    assert_eq!(idle.step(0), IdleStep::GiveWay);
    idle.gave_way(0, Duration::from_micros(45), || 1);
    assert_eq!(idle.polls_per_step(), 1);
    assert_eq!(idle.step(90), IdleStep::GiveWay);
    idle.gave_way(90, Duration::from_nanos(300), || 1);
    assert_eq!(idle.polls_per_step(), POLLS_PER_STEP);
    assert_eq!(idle.step(95), IdleStep::Sleep(Some(PROBE_US)));
    idle.woke(150, false);
    assert_eq!(idle.step(151), IdleStep::Sleep(None), "once a wait sleeps it does not look again");
}

/// Any clock and any work: nothing overflows, and the limits hold.
#[test]
fn any_times_are_accepted() {
    use proptest::prelude::*;
    proptest!(|(base in prop_oneof![0..10_000u64, any::<u64>()], times in proptest::collection::vec((0..5u8, any::<u64>()), 0..200))| {
        let mut idle = Idle::new(base);
        for (what, time) in times {
            match what {
                0 => _ = idle.step(time),
                1 => idle.woke(time, time % 2 == 0),
                2 => idle.found(time),
                3 => idle.gave_way(time, Duration::from_micros(time), || time),
                _ => _ = idle.polls_per_step(),
            }
            let spin_us = idle.spin_us();
            prop_assert!(spin_us == 0 || (base..=base.max(SPIN_MAX_US)).contains(&spin_us));
        }
    });
}
