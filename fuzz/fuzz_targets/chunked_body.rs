//! See `fuzzing::chunked_body`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::chunked_body(data));
