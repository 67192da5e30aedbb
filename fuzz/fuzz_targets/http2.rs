//! See `fuzzing::http2`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::http2(data));
