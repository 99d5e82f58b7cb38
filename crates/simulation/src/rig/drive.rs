//! The three threads of a drive, as parts that have their turns: its own, the one that flushes and
//! the one that zeroes.

use std::time::Instant;

use ebof_medium::Stepper;

/// How many there are.
pub(crate) const PARTS: usize = 3;

/// One of them does what it has to do now.
pub(crate) fn turn(stepper: &mut Stepper, part: usize, now: Instant) {
    match part {
        0 if stepper.due().is_some_and(|due| due <= now) => stepper.turn(),
        1 => _ = stepper.flush(),
        2 => _ = stepper.zero(),
        _ => {}
    }
}

/// Whether the second or the third has something to do now.
pub(crate) fn is_busy(stepper: &mut Stepper) -> bool {
    stepper.has_flushes() || stepper.has_zeroing()
}
