//! Fuzz target: `ebof_testkit::fuzz::drive_medium`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ebof_testkit::fuzz::drive_medium(input));
