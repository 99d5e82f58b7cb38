//! Fuzz target: `ebof_testkit::fuzz::rdma_host`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ebof_testkit::fuzz::rdma_host(input));
