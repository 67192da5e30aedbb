//! See `fuzzing::client_hello`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::client_hello(data));
