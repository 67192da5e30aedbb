//! See `fuzzing::uri`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::uri(data));
