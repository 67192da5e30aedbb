//! Fuzz target for the cookies of the plugin session.

use plugins::session_cookies::{encode_again, open, seal};

const SECRET: &str = "a secret of the fuzz target";

/// Checks a session. The input is a byte with flags, two bytes that choose a change, and then a line of cookies, the data
/// of a session, or a session.
pub fn session(data: &[u8]) {
    let Some((&[flags, at, bit], rest)) = data.split_first_chunk::<3>() else {
        return;
    };
    assert_eq!(open(SECRET, rest), None, "it was made without the secret");
    if let Some(value) = plugin::cookie_in(rest, b"session") {
        assert!(!value.contains(&b';'));
        assert!(value.len() + "session=".len() <= rest.len());
    }
    if let Some((again, flags)) = encode_again(rest, flags.into()) {
        assert!(encode_again(&again, flags).is_some());
    }
    let Some(session) = seal(SECRET, rest) else {
        return;
    };
    assert_eq!(open(SECRET, session.as_bytes()).as_deref(), Some(rest));
    let mut changed = session.into_bytes();
    let at = usize::from(at) % changed.len();
    changed[at] ^= 1 << (bit % 8);
    assert_eq!(open(SECRET, &changed), None, "it was changed");
}
