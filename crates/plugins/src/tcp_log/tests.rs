//! Tests of the plugin: the records that a server gets, and the names of queues.

use super::{Config, def, queue_name};
use crate::testing::{self, case};
use plugin::Plugin;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;

#[test]
fn a_record_is_a_line_on_a_connection_that_is_kept() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let case = case(def(), json!({"host": "127.0.0.1", "port": port}));
    case.request("GET /1").run_now();
    let mut stream = BufReader::new(listener.accept().unwrap().0);
    for uri in ["/1", "/2"] {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let record: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(record["request"]["uri"], uri);
        case.request("GET /2").run_now();
    }
}

#[test]
fn plugins_share_a_queue_only_if_they_send_in_the_same_way() {
    let name = |json: Value| {
        let config: Config = testing::config("tcp-log", json);
        let built = crate::testing::built(|cx| super::TcpLog::build(config, cx));
        queue_name(&built.unwrap().server)
    };
    let plain = name(json!({"host": "a", "port": 1}));
    assert_eq!(plain, "a:1:10000:60000");
    assert_eq!(name(json!({"host": "a", "port": 1, "tls_sni": "b"})), plain);
    let tls = json!({"host": "a", "port": 1, "tls": true, "timeout": 5, "keepalive": -1});
    assert_eq!(name(tls), "a:1:tls:a:5:0");
    let verified = json!({"host": "a", "port": 1, "tls": true, "tls_sni": "b", "tls_verify": true});
    assert_eq!(name(verified), "a:1:tls:b:verified:10000:60000");
}
