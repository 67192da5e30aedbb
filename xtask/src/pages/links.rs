//! Checks of links between the files of the repository.

use crate::shell;
use std::collections::HashMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// Returns every link in a Markdown file to a missing file or heading.
pub(super) fn broken() -> Result<Vec<String>, String> {
    let mut list = Command::new("git");
    list.current_dir(shell::root()).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "*.md",
    ]);
    let files = shell::output(&mut list)?;
    let mut headings = HashMap::new();
    let mut broken = Vec::new();
    for file in files.lines().filter(|file| !file.starts_with("vendor/")) {
        // The file was deleted, and the deletion is not committed yet.
        let Ok(text) = fs::read_to_string(shell::root().join(file)) else {
            continue;
        };
        for (line, target) in targets(&text) {
            if !leads_somewhere(file, &target, &mut headings) {
                broken.push(format!("{file}: line {line}: `{target}` leads nowhere"));
            }
        }
    }
    Ok(broken)
}

/// Returns the line numbers and targets of links into the repository, except those in code.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    for (line, number) in prose(text) {
        let mut rest = line.as_str();
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let Some(end) = rest.find(')') else { break };
            let target = &rest[..end];
            if !target.contains("://") && !target.starts_with("mailto:") {
                targets.push((number, target.to_owned()));
            }
        }
    }
    targets
}

/// Returns the lines with their numbers, without code blocks and inline code.
fn prose(text: &str) -> Vec<(String, usize)> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let parts = line.split('`').step_by(2);
            lines.push((parts.collect::<Vec<_>>().join("`"), number));
        }
    }
    lines
}

fn leads_somewhere(from: &str, target: &str, headings: &mut HashMap<PathBuf, Vec<String>>) -> bool {
    let (path, heading) = match target.split_once('#') {
        Some((path, heading)) => (path, Some(heading)),
        None => (target, None),
    };
    let path = match path {
        "" => PathBuf::from(from),
        path => within(Path::new(from).parent().unwrap_or(Path::new("")), path),
    };
    let path = shell::root().join(path);
    let Some(heading) = heading else {
        return path.exists();
    };
    let known = headings.entry(path).or_insert_with_key(|path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        anchors(&text)
    });
    known.iter().any(|anchor| anchor == heading)
}

/// Returns the path of a link with every `..` resolved.
fn within(folder: &Path, link: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for component in folder.join(link).components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

/// Returns the anchors of a page's headings in GitHub's format.
fn anchors(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut anchors: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let title = line.trim_start_matches('#');
        if is_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let anchor = anchor(title);
        let again = anchors
            .iter()
            .filter(|known| **known == anchor || is_numbered(known, &anchor))
            .count();
        anchors.push(match again {
            0 => anchor,
            number => format!("{anchor}-{number}"),
        });
    }
    anchors
}

fn is_numbered(known: &str, anchor: &str) -> bool {
    let number = known
        .strip_prefix(anchor)
        .and_then(|rest| rest.strip_prefix('-'));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Returns the anchor of a title: in lower case, with spaces as dashes, and otherwise only letters, digits, dashes and
/// underscores. A link in the title counts with its text.
fn anchor(title: &str) -> String {
    let mut text = String::new();
    let mut rest = title.trim();
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.to_lowercase()
        .chars()
        .filter_map(|character| match character {
            ' ' => Some('-'),
            '-' | '_' => Some(character),
            _ if character.is_alphanumeric() => Some(character),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_into_the_repository_are_found() {
        let text = "[a](b.md#c) and [d](https://e.example), `[f](g)`\n```\n[h](i)\n```\n[j](#k)\n";
        let found = [(1, "b.md#c".to_owned()), (5, "#k".to_owned())];
        assert_eq!(targets(text), found);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let text = "# A `b`, c: D!\n## Same\n```\n# no\n```\n### Same\n## [x](y.md) z_1\n#no\n";
        assert_eq!(anchors(text), ["a-b-c-d", "same", "same-1", "x-z_1"]);
    }

    #[test]
    fn a_link_goes_out_from_its_file() {
        assert_eq!(
            within(Path::new("docs/design"), "../a.md"),
            Path::new("docs/a.md")
        );
        assert_eq!(within(Path::new(""), "docs/a.md"), Path::new("docs/a.md"));
    }
}
