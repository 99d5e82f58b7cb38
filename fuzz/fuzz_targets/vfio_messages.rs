//! Fuzz target: `ebof_testkit::fuzz::vfio_messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ebof_testkit::fuzz::vfio_messages(input));
