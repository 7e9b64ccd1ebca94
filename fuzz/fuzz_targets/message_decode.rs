//! Fuzzes messages from the broker: `cargo +nightly fuzz run message_decode`.
//!
//! The body is a plain function, which the tests run on a stable compiler over `fuzz/corpus/message_decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    fencepost_fuzz::message_decode(input);
});
