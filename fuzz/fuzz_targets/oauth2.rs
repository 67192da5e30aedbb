//! See `fuzzing::oauth2`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::oauth2(data));
