//! Tests of the sinks with real sockets and files.
