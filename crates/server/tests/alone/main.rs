//! Tests that change or measure their whole process: limits of the system, the log, the allocator,
//! late wake-ups. Each runs in a process of its own, one after the other. Other tests of a target
//! are in `tests/it`.
#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test fails by panicking; sizes are small")]

mod allocation;
#[path = "../it/config.rs"]
mod config;
#[expect(dead_code, reason = "this guest does little")]
#[path = "../it/direct_rig.rs"]
mod direct_rig;
mod late_wakes;
mod log;
#[expect(dead_code, reason = "these hosts send no data")]
#[path = "../it/raw.rs"]
mod raw;
mod start;
mod unaligned;
#[path = "../it/waiting.rs"]
mod waiting;
mod zerocopy_refused;

use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The name of the test that a process is for.
const TEST: &str = "EBOF_TEST_ALONE";

/// Whether this process is for that test, which then runs. Otherwise the test has been run in a new
/// process of this program when the function returns.
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
    // A wrong name would run no test, and succeed.
    assert!(run.status.success() && output.contains("ok. 1 passed"), "{test}: {}", run.status);
    false
}
