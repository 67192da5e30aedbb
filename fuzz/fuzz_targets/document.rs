//! See `fuzzing::document`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::document(data));
