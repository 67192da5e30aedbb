//! Compares the oracle of the `traditional` flavor with decisions recorded from Kong. The other tests compare the
//! oracle only with the router.

use model::entities::{Route, RouteId};
use oracle::{Drawn, Engines, Sample, Traditional, numbered};
use router::{Flavor, Options, Scheme};
use serde_json::Value;

const ROUTER: &str = include_str!("../../../router/tests/data/router-vectors.json");

#[test]
fn the_oracle_of_the_traditional_flavor_decides_as_kong() {
    let vectors: Value = serde_json::from_str(ROUTER).expect("the vectors are JSON");
    let options = Options {
        flavor: Flavor::Traditional,
        ..Options::default()
    };
    let mut problems = Vec::new();
    let mut seen = 0;
    for group in list(&vectors["groups"]) {
        let in_flavor = list(&group["flavors"])
            .iter()
            .any(|own| own == "traditional");
        if group["subsystem"] != "http" || !in_flavor {
            continue;
        }
        let settings = list(&group["routes"]);
        let routes: Vec<_> = settings
            .iter()
            .map(|route| Drawn::from(read_route(route)))
            .collect();
        let oracle = Traditional::new(numbered(&routes), options);
        let mut engines = Engines::new(Flavor::Traditional);
        for vector in list(&group["vectors"]) {
            seen += 1;
            let expected = match &vector["expect_by_flavor"] {
                Value::Object(by_flavor) => &by_flavor["traditional"],
                _ => &vector["expect"],
            };
            let answer = oracle.decide(&read_request(&vector["request"]), &mut engines);
            let route = answer
                .as_ref()
                .map(|answer| &settings[answer.route.0 as usize]["name"]);
            let prefix = answer.as_ref().and_then(|answer| answer.prefix.as_deref());
            let prefix = prefix.map(|prefix| String::from_utf8_lossy(prefix).into_owned());
            let wanted = expected["matched_prefix"].as_str();
            if route.unwrap_or(&Value::Null) != &expected["route"] || prefix.as_deref() != wanted {
                problems.push(format!("{}: {answer:?}, not {expected}", vector["id"]));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert_eq!(seen, 339);
}

fn read_request(request: &Value) -> Sample {
    let uri = text(&request["uri"]);
    let path = uri.split_once('?').map_or(uri, |(path, _)| path);
    let mut headers = Vec::new();
    for (name, values) in request["headers"].as_object().into_iter().flatten() {
        for value in list(values) {
            headers.push((name.clone().into_bytes(), text(value).as_bytes().to_vec()));
        }
    }
    Sample {
        method: text(&request["method"]).to_owned(),
        host: request["host"]
            .as_str()
            .map(|host| host.as_bytes().to_vec()),
        scheme: match request["scheme"].as_str() {
            Some("https") => Scheme::Https,
            _ => Scheme::Http,
        },
        sni: request["sni"].as_str().map(str::to_owned),
        headers,
        ..Sample::get(path.as_bytes())
    }
}

fn read_route(settings: &Value) -> Route {
    let texts = |name: &str| texts(&settings[name]);
    let headers = settings["headers"].as_object().into_iter().flatten();
    let headers = headers.map(|(name, values)| {
        let values = list(values).iter().map(|value| text(value).into());
        (name.as_str().into(), values.collect())
    });
    let id = RouteId(uuid::Uuid::try_parse(text(&settings["id"])).expect("an id"));
    Route {
        created_at: settings["created_at"].as_i64().unwrap_or(0),
        methods: texts("methods").into_iter().map(Into::into).collect(),
        hosts: texts("hosts").into_iter().map(Into::into).collect(),
        paths: texts("paths").into_iter().map(Into::into).collect(),
        snis: texts("snis").into_iter().map(Into::into).collect(),
        headers: headers.collect(),
        regex_priority: settings["regex_priority"].as_i64(),
        strip_path: settings["strip_path"] == true,
        ..Route::blank(id)
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn texts(value: &Value) -> Vec<&str> {
    list(value).iter().map(text).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}
