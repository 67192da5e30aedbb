//! See `fuzzing::response_head`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::response_head(data));
