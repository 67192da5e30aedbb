//! The commands `oauth2 import` and `oauth2 export`, which ask the running gateway.

use crate::client::{ApiClient, ClientError};
use crate::commands::{Failure, print, say, warn};
use crate::settings::Settings;
use admin::token_transfer::Summary;
use serde_json::Value as Json;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::Path;
use tempfile::NamedTempFile;

/// Bytes of lines in a request. An import that breaks off has lost at most this much work.
const PIECE: usize = 4 << 20;

/// Imports the lines of a file, in pieces. Each piece is durable before the next one is sent.
pub(crate) fn import(settings: &Settings, path: &Path, skip: u64) -> Result<(), Failure> {
    let failed =
        |error: io::Error| Failure::new(format!("cannot read {}: {error}", path.display()));
    let client = ApiClient::connect(&settings.prefix).map_err(Failure::new)?;
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let mut total = Summary {
        lines: skip,
        ..Summary::default()
    };
    for _ in 0..skip {
        if file.skip_until(b'\n').map_err(failed)? == 0 {
            break;
        }
    }
    loop {
        let piece = piece(&mut file).map_err(failed)?;
        if piece.is_empty() {
            break;
        }
        let done = send(&client, piece).map_err(|reason| {
            let lines = total.lines;
            Failure::new(format!(
                "{reason}\n{lines} lines are done: repeat the command with --skip {lines}"
            ))
        })?;
        add(&mut total, done);
        if io::stderr().is_terminal() {
            // Nothing can be done if standard error is closed.
            let _ = write!(io::stderr(), "\r{} lines", total.lines);
        }
    }
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\r");
    }
    for refused in &total.errors {
        warn(&format!("line {}: {}", refused.line, refused.reason));
    }
    let Summary {
        lines,
        imported,
        present,
        ended,
        expired,
        refused,
        ..
    } = total;
    say(&format!(
        "{lines} lines: {imported} tokens imported, {present} were there, {ended} were known and have ended, \
         {expired} have expired, {refused} refused\n"
    ))?;
    match refused {
        0 => Ok(()),
        refused => Err(Failure::new(format!("{refused} lines were refused"))),
    }
}

/// Reads whole lines.
fn piece(file: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut piece = Vec::new();
    while piece.len() < PIECE && file.read_until(b'\n', &mut piece)? > 0 {}
    Ok(piece)
}

fn send(client: &ApiClient, piece: Vec<u8>) -> Result<Summary, String> {
    let headers = [("content-type", "application/x-ndjson")];
    let answer = client.request("POST", "/oauth2_tokens/import", &headers, piece);
    let answer = answer.map_err(|error: ClientError| error.to_string())?;
    let said = answer.json().unwrap_or_default();
    if !answer.is_success() {
        return Err(message(&said));
    }
    serde_json::from_value(said)
        .map_err(|error| format!("the gateway's answer is not understood: {error}"))
}

fn message(said: &Json) -> String {
    let inner = said.get("error").unwrap_or(said);
    let message = inner.get("message").and_then(Json::as_str);
    message.unwrap_or("the gateway refuses it").to_owned()
}

/// Adds what has become of a piece.
fn add(total: &mut Summary, piece: Summary) {
    let before = total.lines;
    total.lines += piece.lines;
    total.imported += piece.imported;
    total.present += piece.present;
    total.ended += piece.ended;
    total.expired += piece.expired;
    total.refused += piece.refused;
    let errors = piece.errors.into_iter().map(|mut error| {
        error.line += before;
        error
    });
    let room = MAX_ERRORS.saturating_sub(total.errors.len());
    total.errors.extend(errors.take(room));
}

/// Refused lines that are printed.
const MAX_ERRORS: usize = 1000;

/// Writes all tokens. A file appears under its name only when it is complete. Only its owner can read it.
pub(crate) fn export(settings: &Settings, output: Option<&Path>) -> Result<(), Failure> {
    let client = ApiClient::connect(&settings.prefix).map_err(Failure::new)?;
    let Some(path) = output else {
        return each_line(&client, &mut |line| print(line));
    };
    let failed =
        |error: io::Error| Failure::new(format!("cannot write {}: {error}", path.display()));
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // It has mode 0600.
    let mut file = NamedTempFile::new_in(directory).map_err(failed)?;
    let mut writer = io::BufWriter::new(file.as_file_mut());
    each_line(&client, &mut |line| writer.write_all(line).map_err(failed))?;
    writer.flush().map_err(failed)?;
    drop(writer);
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn each_line(
    client: &ApiClient,
    each: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut lines = client
        .lines("GET", "/oauth2_tokens/export", &[], "")
        .map_err(Failure::new)?;
    while let Some(mut line) = lines.next_line().map_err(Failure::new)? {
        if lines.status != 200 {
            let said = serde_json::from_slice(&line).unwrap_or_default();
            return Err(Failure::new(message(&said)));
        }
        line.push(b'\n');
        each(&line)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::token_transfer::RefusedLine;

    #[test]
    fn pieces_have_whole_lines_and_the_numbers_of_lines_go_on() {
        let text = format!("{}\nb\nlast", "a".repeat(PIECE));
        let mut file = io::Cursor::new(text.as_bytes());
        assert_eq!(piece(&mut file).expect("readable").len(), PIECE + 1);
        assert_eq!(piece(&mut file).expect("readable"), b"b\nlast");
        assert_eq!(piece(&mut file).expect("readable"), b"");
        let done = |lines, line| Summary {
            lines,
            refused: 1,
            errors: vec![RefusedLine {
                line,
                reason: String::new(),
            }],
            ..Summary::default()
        };
        let mut total = Summary::default();
        add(&mut total, done(10, 3));
        add(&mut total, done(5, 2));
        let lines: Vec<u64> = total.errors.iter().map(|error| error.line).collect();
        assert_eq!((total.lines, total.refused, lines), (15, 2, vec![3, 12]));
    }
}
