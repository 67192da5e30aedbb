//! The grammar, the errors, and that printing loses nothing.
