//! Exchanges recorded from Kong 3.9.1 without a database.

use crate::compare::{Bound, differ, fill, fill_text};
use crate::fake::Api;
use serde_json::Value;

/// What Kong answers wrongly, and how this answers instead.
const DEVIATIONS: [(&str, usize, u16); 1] = [
    // Filtering by tags is an internal error when some entity has none.
    ("read only", 23, 200),
];

#[tokio::test]
async fn recorded_exchanges_without_a_database_are_answered_alike() {
    let sections: Vec<Value> = serde_json::from_str(include_str!("../data/dbless.json")).unwrap();
    let api = Api::off();
    let (mut bound, mut compared, mut failures) = (Bound::new(), 0, Vec::new());
    for section in &sections {
        let name = section["section"].as_str().unwrap();
        for (index, item) in section["exchanges"].as_array().unwrap().iter().enumerate() {
            let answer = replay(&api, &item["request"], &mut bound).await;
            if item["response"].is_null() {
                continue;
            }
            compared += 1;
            let deviation = DEVIATIONS
                .iter()
                .find(|(section, number, _)| *section == name && *number == index + 1);
            let outcome = match deviation {
                Some((_, _, status)) if answer.status == *status => Ok(()),
                Some(_) => Err("deviates otherwise than it should".to_owned()),
                None => check(&item["response"], &answer, &mut bound),
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
    assert_eq!(compared, 78);
}

async fn replay(api: &Api, request: &Value, bound: &mut Bound) -> crate::fake::Answer {
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
    let method = request["method"].as_str().unwrap();
    api.send(method, &path, &headers, body).await
}

fn check(wanted: &Value, answer: &crate::fake::Answer, bound: &mut Bound) -> Result<(), String> {
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
