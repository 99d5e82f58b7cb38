//! Fuzz target: `ebof_testkit::fuzz::rdma_private_data`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ebof_testkit::fuzz::rdma_private_data(input));
