//! Fuzz target: `ebof_testkit::fuzz::vfio_pointer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ebof_testkit::fuzz::vfio_pointer(input));
