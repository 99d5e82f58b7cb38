//! Real block devices on this machine: FUSE and loop, backed by memory. Needs root and /dev/fuse;
//! otherwise the tests print that, and pass.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test with its own main: clippy does not see that it is one"
)]

mod counts;
mod front;
mod host;
mod line;
mod memory;
mod paths;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use ebof_attach::Kind;

/// A test, and the front that it needs.
type Test = (&'static str, fn(Kind));

const TESTS: &[Test] = &[
    ("a_file_system_lives_on_the_device", front::a_file_system_lives_on_the_device),
    ("zeroes_and_discards_reach_the_medium", front::zeroes_and_discards_reach_the_medium),
    ("large_transfers_are_whole", front::large_transfers_are_whole),
    ("what_is_read_only_stays_as_it_is", front::what_is_read_only_stays_as_it_is),
    (
        "a_device_in_use_becomes_read_only_and_writable_again",
        front::a_device_in_use_becomes_read_only_and_writable_again,
    ),
    ("a_device_that_is_open_somewhere_is_not_taken_away", front::a_device_that_is_open_somewhere_is_not_taken_away),
    ("devices_come_and_go_under_load", front::devices_come_and_go_under_load),
    ("a_connection_leaves_a_device_behind", line::a_connection_leaves_a_device_behind),
    ("reads_and_writes_have_queues_of_their_own", line::reads_and_writes_have_queues_of_their_own),
    ("a_disconnect_asks_who_uses_the_device", line::a_disconnect_asks_who_uses_the_device),
    ("a_daemon_that_waits_for_its_target_keeps_the_device", line::a_daemon_that_waits_for_its_target_keeps_the_device),
    ("a_killed_daemon_is_repaired", line::a_killed_daemon_is_repaired),
    (
        "loop_devices_of_other_mount_namespaces_are_left_alone",
        line::loop_devices_of_other_mount_namespaces_are_left_alone,
    ),
    ("devices_wait_for_a_target_that_comes_back", line::devices_wait_for_a_target_that_comes_back),
    ("devices_fail_when_the_target_stays_away", line::devices_fail_when_the_target_stays_away),
    (
        "a_forced_disconnect_fails_requests_whose_target_is_away",
        line::a_forced_disconnect_fails_requests_whose_target_is_away,
    ),
    ("what_devices_do_is_counted", counts::what_devices_do_is_counted),
    ("devices_are_announced_to_udev", line::devices_are_announced_to_udev),
    ("namespaces_come_and_go", line::namespaces_come_and_go),
    ("write_protection_does_not_end_a_device", line::write_protection_does_not_end_a_device),
    (
        "another_namespace_under_the_same_number_ends_the_device",
        host::another_namespace_under_the_same_number_ends_the_device,
    ),
    ("a_cache_that_a_target_comes_back_with_is_flushed", host::a_cache_that_a_target_comes_back_with_is_flushed),
    ("a_namespace_is_one_block_device", host::a_namespace_is_one_block_device),
    ("of_two_that_connect_at_once_one_gets_the_device", host::of_two_that_connect_at_once_one_gets_the_device),
    ("a_controller_that_was_given_up_is_remembered", host::a_controller_that_was_given_up_is_remembered),
    ("a_second_port_is_a_path_of_the_same_device", paths::a_second_port_is_a_path_of_the_same_device),
    ("paths_join_and_leave_under_load", paths::paths_join_and_leave_under_load),
    ("a_reservation_holds_for_all_paths_of_a_device", paths::a_reservation_holds_for_all_paths_of_a_device),
    ("io_follows_the_states_of_access", paths::io_follows_the_states_of_access),
    ("a_path_that_is_lost_is_left_and_comes_back", paths::a_path_that_is_lost_is_left_and_comes_back),
    ("what_leads_elsewhere_is_no_path", paths::what_leads_elsewhere_is_no_path),
    ("what_cannot_be_connected_leaves_nothing", line::what_cannot_be_connected_leaves_nothing),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        // `ebof_attach::connect` starts this program again, as the daemon.
        Some(ebof_attach::daemon::ARGUMENT) => {
            tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
            return ebof_attach::daemon::run(Path::new(arguments.get(1).map_or("", String::as_str)));
        }
        Some("measure-loop") => {
            front::measure(Kind::Loop);
            return ExitCode::SUCCESS;
        }
        Some("measure-ublk") => {
            front::measure(Kind::Ublk);
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let wanted = |name: &str| filter.is_none_or(|filter| name.contains(filter.as_str()));
    let mut failed = 0;
    for (kind, word) in [(Kind::Loop, "loop"), (Kind::Ublk, "ublk")] {
        for (name, test) in TESTS {
            failed += run(&format!("{word}::{name}"), kind, || test(kind), &wanted);
        }
    }
    let full = front::a_worker_that_can_take_no_more_sleeps;
    failed += run("fuse::a_worker_that_can_take_no_more_sleeps", Kind::Loop, full, &wanted);
    failed += run("fuse::the_file_follows_its_namespace", Kind::Loop, front::the_file_follows_its_namespace, &wanted);
    if failed > 0 {
        println!("{failed} tests failed");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Runs a test; returns 1 if it failed.
fn run(name: &str, kind: Kind, test: impl Fn() + std::panic::RefUnwindSafe, wanted: &dyn Fn(&str) -> bool) -> u32 {
    if !wanted(name) {
        return 0;
    }
    if let Some(reason) = front::missing(kind) {
        println!("test {name} ... skipped: {reason}");
        return 0;
    }
    let began = Instant::now();
    let failed = std::panic::catch_unwind(&test).is_err();
    let seconds = began.elapsed().as_secs_f64();
    println!("test {name} ... {} <{seconds:.3}s>", if failed { "FAILED" } else { "ok" });
    u32::from(failed)
}
