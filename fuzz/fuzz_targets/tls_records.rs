//! Fuzz target: `ebof_testkit::fuzz::tls_records`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ebof_testkit::fuzz::tls_records(input));
