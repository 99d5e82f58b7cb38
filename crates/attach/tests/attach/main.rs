//! Real block devices on this machine: FUSE and loop, with blocks in memory behind them. Needs root and /dev/fuse; says
//! so and passes where there is none.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test with its own main: clippy does not see that it is one"
)]

mod front;
mod memory;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "measure") {
        front::measure();
        return;
    }
    let tests: &[(&str, fn())] = &[
        ("a_file_system_lives_on_the_loop_device", front::a_file_system_lives_on_the_loop_device),
        ("holes_become_zeroes", front::holes_become_zeroes),
        ("a_namespace_that_goes_is_gone", front::a_namespace_that_goes_is_gone),
    ];
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let mut failed = 0;
    for (name, test) in tests.iter().filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter.as_str()))) {
        if let Some(reason) = front::missing() {
            println!("test {name} ... skipped: {reason}");
            continue;
        }
        match std::panic::catch_unwind(test) {
            Ok(()) => println!("test {name} ... ok"),
            Err(_) => {
                println!("test {name} ... FAILED");
                failed += 1;
            }
        }
    }
    assert!(failed == 0, "{failed} tests failed");
}
