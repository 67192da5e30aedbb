//! Compares path normalisation and escaping with Kong Gateway 3.9.1.

use model::uri::{Slashes, escape_into, normalize, normalize_into};
use serde_json::Value;

fn cases(section: &str) -> Vec<Value> {
    let vectors: Value =
        serde_json::from_str(include_str!("data/wire-vectors.json")).expect("the vectors are JSON");
    let cases = vectors[section]["cases"].as_array();
    cases.expect("a section has cases").clone()
}

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().expect("a case consists of texts")
}

#[test]
fn paths_are_normalised_as_kong_does() {
    for case in cases("path_normalise") {
        let input = text(&case, "input");
        for (slashes, field) in [
            (Slashes::Merge, "output"),
            (Slashes::Keep, "output_keep_slashes"),
        ] {
            let output = normalize(input.as_bytes(), slashes);
            assert_eq!(
                String::from_utf8_lossy(&output),
                text(&case, field),
                "{input} {slashes:?}"
            );
        }
    }
}

#[test]
fn the_normal_form_is_stable() {
    for case in cases("path_normalise") {
        let once = normalize(text(&case, "output").as_bytes(), Slashes::Merge);
        assert_eq!(String::from_utf8_lossy(&once), text(&case, "output"));
    }
}

#[test]
fn clean_paths_are_not_copied() {
    let path = b"/orders/17/lines";
    assert!(matches!(
        normalize(path, Slashes::Merge),
        std::borrow::Cow::Borrowed(_)
    ));
}

#[test]
fn paths_to_normalise_are_recognised_at_every_position() {
    for length in 1..30 {
        let clean: Vec<u8> = (0..length).map(|at| b"/ab"[at % 3]).collect();
        let mut out = Vec::new();
        assert!(
            !normalize_into(&clean, Slashes::Merge, &mut out),
            "{length}"
        );
        for at in 0..length {
            for odd in [b'%', b'.'] {
                let mut path = clean.clone();
                path[at] = odd;
                assert!(
                    normalize_into(&path, Slashes::Keep, &mut out),
                    "{length} {at}"
                );
            }
            let mut path = clean.clone();
            path[at..length.min(at + 2)].fill(b'/');
            let doubled = path.windows(2).any(|pair| pair == b"//");
            let seen = normalize_into(&path, Slashes::Merge, &mut out);
            assert_eq!(seen, doubled, "{length} {at}");
            assert!(
                !normalize_into(&path, Slashes::Keep, &mut out),
                "{length} {at}"
            );
        }
    }
}

#[test]
fn relative_paths_lose_their_leading_dots() {
    for (input, output) in [
        ("./a", "a"),
        ("../a/b", "a/b"),
        ("a/..", "/"),
        ("a/../b", "/b"),
        ("..", ""),
    ] {
        assert_eq!(
            &*normalize(input.as_bytes(), Slashes::Merge),
            output.as_bytes()
        );
    }
}

#[test]
fn upstream_paths_are_escaped_as_kong_does() {
    for case in cases("path_escape_upstream") {
        let mut out = b"kept".to_vec();
        escape_into(text(&case, "input").as_bytes(), &mut out);
        let expected = format!("kept{}", text(&case, "output"));
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}

#[test]
fn a_path_costs_as_much_as_it_is_long() {
    let again = ["/../a", "/./", "//", "/%2e%2e", "%2f..", "/a/..", "%C3%A9"];
    testkit::cost::assert_linear(
        8 * 1024,
        |size| again.map(|piece| format!("/{}", piece.repeat(size / piece.len()))),
        |paths: [String; 7]| {
            for path in &paths {
                for slashes in [Slashes::Merge, Slashes::Keep] {
                    let normal = normalize(path.as_bytes(), slashes);
                    let mut escaped = Vec::new();
                    model::uri::escape_into(&normal, &mut escaped);
                    std::hint::black_box(escaped);
                }
            }
        },
    );
}
