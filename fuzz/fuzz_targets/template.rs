//! See `fuzzing::template`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::template(data));
