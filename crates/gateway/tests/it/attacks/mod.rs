//! Attacks on message framing by clients and by upstreams, against the real binary, and the cases of Http11Probe. The
//! cases are data in `tests/data/attacks`; `README.md` there explains their fields.

mod answers;
mod differential;
mod http2;
mod origin;
mod others;
mod probe;
mod requests;
mod wire;

use std::path::Path;

/// The cases of a data file.
fn cases<T: serde::de::DeserializeOwned>(file: &str) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/attacks")
        .join(file);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Decodes a text of a case: each character is one byte, and `<<text*count>>` repeats the text `count` times.
fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<<") {
        let (repeated, after) = after.split_once(">>").expect("a repetition ends");
        let (piece, count) = repeated.rsplit_once('*').expect("a repetition has a count");
        let count = count.parse().expect("the count is a number");
        out.extend(latin1(before));
        out.extend(latin1(piece).repeat(count));
        rest = after;
    }
    out.extend(latin1(rest));
    out
}

fn latin1(text: &str) -> Vec<u8> {
    let byte = |character| u8::try_from(u32::from(character)).expect("a character is one byte");
    text.chars().map(byte).collect()
}

/// The bytes as shortened, readable text for failure messages.
fn shown(bytes: &[u8]) -> String {
    let text: String = bytes
        .iter()
        .take(600)
        .map(|&byte| char::from(byte))
        .collect();
    format!("{text:?} ({} bytes)", bytes.len())
}

/// Runs every case, and panics with a list of all failures.
fn check_all<T>(cases: &[T], name: impl Fn(&T) -> &str, check: impl Fn(&T) -> Result<(), String>) {
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let problem = check(case).err()?;
            Some(format!("{}: {problem}", name(case)))
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}
