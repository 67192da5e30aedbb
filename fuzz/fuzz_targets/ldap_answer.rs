//! See `fuzzing::ldap_answer`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::ldap_answer(data));
