//! See `fuzzing::oauth2_request`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::oauth2_request(data));
