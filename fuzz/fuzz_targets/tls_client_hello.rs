//! Fuzz target: `ebof_testkit::fuzz::tls_client_hello`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ebof_testkit::fuzz::tls_client_hello(input));
