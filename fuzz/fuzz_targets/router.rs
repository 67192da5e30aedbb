//! See `fuzzing::router`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::router(data));
