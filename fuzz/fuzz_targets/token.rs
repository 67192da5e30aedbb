//! See `fuzzing::token`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::token(data));
