//! Fuzz target for paths. Normalising a normalised path must change nothing. The path sent upstream must not be able to
//! end the request line early.

use model::uri::{Slashes, escape_into, normalize, normalize_into};

/// Checks a path. The first byte of the input chooses how adjacent slashes are handled.
pub fn uri(data: &[u8]) {
    let Some((&first, path)) = data.split_first() else {
        return;
    };
    let slashes = match first & 1 {
        0 => Slashes::Merge,
        _ => Slashes::Keep,
    };
    let normal = normalize(path, slashes);
    let mut written = Vec::new();
    if normalize_into(path, slashes, &mut written) {
        assert_eq!(written, *normal);
    } else {
        assert_eq!(path, &*normal);
    }
    assert!(normal.len() <= path.len());
    let mut escaped = Vec::new();
    escape_into(&normal, &mut escaped);
    assert!(escaped.iter().all(|byte| byte.is_ascii_graphic()));
    let mut again = Vec::new();
    escape_into(&escaped, &mut again);
    assert_eq!(escaped, again, "escaped twice");
    if path.first() != Some(&b'/') {
        return;
    }
    assert_eq!(normal.first(), Some(&b'/'));
    let segments = || normal.split(|&byte| byte == b'/');
    assert!(
        segments().all(|segment| segment != b"." && segment != b".."),
        "dots are left"
    );
    if slashes == Slashes::Merge {
        assert!(
            !normal.windows(2).any(|two| two == b"//"),
            "adjacent slashes are left"
        );
    }
    // The gateway refuses a head with a `%` that is not followed by two hexadecimal digits, before it normalises paths.
    if is_well_encoded(path) {
        assert_eq!(
            normalize(&normal, slashes),
            normal,
            "normalising the path again changes it"
        );
    }
}

fn is_well_encoded(path: &[u8]) -> bool {
    let hex = |at: usize| path.get(at).is_some_and(u8::is_ascii_hexdigit);
    let mut percents = path.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    percents.all(|(at, _)| hex(at + 1) && hex(at + 2))
}
