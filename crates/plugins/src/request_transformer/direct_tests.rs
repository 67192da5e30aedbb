use super::super::View;
use super::super::tests::{NoLua, transformer};
use net::http1::{Limits, RequestHead};
use plugin::Request;
use proptest::prelude::*;
use serde_json::json;

const NAMES: [&str; 5] = ["X-A", "x-b", "x_c", "host", "X-a"];
const VALUES: [&str; 3] = ["1", "a longer value, which needs memory", "$(headers.x_b)"];

/// Pairs of a name and a value, at most `most`.
fn pairs(most: usize) -> impl Strategy<Value = Vec<String>> {
    let pair = (prop::sample::select(&NAMES), prop::sample::select(&VALUES));
    let text = pair.prop_map(|(name, value)| format!("{name}:{value}"));
    prop::collection::vec(text, 0..=most)
}

fn names() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(&NAMES), 0..=2)
}

/// The headers that the upstream gets.
fn sent(request: &Request<'_>) -> Vec<(String, Vec<u8>)> {
    let pairs = request.header_pairs();
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_vec()))
        .collect()
}

proptest! {
    #[test]
    fn rules_that_are_applied_directly_do_what_they_do_otherwise(
        remove in names(), add in pairs(2), append in pairs(2),
        lines in pairs(3), removed_before in names(), added_before in names(),
    ) {
        let config = json!({
            "remove": {"headers": remove}, "add": {"headers": add}, "append": {"headers": append},
        });
        let transformer = transformer(&config.to_string()).expect("it is built");
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", lines.replace("host:", "x-d:"));
        let (head, _) = RequestHead::parse(head.as_bytes(), &Limits::default())
            .expect("well formed")
            .expect("complete");
        let fresh = || {
            let mut request = Request::bare(&head);
            let headers = &mut request.upstream.headers;
            removed_before.iter().for_each(|name| headers.remove(*name));
            added_before.iter().for_each(|name| headers.add(*name, "before"));
            request
        };
        let Some(direct) = &transformer.direct else {
            return Ok(());
        };
        let (mut one, mut other) = (fresh(), fresh());
        direct.apply(&mut one);
        let edits = transformer.compute(&View {
            request: &other,
            shared: &model::Object::new(),
            interpreter: &NoLua,
        });
        edits.expect("the rules need nothing").apply(&mut other);
        prop_assert_eq!(sent(&one), sent(&other));
    }
}

#[test]
fn rules_are_applied_directly_unless_they_depend_on_something() {
    let is_direct = |config: serde_json::Value| {
        let transformer = transformer(&config.to_string()).expect("it is built");
        transformer.direct.is_some()
    };
    assert!(is_direct(json!({
        "remove": {"headers": ["x-a"]}, "add": {"headers": ["x-b:1"]}, "append": {"headers": ["x-c:2"]},
    })));
    let others = [
        json!({"add": {"headers": ["x-a:$(headers.host)"]}}),
        json!({"add": {"headers": ["x_a:1"]}}),
        json!({"add": {"headers": ["host:a"]}}),
        json!({"add": {"headers": ["x-a:1"]}, "remove": {"headers": ["X-A"]}}),
        json!({"add": {"headers": ["x-a:1"]}, "http_method": "PUT"}),
        json!({"add": {"headers": ["x-a:1"], "querystring": ["a:1"]}}),
        json!({"add": {"headers": ["x-a:1"]}, "rename": {"headers": ["x-b:x-c"]}}),
        json!({"add": {"headers": ["x-a:1"]}, "replace": {"uri": "/"}}),
    ];
    for config in others {
        assert!(!is_direct(config.clone()), "{config}");
    }
}
