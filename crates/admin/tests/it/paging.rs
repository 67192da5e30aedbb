//! Reads lists page by page while entities are created and deleted. Every entity that exists the whole time must be
//! listed exactly once.

use crate::fake::{Api, FakeResponse};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Number of entities that are never deleted. As many others may be deleted.
const STAYING: usize = 12;

async fn create(api: &Api, path: &str, body: &Value) -> String {
    let answer = api.json("POST", path, body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// A list, and how to write to it.
struct List {
    path: &'static str,
    /// Path of the collection to which the test writes.
    collection: &'static str,
    /// Returns the n-th entity of the collection.
    entity: fn(usize) -> Value,
    /// Name of the field that contains the id in an entry of the list.
    id: &'static str,
}

/// Reads the list to its end in small pages. After each page it creates an entity. It also deletes the last entity on
/// the page if that entity may be deleted. The next page then starts after a deleted entity.
async fn read_while_written(api: &Api, list: &List) {
    let mut ids = Vec::new();
    for n in 0..2 * STAYING {
        ids.push(create(api, list.collection, &(list.entity)(n)).await);
    }
    let staying: Vec<String> = ids.into_iter().step_by(2).collect();
    let mut shown: HashMap<String, usize> = HashMap::new();
    let (mut next, mut created) = (Some(list.path.to_owned()), 2 * STAYING);
    while let Some(path) = next {
        let page: FakeResponse = api.get(&with_size(&path)).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        let page = page.json();
        let entries = page["data"].as_array().unwrap();
        for entry in entries {
            *shown
                .entry(entry[list.id].as_str().unwrap().to_owned())
                .or_default() += 1;
        }
        let last = entries.last().map(|entry| entry[list.id].as_str().unwrap());
        if let Some(last) = last.filter(|last| !staying.iter().any(|one| one == last)) {
            let path = format!("{}/{last}", list.collection);
            assert_eq!(api.send("DELETE", &path, &[], "").await.status, 204);
        }
        create(api, list.collection, &(list.entity)(created)).await;
        created += 1;
        assert!(created < 10 * STAYING, "{} has no end", list.path);
        next = page["next"].as_str().map(str::to_owned);
    }
    for id in &staying {
        assert_eq!(shown.get(id), Some(&1), "{} of {}", id, list.path);
    }
    assert!(shown.values().all(|times| *times == 1), "{}", list.path);
}

/// Adds the page size if it is missing. As in Kong, `next` of nested lists does not repeat the size.
fn with_size(path: &str) -> String {
    match path {
        path if path.contains("size=") => path.to_owned(),
        path if path.contains('?') => format!("{path}&size=3"),
        path => format!("{path}?size=3"),
    }
}

#[tokio::test]
async fn entities_that_exist_throughout_are_listed_once() {
    let api = Api::lmdb();
    create(&api, "/services", &json!({ "name": "s", "host": "a.test" })).await;
    create(&api, "/upstreams", &json!({ "name": "u" })).await;
    let lists = [
        List {
            path: "/consumers",
            collection: "/consumers",
            entity: |n| json!({ "username": format!("all-{n}") }),
            id: "id",
        },
        List {
            path: "/consumers?tags=some",
            collection: "/consumers",
            entity: |n| json!({ "username": format!("some-{n}"), "tags": ["some"] }),
            id: "id",
        },
        List {
            path: "/consumers?tags=one,two",
            collection: "/consumers",
            entity: |n| json!({ "username": format!("both-{n}"), "tags": ["one", "two"] }),
            id: "id",
        },
        List {
            path: "/consumers?tags=three/four",
            collection: "/consumers",
            entity: |n| json!({ "username": format!("any-{n}"), "tags": [if n % 2 == 0 { "three" } else { "four" }] }),
            id: "id",
        },
        List {
            path: "/services/s/routes",
            collection: "/services/s/routes",
            entity: |n| json!({ "paths": [format!("/{n}")] }),
            id: "id",
        },
        List {
            path: "/upstreams/u/targets",
            collection: "/upstreams/u/targets",
            entity: |n| json!({ "target": format!("a{n}.test:80") }),
            id: "id",
        },
        List {
            path: "/upstreams/u/targets/all",
            collection: "/upstreams/u/targets",
            entity: |n| json!({ "target": format!("b{n}.test:80") }),
            id: "id",
        },
        List {
            path: "/tags/tagged",
            collection: "/consumers",
            entity: |n| json!({ "username": format!("tagged-{n}"), "tags": ["tagged"] }),
            id: "entity_id",
        },
    ];
    for list in lists {
        read_while_written(&api, &list).await;
    }
}

#[tokio::test]
async fn links_to_next_pages_keep_the_name_in_the_path() {
    let api = Api::lmdb();
    let service = create(
        &api,
        "/services",
        &json!({ "name": "s~ü", "host": "a.test" }),
    )
    .await;
    let upstream = create(&api, "/upstreams", &json!({ "name": "u" })).await;
    for n in 0..2 {
        let path = format!("/services/{service}/routes");
        create(&api, &path, &json!({ "paths": [format!("/{n}")] })).await;
        let target = json!({ "target": format!("a{n}.test:80") });
        create(&api, "/upstreams/u/targets", &target).await;
    }
    for path in [
        "/services/s~%C3%BC/routes",
        &format!("/services/{service}/routes"),
        "/upstreams/u/targets",
        "/upstreams/u/targets/all",
        "/upstreams/u/health",
        &format!("/upstreams/{upstream}/targets"),
    ] {
        let page = api.get(&format!("{path}?size=1")).await.json();
        let next = page["next"].as_str().unwrap();
        assert!(next.starts_with(&format!("{path}?offset=")), "{next}");
        assert_eq!(api.get(next).await.status, 200, "{next}");
    }
}

#[tokio::test]
async fn offsets_that_are_no_base64_are_refused_in_every_mode() {
    for (api, json_offset) in [(Api::lmdb(), 400), (Api::off(), 200)] {
        for (path, encoding, status) in [
            ("/consumers?offset=x", "base64", 400),
            ("/consumers?offset=zzz", "json", json_offset),
            ("/tags?offset=x", "base64", 400),
            ("/tags?offset=zzz", "json", 400),
        ] {
            let answer = api.get(path).await;
            assert_eq!(answer.status, status, "{path}: {}", answer.text);
            if status == 400 {
                let text = path.split('=').next_back().unwrap();
                let message = format!("'{text}' is not a valid offset: bad {encoding} encoding");
                assert_eq!(answer.json()["message"], message);
            }
        }
    }
}
