//! Compares the loader with Kong 3.9.1: with recorded responses to `POST /config`, and with ids that Kong derived.

use crate::running::{Running, object, options};
use model::declarative::{self, Document, Format, Nothing, Source};
use model::schema::RouterFlavor;
use model::{EntityKind, codec};
use plugins::install as registry;
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;
use uuid::Uuid;

const EXCHANGES: &str = include_str!("../data/declarative-exchanges.json");
const IDS: &str = include_str!("../data/declarative-ids.json");

/// Values of placeholders such as `<uuid-1>`.
type Bound = HashMap<String, String>;

#[test]
fn recorded_exchanges_have_the_same_responses() {
    let vectors: Json = serde_json::from_str(EXCHANGES).expect("json");
    let cases = vectors["cases"].as_array().expect("cases");
    let mut bound = Bound::new();
    let mut problems = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        if let Err(problem) = check(case, &mut bound) {
            problems.push(format!("{number}: {problem}\n{}", case["body"]));
        }
    }
    assert_eq!(cases.len(), 47);
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

#[test]
fn derived_ids_are_those_of_kong() {
    let vectors: Json = serde_json::from_str(IDS).expect("json");
    let document =
        declarative::load(object(&vectors["config"]), &options(1), &Nothing).expect("accepted");
    let cases = vectors["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 19);
    for case in cases {
        let mut puts = document
            .puts
            .iter()
            .filter(|put| put.kind.name() == case["entity"]);
        assert!(
            puts.any(|put| put.id.to_string() == *case["id"].as_str().expect("id")),
            "{case}"
        );
    }
}

/// Loads a recorded request into an empty configuration and compares the response. Then it loads the request again,
/// which must change nothing.
fn check(case: &Json, bound: &mut Bound) -> Result<(), String> {
    let body = fill(&case["body"], bound);
    let mut options = options(1_790_000_000);
    options.flatten_errors = case["flatten_errors"] == true;
    let text = match &body {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    let source = || {
        if case["source"] == "json" {
            Source::JsonBody(text.as_bytes())
        } else {
            Source::Text(text.as_bytes(), Format::Auto)
        }
    };
    let mut running = Running::default();
    let mut loader = std::mem::take(&mut running.loader);
    let answer = match loader.load(source(), &options, &running, 0) {
        Ok(document) => {
            running.commit(&document);
            (201, shown(&document))
        }
        Err(error) => (
            error.code.status(),
            serde_json::to_value(error.to_json()).expect("json"),
        ),
    };
    if case["status"] != answer.0 {
        return Err(format!("status {}: {}", answer.0, answer.1));
    }
    differ(&case["answer"], &answer.1, bound, "body")?;
    if answer.0 == 201 {
        loader.committed(running.revision);
        let again = loader.load(source(), &options, &running, running.revision);
        let again = again.map_err(|error| format!("the second load fails: {error}"))?;
        if !again.puts.is_empty() || !again.deletes.is_empty() {
            return Err(format!(
                "the second load changes {:?} {:?}",
                again.puts, again.deletes
            ));
        }
    }
    Ok(())
}

/// Returns the entities of a document in the form of the response of `POST /config`.
fn shown(document: &Document) -> Json {
    let mut all = Map::new();
    for put in document
        .puts
        .iter()
        .filter(|put| put.kind != EntityKind::Workspaces)
    {
        let plain = document.untransformed.iter();
        let mut plain = plain.filter(|(kind, id, _)| (*kind, *id) == (put.kind, put.id));
        let entity = match plain.next() {
            Some((_, _, entity)) => codec::encode(entity),
            None => put.entity.clone(),
        };
        let mut text = Vec::new();
        let schema = registry().entity(put.kind);
        let written = schema.write_stored_json(&entity, RouterFlavor::default(), &mut text);
        written.expect("an entity");
        let of_kind = all.entry(put.kind.name()).or_insert_with(|| json!({}));
        of_kind[put.id.to_string()] = serde_json::from_slice(&text).expect("json");
    }
    Json::Object(all)
}

fn fill(value: &Json, bound: &mut Bound) -> Json {
    match value {
        Json::String(text) if text.starts_with("<uuid-") => {
            let own = || Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()).to_string();
            Json::String(bound.entry(text.clone()).or_insert_with(own).clone())
        }
        Json::Array(values) => values.iter().map(|value| fill(value, bound)).collect(),
        Json::Object(fields) => {
            let filled = fields
                .iter()
                .map(|(key, value)| (key.clone(), fill(value, bound)));
            Json::Object(filled.collect())
        }
        other => other.clone(),
    }
}

/// Compares values and assigns the placeholders. Lists are compared without regard to order, because Kong's order
/// varies.
fn differ(wanted: &Json, found: &Json, bound: &mut Bound, at: &str) -> Result<(), String> {
    match (wanted, found) {
        (Json::String(text), _) if text == "<any>" => Ok(()),
        (Json::String(text), Json::Number(_)) if text == "<ts>" => Ok(()),
        (Json::String(text), Json::String(found)) => same_text(text, found, bound, at),
        (Json::Object(wanted), Json::Object(found)) => {
            let mut left: Vec<_> = found.iter().collect();
            for (key, value) in wanted {
                let mut problem = format!("{at}.{key}: missing");
                let position = left.iter().position(|(name, found)| {
                    let mut trial = bound.clone();
                    let same = same_text(key, name, &mut trial, at)
                        .and_then(|()| differ(value, found, &mut trial, &format!("{at}.{key}")));
                    match same {
                        Ok(()) => *bound = trial,
                        Err(ref text) if name == &key || key.starts_with('<') => {
                            problem = text.clone()
                        }
                        Err(_) => {}
                    }
                    same.is_ok()
                });
                left.remove(position.ok_or(problem)?);
            }
            match left.first() {
                Some((key, value)) => Err(format!("{at}.{key}: unexpected {value}")),
                None => Ok(()),
            }
        }
        (Json::Array(wanted), Json::Array(found)) if wanted.len() == found.len() => {
            let mut left: Vec<_> = found.iter().collect();
            for value in wanted {
                let mut problem = String::new();
                let position = left.iter().position(|found| {
                    let mut trial = bound.clone();
                    let same = differ(value, found, &mut trial, at);
                    match &same {
                        Ok(()) => *bound = trial,
                        Err(text) => problem.push_str(text),
                    }
                    same.is_ok()
                });
                left.remove(position.ok_or(problem)?);
            }
            Ok(())
        }
        _ if wanted == found => Ok(()),
        _ => Err(format!("{at}: {found}, not {wanted}")),
    }
}

fn same_text(wanted: &str, found: &str, bound: &mut Bound, at: &str) -> Result<(), String> {
    let problem = || format!("{at}: {found:?}, not {wanted:?}");
    let Some((before, rest)) = wanted.split_once('<') else {
        return if wanted == found {
            Ok(())
        } else {
            Err(problem())
        };
    };
    let Some((name, after)) = rest.split_once('>') else {
        return if wanted == found {
            Ok(())
        } else {
            Err(problem())
        };
    };
    let value = found
        .strip_prefix(before)
        .and_then(|rest| rest.strip_suffix(after))
        .ok_or_else(problem)?;
    let known = bound
        .entry(format!("<{name}>"))
        .or_insert_with(|| value.to_owned());
    if known == value {
        Ok(())
    } else {
        Err(problem())
    }
}
