//! Fuzzes job definitions from the API: `cargo +nightly fuzz run job_definition`.
//!
//! The body is a plain function, which the tests run on a stable compiler over `fuzz/corpus/job_definition`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    fencepost_fuzz::job_definition(input);
});
