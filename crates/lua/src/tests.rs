//! Tests of the VM.
