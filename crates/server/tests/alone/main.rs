//! What changes or measures its whole process: the limits of the system, the log, the allocator,
//! late wake-ups. Each test runs in a process of its own, one after the other. What hosts see of a
//! target otherwise is in `tests/it`.
#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test fails by panicking; sizes are small")]

mod allocation;
#[path = "../it/config.rs"]
mod config;
mod late_wakes;
mod log;
#[expect(dead_code, reason = "these hosts send no data")]
#[path = "../it/raw.rs"]
mod raw;
mod start;
mod zerocopy_refused;

use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The test that a process is for, by its name.
const TEST: &str = "EBOF_TEST_ALONE";

/// Whether this process is for that test, which then runs. Otherwise the test has run when this
/// comes back: in this program, started again for nothing else.
#[expect(clippy::print_stdout, reason = "the test's output")]
fn is_alone(test: &str) -> bool {
    static TURN: Mutex<()> = Mutex::new(());
    if std::env::var(TEST).is_ok_and(|alone| alone == test) {
        return true;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let program = std::env::current_exe().expect("the program that runs has a path");
    let run = Command::new(program).args(["--exact", test, "--nocapture"]).env(TEST, test).output();
    let run = run.expect("what runs can be started again");
    let output = String::from_utf8_lossy(&run.stdout);
    for line in output.lines() {
        println!("| {line}");
    }
    println!("{}", String::from_utf8_lossy(&run.stderr));
    // A name that is none would run no test, and succeed.
    assert!(run.status.success() && output.contains("ok. 1 passed"), "{test}: {}", run.status);
    false
}
