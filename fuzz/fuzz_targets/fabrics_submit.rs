//! Fuzz target: `ebof_testkit::fuzz::fabrics_submit`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ebof_testkit::fuzz::fabrics_submit(input));
