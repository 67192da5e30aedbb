//! See `fuzzing::expression`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::expression(data));
