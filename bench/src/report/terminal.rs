//! The report as tables for a terminal.
