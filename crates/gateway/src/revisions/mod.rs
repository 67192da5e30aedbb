//! `silverback revisions`: history on the command line. It queries the running gateway, or the store if none runs.

mod source;
mod text;

use crate::cli::{OutputArgs, RevisionsCommand};
use crate::commands::{Failure, resolved_settings, say, warn};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use source::Source;
use std::fmt::Write;

pub(crate) fn run(command: RevisionsCommand) -> Result<(), Failure> {
    match command {
        RevisionsCommand::List {
            entity,
            since,
            until,
            limit,
            output,
        } => {
            let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
            let limit = limit.unwrap_or(if output.json { usize::MAX } else { LISTED });
            let mut path = format!("/revisions?size={}", limit.min(PAGE));
            let (kind, id) = entity.unzip();
            for (name, value) in [
                ("since", since),
                ("until", until),
                ("entity_type", kind),
                ("entity_id", id),
            ] {
                if let Some(value) = value {
                    let value = utf8_percent_encode(&value, NON_ALPHANUMERIC);
                    let _ = write!(path, "&{name}={value}");
                }
            }
            let (listed, more) = first(&open(&output)?, &path, limit)?;
            tell(&output, &listed, |answer| text::list(answer, more))
        }
        RevisionsCommand::Show { revision, output } => {
            let path = format!("/revisions/{revision}?size={PAGE}");
            let shown = all(&open(&output)?, &path)?;
            tell(&output, &shown, text::revision)
        }
        RevisionsCommand::Diff { from, to, output } => {
            let path = format!("/revisions/{from}/diff/{to}?size={PAGE}");
            let shown = all(&open(&output)?, &path)?;
            tell(&output, &shown, text::changes)
        }
        RevisionsCommand::Rollback {
            revision,
            entities,
            message,
            expected_revision,
            dry_run,
            output,
        } => {
            let entities = entities.iter().map(|(kind, key)| format!("{kind}/{key}"));
            let entities: Vec<String> = entities.collect();
            let body = json!({
                "entities": (!entities.is_empty()).then_some(entities),
                "message": message,
                "expected_revision": expected_revision,
                "dry_run": dry_run,
            });
            let source = open(&output)?;
            let file = source.declarative_file()?;
            let done = source.roll_back(revision, &body)?;
            tell(&output, &done, text::rollback)?;
            if let Some(file) = file {
                warn(&format!(
                    "the next start or reload with the declarative file {file} undoes a rollback: change the file too"
                ));
            }
            Ok(())
        }
    }
}

/// Maximum number of items in a page.
const PAGE: usize = 1000;

/// Number of revisions that a list for people shows by default.
const LISTED: usize = 20;

fn open(output: &OutputArgs) -> Result<Source, Failure> {
    Source::open(&resolved_settings(&output.settings)?)
}

fn tell(
    output: &OutputArgs,
    answer: &Value,
    text: impl Fn(&Value) -> String,
) -> Result<(), Failure> {
    if output.json {
        say(&format!("{answer:#}\n"))
    } else {
        say(&text(answer))
    }
}

/// Fetches all pages of a list.
fn all(source: &Source, path: &str) -> Result<Value, Failure> {
    Ok(first(source, path, usize::MAX)?.0)
}

/// Fetches the pages of a list, up to `limit` items. Returns also whether the list has more items.
fn first(source: &Source, path: &str, limit: usize) -> Result<(Value, bool), Failure> {
    let mut whole = source.get(path)?;
    let mut data = items(&mut whole);
    while data.len() < limit
        && let Some(next) = whole["next"].take().as_str()
    {
        let mut page = source.get(next)?;
        data.append(&mut items(&mut page));
        whole["next"] = page["next"].take();
    }
    let more = data.len() > limit || whole["next"].is_string();
    data.truncate(limit);
    if let Some(whole) = whole.as_object_mut() {
        whole.remove("next");
        whole.remove("offset");
        whole.insert("data".to_owned(), data.into());
    }
    Ok((whole, more))
}

fn items(page: &mut Value) -> Vec<Value> {
    match page["data"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}
