//! The limit for file sizes: a Rust file with more than 800 lines must be split or say at its top why it is one piece.
//! `vendor` is exempt, because its code stays as its authors wrote it.

use crate::shell;
use std::path::Path;

const MAX_LINES: usize = 800;
/// Text that the header comment of a longer file must contain.
const REASON: &str = "One piece because";
const HEADER_LINES: usize = 30;

pub(crate) fn check() -> Result<(), String> {
    let mut problems = Vec::new();
    for folder in ["crates", "bench", "fuzz", "xtask"] {
        visit(&shell::root().join(folder), &mut problems)?;
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.join("\n"))
    }
}

fn visit(folder: &Path, problems: &mut Vec<String>) -> Result<(), String> {
    let unreadable = |error| format!("cannot read {}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                visit(&path, problems)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            problems.extend(judge(&path)?);
        }
    }
    Ok(())
}

fn judge(path: &Path) -> Result<Option<String>, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let shown = path.strip_prefix(shell::root()).unwrap_or(path).display();
    let lines = text.lines().count();
    let explained = text
        .lines()
        .take(HEADER_LINES)
        .any(|line| line.contains(REASON));
    if lines > MAX_LINES && !explained {
        return Ok(Some(format!(
            "{shown} has {lines} lines, more than {MAX_LINES}: split it, or begin a sentence of its header with \
             `{REASON}`"
        )));
    }
    let has_header = text.starts_with("//!") || text.starts_with("#!");
    let needs_header = path.ends_with("lib.rs") || path.ends_with("main.rs");
    Ok((needs_header && !has_header).then(|| format!("{shown} does not say what it is for")))
}
