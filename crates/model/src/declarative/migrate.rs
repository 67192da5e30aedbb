//! Migrates documents of the formats 1.1 and 2.1. Paths of routes are converted so that they have the same meaning in
//! format 3.0. Source: kong/db/declarative/migrations/route_path.lua, kong/db/migrations/migrate_path_280_300.lua.

use crate::kind::EntityKind;
use crate::uri::{self, Slashes};
use crate::value::{Object, Value};

/// Migrates a top-level entity, if it is a route or a service with nested routes. As in Kong, other routes are not
/// migrated.
pub(super) fn top_level(kind: EntityKind, value: &mut Value) {
    match (kind, value) {
        (EntityKind::Routes, Value::Object(route)) => migrate_route(route),
        (EntityKind::Services, Value::Object(service)) => {
            if let Some(Value::Array(routes)) = service.get_mut("routes") {
                for route in routes.iter_mut().filter_map(Value::as_object_mut) {
                    migrate_route(route);
                }
            }
        }
        _ => {}
    }
}

/// Migrates an entity nested in a top-level service.
pub(super) fn in_service(kind: EntityKind, value: &mut Value) {
    if let (EntityKind::Routes, Value::Object(route)) = (kind, value) {
        migrate_route(route);
    }
}

fn migrate_route(route: &mut Object) {
    let Some(Value::Array(paths)) = route.get_mut("paths") else {
        return;
    };
    for path in paths {
        if let Value::String(text) = path {
            *path = Value::from(migrated(text));
        }
    }
}

fn migrated(path: &str) -> String {
    if is_plain(path) {
        let normal = uri::normalize(path.as_bytes(), Slashes::Merge);
        // Decoding may result in bytes that are not UTF-8. Such a path is kept as written.
        return String::from_utf8(normal.into_owned()).unwrap_or_else(|_| path.to_owned());
    }
    let mut pattern = b"~".to_vec();
    decode_pattern(path.as_bytes(), &mut pattern);
    String::from_utf8(pattern).unwrap_or_else(|_| format!("~{path}"))
}

/// Whether Kong 2.x treated the path as a literal path and not as a regular expression.
fn is_plain(path: &str) -> bool {
    path.bytes().all(|byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'~' | b'/' | b'%')
    })
}

/// Decodes `%XX` once. Reserved bytes stay encoded. Decoded bytes with a meaning in regular expressions are escaped.
fn decode_pattern(pattern: &[u8], out: &mut Vec<u8>) {
    let mut rest = pattern;
    while let [first, after @ ..] = rest {
        match encoded(rest) {
            Some(byte) => {
                push_decoded(byte, &rest[..3], out);
                rest = &rest[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
}

fn push_decoded(byte: u8, written: &[u8], out: &mut Vec<u8>) {
    match byte {
        b'!' | b'#'..=b',' | b'/' | b':' | b';' | b'=' | b'?' | b'@' | b'[' | b']' => {
            out.extend(written.iter().map(u8::to_ascii_uppercase));
        }
        b'.' | b'^' | b'-' | b'{' | b'}' | b'\\' | b'|' => out.extend([b'\\', byte]),
        _ => out.push(byte),
    }
}

fn encoded(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else {
        return None;
    };
    let high = char::from(*high).to_digit(16)?;
    let low = char::from(*low).to_digit(16)?;
    u8::try_from(high << 4 | low).ok()
}

#[cfg(test)]
mod tests {
    use super::migrated;

    #[test]
    fn plain_paths_are_normalised_and_patterns_marked() {
        for (path, expected) in [
            ("/plain", "/plain"),
            ("/a//b/../c%41", "/a/cA"),
            (r"/re/\d+", r"~/re/\d+"),
            ("/a%2fb(c)", "~/a%2Fb(c)"),
            ("/a%2e%41(c)", r"~/a\.A(c)"),
            ("/%zz(", "~/%zz("),
        ] {
            assert_eq!(migrated(path), expected);
        }
    }

    #[test]
    fn a_path_that_decodes_to_no_text_is_kept() {
        assert_eq!(migrated("/%ff"), "/%ff");
        assert_eq!(migrated("/%ff(x)"), "~/%ff(x)");
    }
}
