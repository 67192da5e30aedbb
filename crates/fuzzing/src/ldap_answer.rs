//! Fuzz target for what a directory sends to the LDAP client.

use services::ldap::reading::{answer, length};

/// The largest message and the longest text that are accepted.
const MAX_MESSAGE: usize = 64 * 1024;
const MAX_DIAGNOSTIC: usize = 512;

/// Checks bytes that a directory sends. Whoever sees only their beginning must wait, or find the same length.
pub fn ldap_answer(data: &[u8]) {
    let whole = length(data);
    for beginning in crate::beginnings(data) {
        match (length(beginning), whole) {
            (Ok(None), _) => {}
            (found, whole) => assert_eq!(found, whole, "after {} bytes", beginning.len()),
        }
    }
    // Nobody relies on the length of what is parsed, so any bytes are refused or read.
    let read = answer(data);
    if let Some(read) = &read {
        assert!(read.id < 1 << 31 && read.code < 1 << 31);
        // A byte that is no UTF-8 becomes a character of three.
        assert!(read.diagnostic.len() <= 3 * MAX_DIAGNOSTIC);
    }
    let Ok(Some(end)) = whole else {
        return;
    };
    assert!((2..=MAX_MESSAGE).contains(&end));
    if let Some(message) = data.get(..end) {
        assert_eq!(answer(message), read, "only the message counts");
    }
}
