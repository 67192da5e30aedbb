//! Tests of the plugin.
