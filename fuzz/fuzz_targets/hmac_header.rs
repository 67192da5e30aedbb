//! See `fuzzing::hmac_header`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::hmac_header(data));
