//! What each step makes of what was measured.

use alloc::vec::Vec;

use super::*;

/// A depth that is as large as another one was, with a device that does this much.
fn with(requests: u32, throughput: u64, stage: Stage) -> Depth {
    Depth { requests, throughput, stage, until_look: 7, ..Depth::adaptive() }
}

/// Ends a window of 100 ms with this throughput.
fn window(depth: &mut Depth, throughput: u64) {
    depth.done = throughput * 100;
    depth.end_window(&mut Costs::new(), 100_000);
}

/// Requests of one class that take so many times what they take alone.
fn stretched(depth: &mut Depth, times: u64) {
    depth.looks[0][0][0] = Some(100 * RATIO);
    depth.samples[0][0] = Samples { count: 100, sum_us: 100 * 100 * times };
}

#[test]
fn a_depth_that_was_tried_is_kept_where_the_device_does_enough() {
    for (from, to, throughput, is_kept) in
        [(64, 48, 9_800, true), (64, 48, 9_799, false), (64, 80, 10_300, true), (64, 80, 10_299, false)]
    {
        let mut depth = with(to, 10_000, Stage::Trying { depth: from, windows: 0, sum: 0 });
        // The first window has what was there before.
        for (number, of_window) in [1, throughput, throughput - 9, throughput + 9, throughput].into_iter().enumerate() {
            assert!(matches!(depth.stage, Stage::Trying { windows, .. } if windows as usize == number));
            window(&mut depth, of_window);
        }
        assert_eq!(depth.stage, Stage::Steady(7));
        let expected = if is_kept { (to, throughput, 0, PAUSE) } else { (from, 10_000, PAUSE, 2 * PAUSE) };
        assert_eq!((depth.requests, depth.throughput, depth.pause, depth.next_pause), expected, "{throughput}");
        assert_eq!(depth.tries_more, !is_kept && to < from);
        let needed = if to < from { if is_kept { to } else { from } } else { MAX };
        assert_eq!(depth.needed, needed);
    }
}

/// A pause after trials of no use doubles, up to a bound.
#[test]
fn trials_of_no_use_become_rare() {
    let mut depth = with(64, 10_000, Stage::Steady(1));
    let mut pauses = Vec::new();
    for _ in 0..6 {
        depth.requests = 80;
        depth.end_trial(64, 1);
        pauses.push(depth.pause);
    }
    assert_eq!(pauses, [20, 40, 80, 160, 160, 160]);
}

#[test]
fn requests_that_are_new_are_looked_at_sooner() {
    for (left, is_new, looks) in [
        (10, true, true),
        (LOOK_EVERY - LOOK_AGAIN - 1, true, true),
        (LOOK_EVERY - LOOK_AGAIN, true, false),
        (10, false, false),
        (0, false, true),
    ] {
        let mut depth = with(64, 10_000, Stage::Steady(left));
        depth.peak = u64::from(64 * COST_MIN);
        depth.samples[0][0] = Samples { count: SAMPLES_MIN, sum_us: 400 };
        depth.was_seen[0][0] = !is_new;
        window(&mut depth, 10_000);
        assert_eq!(depth.stage == Stage::Draining(64), looks, "{left}");
        assert_eq!(depth.requests, if looks { 64 / LOOK_DIVISOR } else { 64 }, "{left}");
    }
}

#[test]
fn after_a_break_it_begins_again_unless_it_is_fixed() {
    let read = Request { kind: crate::Kind::Read, bytes: 4096 };
    for (mut depth, expected) in
        [(with(200, 10_000, Stage::Steady(50)), (START, 0)), (Depth { requests: 200, ..Depth::fixed(200) }, (200, 0))]
    {
        for _ in 0..WINDOW_REQUESTS {
            depth.note(read, COST_MIN, 100, &mut Costs::new(), BREAK_US + WINDOW_US);
        }
        assert_eq!((depth.requests, depth.throughput), expected);
    }
}

/// A probe goes on while it finds more.
#[test]
fn a_probe_that_finds_nothing_ends() {
    for (times, requests) in [(0, 64), (100, 512)] {
        let mut depth = with(256, 10_000, Stage::Probing { depth: 64, left: 1 });
        depth.parallel.known = 8 * RATIO;
        if times > 0 {
            stretched(&mut depth, times);
            depth.samples[0][0].count = 10_000;
            depth.samples[0][0].sum_us = 10_000 * 100 * times;
        }
        window(&mut depth, 10_000);
        assert_eq!(depth.requests, requests);
        assert_eq!(depth.stage == Stage::Steady(7), requests == 64, "{:?}", depth.stage);
    }
}

#[test]
fn a_lower_or_a_larger_depth_is_tried_by_what_was_tried_last() {
    let adapted = |times: u64, is_short: bool, tries_more: bool| {
        let mut depth = with(64, 10_000, Stage::Steady(5));
        (depth.is_short, depth.tries_more) = (is_short, tries_more);
        depth.peak = u64::from(64 * COST_MIN);
        stretched(&mut depth, times);
        depth.adapt(100_000);
        (depth.requests, matches!(depth.stage, Stage::Trying { depth: 64, windows: 0, sum: 0 }))
    };
    // Little longer than alone: it grows at once, if something waits.
    assert_eq!(adapted(1, true, false), (81, false));
    assert_eq!(adapted(1, false, false), (64, false));
    assert_eq!(adapted(3, true, false), (81, true));
    assert_eq!(adapted(3, true, true), (81, true));
    assert_eq!(adapted(3, false, true), (64, false));
    // Longer: a lower one, or a larger one if that was no use; three quarters to an eighth.
    assert_eq!(adapted(6, true, false), (32, true));
    assert_eq!(adapted(5, false, false), (38, true));
    assert_eq!(adapted(6, true, true), (81, true));
    assert_eq!(adapted(100, true, false), (8, true));
}

/// What nobody uses is given up.
#[test]
fn a_depth_that_is_not_reached_falls() {
    for (is_short, peak, expected) in [(false, 100, 200), (false, 1, START), (true, 1, 900)] {
        let mut depth = with(900, 10_000, Stage::Steady(5));
        depth.is_short = is_short;
        depth.peak = u64::from(peak * COST_MIN);
        depth.adapt(100_000);
        assert_eq!(depth.requests, expected, "{peak}");
    }
}

/// More than ever was of any use does not stay for a pause.
#[test]
fn a_pause_ends_where_more_is_there_than_was_of_use() {
    for (needed, times, tries) in [(20, 6, true), (64, 6, false), (20, 3, false)] {
        let mut depth = with(64, 10_000, Stage::Steady(5));
        (depth.is_short, depth.pause, depth.needed) = (true, 5, needed);
        depth.peak = u64::from(64 * COST_MIN);
        stretched(&mut depth, times);
        depth.adapt(100_000);
        let expected = if tries { (true, 5) } else { (false, 4) };
        assert_eq!((depth.stage != Stage::Steady(5), depth.pause), expected, "{needed}, {times} times");
    }
}

/// What is known falls slowly, and not beside a flow with few requests or while the device has too
/// little to do.
#[test]
fn what_a_device_does_at_a_time_falls_by_a_sixteenth_of_the_difference() {
    for (light_left, times, expected) in [(0, 3, 15_001), (3, 3, 16_000), (0, 1, 16_000)] {
        let mut depth = with(64, 10_000, Stage::Steady(5));
        depth.parallel.known = 16_000;
        depth.light_left = light_left;
        stretched(&mut depth, times);
        depth.adapt(100_000);
        assert_eq!(depth.parallel.known, expected, "{light_left}, {times} times");
    }
    let mut parallel = Parallel { known: 7 };
    parallel.note(9, RATIO, None);
    assert_eq!(parallel.known, 9);
}
