//! Fuzzes cron expressions and zones: `cargo +nightly fuzz run cron_expr`.
//!
//! The body is a plain function, which the tests run on a stable compiler over `fuzz/corpus/cron_expr`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    fencepost_fuzz::cron_expr(input);
});
