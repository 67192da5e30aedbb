//! Tests of the plugin: the lines of a request.

use super::def;
use crate::statistics::Facts;
use crate::testing::{case, datagram, udp_server};
use model::entities::ConsumerId;
use plugin::testing::refusal;
use plugin::{Consumer, EntityRef, Node, Plugin};
use serde_json::{Value, json};
use std::time::SystemTime;
use uuid::Uuid;

#[test]
fn each_statistic_is_a_datagram_in_the_order_of_the_configuration() {
    let server = udp_server();
    let port = server.local_addr().unwrap().port();
    let case = case(def(), json!({"host": "127.0.0.1", "port": port}));
    case.request("GET /1").run_now();
    let names: Vec<String> = (0..6)
        .map(|_| datagram(&server).split(':').next().unwrap().to_owned())
        .collect();
    let expected = [
        "kong.request.count",
        "kong.latency",
        "kong.request.size",
        "kong.response.size",
        "kong.upstream_latency",
        "kong.kong_latency",
    ];
    assert_eq!(names, expected);
}

fn lines(config: Value, consumer: Option<&Consumer>, service: Option<&str>) -> String {
    let config = crate::testing::config("datadog", config);
    let built = crate::testing::built(|cx| super::Datadog::build(config, cx));
    let node = Node::bare().unwrap();
    let facts = Facts {
        node: &node,
        started_at: SystemTime::UNIX_EPOCH,
        status: 404,
        request_size: 69,
        response_size: 250,
        latency: 7,
        kong_latency: 2,
        upstream_latency: None,
        route: None,
        service: service.map(|name| EntityRef {
            id: Uuid::from_u128(5),
            name: Some(name),
        }),
        consumer,
    };
    let mut out = String::new();
    built.unwrap().write(&facts, &mut out);
    out
}

#[test]
fn names_of_clients_cannot_break_a_line_or_add_a_tag() {
    let consumer = Consumer {
        id: ConsumerId(Uuid::from_u128(1)),
        username: Some("a|b:c#d@e\r\nf,g h".into()),
        custom_id: None,
    };
    let metrics = json!([
        {"name": "request_size", "stat_type": "distribution", "tags": ["env:x", "a|b#c"],
         "consumer_identifier": "username"},
        {"name": "upstream_latency", "stat_type": "timer", "consumer_identifier": "custom_id"},
        {"name": "request_count", "stat_type": "counter", "sample_rate": 0.5,
         "consumer_identifier": "consumer_id"},
    ]);
    let config = json!({"prefix": "a\nb", "status_tag": "st", "metrics": metrics});
    let expected = "a_b.request.size:69|d|#name:s_x,st:404,consumer:a_b_c_d_e__f_g_h,env:x,a_b_c\n\
        a_b.upstream_latency:-1|ms|#name:s_x,st:404\n\
        a_b.request.count:1|c|@0.5|#name:s_x,st:404,consumer:00000000_0000_0000_0000_000000000001\n";
    assert_eq!(lines(config, Some(&consumer), Some("s.x")), expected);
}

#[test]
fn a_request_without_a_service_has_an_empty_name() {
    let metrics = json!([{"name": "latency", "stat_type": "timer"}]);
    let config = json!({"metrics": metrics});
    assert_eq!(
        lines(config, None, None),
        "kong.latency:7|ms|#name:,status:404\n"
    );
}

#[test]
fn a_vault_reference_is_refused() {
    crate::install();
    let error = refusal(&def(), json!({"host": "{vault://env/dd}"}));
    assert!(
        error.starts_with("host: it is a vault reference"),
        "{error}"
    );
}
