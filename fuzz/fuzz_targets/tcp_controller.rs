//! Fuzz target: `ebof_testkit::fuzz::tcp_controller`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ebof_testkit::fuzz::tcp_controller(input));
