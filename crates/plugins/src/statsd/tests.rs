//! Tests of the plugin: names, tags, and what is sent.

use super::def;
use crate::statistics::Facts;
use crate::testing::{case, datagram, udp_server};
use model::entities::ConsumerId;
use plugin::{Consumer, EntityRef, Node, Plugin};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::time::{Duration, SystemTime};
use uuid::Uuid;

fn consumer() -> Consumer {
    Consumer {
        id: ConsumerId(Uuid::from_u128(1)),
        username: Some("bo.b".into()),
        custom_id: Some("x|y:z".into()),
    }
}

fn facts<'a>(node: &'a Node, consumer: &'a Consumer) -> Facts<'a> {
    Facts {
        node,
        started_at: SystemTime::UNIX_EPOCH,
        status: 201,
        request_size: 69,
        response_size: 250,
        latency: 7,
        kong_latency: 2,
        upstream_latency: Some(4),
        route: Some(EntityRef {
            id: Uuid::from_u128(6),
            name: Some("r"),
        }),
        service: Some(EntityRef {
            id: Uuid::from_u128(5),
            name: Some("s.1"),
        }),
        consumer: Some(consumer),
    }
}

fn lines(config: Value, facts: &Facts<'_>) -> Vec<String> {
    let config = crate::testing::config("statsd", config);
    let built = crate::testing::built(|cx| super::Statsd::build(config, cx));
    let mut out = String::new();
    built.unwrap().lines.write(facts, &mut out);
    out.lines().map(str::to_owned).collect()
}

#[test]
fn the_default_statistics_name_the_service_and_the_consumer() {
    let (node, consumer) = (Node::bare().unwrap(), consumer());
    let workspace = node.entities.workspace();
    let all = lines(json!({}), &facts(&node, &consumer));
    let expected = [
        "kong.service.s_1.request.count:1|c".to_owned(),
        "kong.service.s_1.latency:7|ms".to_owned(),
        "kong.service.s_1.request.size:69|c".to_owned(),
        "kong.service.s_1.status.201:1|c".to_owned(),
        "kong.service.s_1.response.size:250|c".to_owned(),
        "kong.service.s_1.user.uniques:x_y_z|s".to_owned(),
        "kong.service.s_1.user.x_y_z.request.count:1|c".to_owned(),
        "kong.service.s_1.upstream_latency:4|ms".to_owned(),
        "kong.service.s_1.kong_latency:2|ms".to_owned(),
        "kong.service.s_1.user.x_y_z.status.201:1|c".to_owned(),
        format!("kong.service.s_1.workspace.{workspace}.status.201:1|c"),
        "kong.route.00000000-0000-0000-0000-000000000006.user.x_y_z.status.201:1|c".to_owned(),
    ];
    assert_eq!(all, expected);
}

#[test]
fn what_a_request_does_not_have_is_not_sent() {
    let (node, consumer) = (Node::bare().unwrap(), consumer());
    let unmatched = Facts {
        upstream_latency: None,
        route: None,
        service: None,
        consumer: None,
        ..facts(&node, &consumer)
    };
    let metrics = json!([
        {"name": "upstream_latency", "stat_type": "timer"}, {"name": "unique_users", "stat_type": "set"},
        {"name": "status_count_per_user_per_route", "stat_type": "counter", "sample_rate": 1},
        {"name": "request_count", "stat_type": "counter", "sample_rate": 0.25}
    ]);
    let config = json!({"metrics": metrics, "prefix": "a.b"});
    let all = lines(config, &unmatched);
    assert_eq!(all, ["a.b.global.unmatched.request.count:1|c|@0.25"]);
}

#[test]
fn only_allowed_status_codes_are_counted() {
    let (node, consumer) = (Node::bare().unwrap(), consumer());
    let metrics = json!([
        {"name": "status_count", "stat_type": "counter", "sample_rate": 1},
        {"name": "status_count_per_user", "stat_type": "counter", "sample_rate": 1},
        {"name": "request_size", "stat_type": "gauge", "sample_rate": 1}
    ]);
    let count = |allowed: Value, status: u16| {
        let facts = Facts {
            status,
            ..facts(&node, &consumer)
        };
        lines(
            json!({"metrics": metrics, "allow_status_codes": allowed}),
            &facts,
        )
        .len()
    };
    let ranges = json!(["200-204", "400-403", "500-99999"]);
    for (status, counted) in [(199, 1), (200, 3), (204, 3), (205, 1), (403, 3), (599, 3)] {
        assert_eq!(count(ranges.clone(), status), counted, "{status}");
    }
    assert_eq!(count(Value::Null, 205), 3);
}

#[test]
fn tags_have_the_form_of_each_style() {
    let (node, consumer) = (Node::bare().unwrap(), consumer());
    let facts = facts(&node, &consumer);
    let line = |style: &str| {
        let metrics = json!([
            {"name": "request_size", "stat_type": "counter", "sample_rate": 0.5, "workspace_identifier": "workspace_name"},
            {"name": "unique_users", "stat_type": "set"}
        ]);
        let config = json!({"tag_style": style, "metrics": metrics, "hostname_in_prefix": true});
        let [line] = lines(config, &facts).try_into().unwrap();
        line
    };
    let equals = "service=s.1,route=r,workspace=default,consumer=x_y_z,node=node.test,status=201";
    let colons = equals.replace('=', ":");
    assert_eq!(
        line("dogstatsd"),
        format!("kong.request.size:69|c|@0.5|#{colons}")
    );
    assert_eq!(
        line("influxdb"),
        format!("kong.request.size,{equals}:69|c|@0.5")
    );
    assert_eq!(
        line("librato"),
        format!("kong.request.size#{equals}:69|c|@0.5")
    );
    assert_eq!(
        line("signalfx"),
        format!("kong.request.size[{equals}]:69|c|@0.5")
    );
}

#[test]
fn the_host_is_a_part_of_the_prefix_if_wanted() {
    let (node, consumer) = (Node::bare().unwrap(), consumer());
    let metrics = json!([{"name": "latency", "stat_type": "histogram"}]);
    let config = json!({"metrics": metrics, "hostname_in_prefix": true});
    let expected = "kong.node.node_test.service.s_1.latency:7|h";
    assert_eq!(lines(config, &facts(&node, &consumer)), [expected]);
}

#[test]
fn shared_dictionaries_are_reported_once_a_minute() {
    let (node, consumer) = (Node::bare().unwrap(), consumer());
    let metrics = json!([{"name": "shdict_usage", "stat_type": "gauge", "sample_rate": 1}]);
    let config = crate::testing::config("statsd", json!({"metrics": metrics}));
    let built = crate::testing::built(|cx| super::Statsd::build(config, cx));
    let built = built.unwrap();
    let at = |seconds: u64| {
        let mut out = String::new();
        let facts = Facts {
            started_at: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            ..facts(&node, &consumer)
        };
        built.lines.write(&facts, &mut out);
        out
    };
    let first = at(1_000_000);
    assert!(
        first.contains(".shdict.kong.capacity:5242880|g\n"),
        "{first}"
    );
    assert!(first.contains(".shdict.kong.free_space:"), "{first}");
    assert_eq!(at(1_000_059), "");
    assert_eq!(at(1_000_060), first);
}

#[test]
fn lines_go_by_udp_or_tcp() {
    let server = udp_server();
    let metrics = json!([
        {"name": "request_count", "stat_type": "counter", "sample_rate": 1},
        {"name": "status_count", "stat_type": "counter", "sample_rate": 1}
    ]);
    let port = server.local_addr().unwrap().port();
    let packed =
        json!({"host": "127.0.0.1", "port": port, "metrics": metrics, "udp_packet_size": 1000});
    let packed = case(def(), packed);
    packed.request("GET /").run_now();
    assert_eq!(datagram(&server).lines().count(), 2);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let tcp = json!({"host": "127.0.0.1", "port": port, "metrics": metrics, "use_tcp": true});
    let tcp = case(def(), tcp);
    tcp.request("GET /").run_now();
    let stream = BufReader::new(listener.accept().unwrap().0);
    let lines: Vec<String> = stream.lines().take(2).map(Result::unwrap).collect();
    assert!(lines[0].ends_with("request.count:1|c") && lines[1].ends_with("status.200:1|c"));
}
