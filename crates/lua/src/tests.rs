//! Tests of the VM.

mod ngx;
