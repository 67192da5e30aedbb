//! See `fuzzing::proxy_header`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::proxy_header(data));
