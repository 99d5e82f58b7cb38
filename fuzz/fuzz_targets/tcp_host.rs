//! Fuzz target: `ebof_testkit::fuzz::tcp_host`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ebof_testkit::fuzz::tcp_host(input));
