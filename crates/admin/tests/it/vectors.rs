//! Replays requests that were recorded with Kong 3.9.1, and compares the responses. The order is kept, because later
//! requests depend on earlier ones.

use crate::compare::{Bound, differ, fill, fill_text};
use crate::fake::{Api, FakeResponse};
use serde_json::Value;

/// A request and its response.
pub(crate) struct Exchange {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) answer: FakeResponse,
}

/// The exchanges, and how many of the responses were compared with responses of Kong.
pub(crate) struct Replayed {
    pub(crate) exchanges: Vec<Exchange>,
    compared: usize,
}

/// A request to which Kong responds wrongly: section, number in the section (from 1), and the status of Silverback's
/// response.
type Deviation = (&'static str, usize, u16);

#[tokio::test]
async fn exchanges_without_a_database_are_answered_as_recorded() {
    assert_eq!(replay_without_database(&Api::off()).await.compared, 78);
}

#[tokio::test]
async fn exchanges_with_a_database_are_answered_as_recorded() {
    assert_eq!(replay_with_database(&Api::lmdb()).await.compared, 160);
}

pub(crate) async fn replay_without_database(api: &Api) -> Replayed {
    // In Kong, filtering by tags fails with an internal error if an entity has no tags.
    let deviations = [("read only", 23, 200)];
    replay_all(api, include_str!("../data/dbless.json"), &deviations).await
}

pub(crate) async fn replay_with_database(api: &Api) -> Replayed {
    // In Kong, a JSON array as the body causes an internal error.
    let deviations = [("body formats", 9, 400)];
    replay_all(api, include_str!("../data/database.json"), &deviations).await
}

async fn replay_all(api: &Api, recorded: &str, deviations: &[Deviation]) -> Replayed {
    let sections: Vec<Value> = serde_json::from_str(recorded).unwrap();
    let (mut bound, mut compared, mut failures) = (Bound::new(), 0, Vec::new());
    let mut exchanges = Vec::new();
    for section in &sections {
        if section["fresh"] == true {
            bound = Bound::new();
        }
        let name = section["section"].as_str().unwrap();
        for (index, item) in section["exchanges"].as_array().unwrap().iter().enumerate() {
            exchanges.push(replay(api, &item["request"], &mut bound).await);
            let answer = &exchanges[exchanges.len() - 1].answer;
            if item["response"].is_null() {
                continue;
            }
            compared += 1;
            let deviation = deviations
                .iter()
                .find(|(section, number, _)| *section == name && *number == index + 1);
            let outcome = match deviation {
                Some((_, _, status)) if answer.status == *status => Ok(()),
                Some(_) => Err("deviates otherwise than it should".to_owned()),
                None => check(&item["response"], answer, &mut bound),
            };
            if let Err(problem) = outcome {
                failures.push(format!(
                    "{name} {}: {} {problem}",
                    index + 1,
                    item["request"]
                ));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {compared}:\n{}",
        failures.len(),
        failures.join("\n")
    );
    Replayed {
        exchanges,
        compared,
    }
}

async fn replay(api: &Api, request: &Value, bound: &mut Bound) -> Exchange {
    let path = fill_text(request["path"].as_str().unwrap(), bound);
    let headers: Vec<(String, String)> = request["headers"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
        .collect();
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let body = match &request["body"] {
        Value::Null => String::new(),
        Value::String(text) => fill_text(text, bound),
        body => fill(body, bound).to_string(),
    };
    let method = request["method"].as_str().unwrap().to_owned();
    let answer = api.send(&method, &path, &headers, body).await;
    Exchange {
        method,
        path,
        answer,
    }
}

fn check(wanted: &Value, answer: &FakeResponse, bound: &mut Bound) -> Result<(), String> {
    if wanted["status"] != answer.status {
        return Err(format!("status {}: {}", answer.status, answer.text));
    }
    for (name, value) in wanted["headers"].as_object().into_iter().flatten() {
        if value.as_str() != Some(answer.header(name)) {
            return Err(format!("header {name}: {}", answer.header(name)));
        }
    }
    differ(&wanted["body"], &answer.json(), bound, "body")
}
