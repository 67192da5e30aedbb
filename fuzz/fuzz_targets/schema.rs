//! See `fuzzing::schema`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::schema(data));
