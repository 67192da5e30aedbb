//! See `fuzzing::request_head`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::request_head(data));
