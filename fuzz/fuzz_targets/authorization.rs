//! See `fuzzing::authorization`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::authorization(data));
