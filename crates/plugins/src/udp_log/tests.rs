//! Tests of the plugin.

use super::def;
use crate::testing::{case, datagram, udp_server};
use serde_json::{Value, json};

#[test]
fn a_record_is_a_datagram_without_a_line_end() {
    let server = udp_server();
    let port = server.local_addr().unwrap().port();
    let fields = json!({"pad": "return ('z'):rep(20000)"});
    let config = json!({"host": "127.0.0.1", "port": port, "custom_fields_by_lua": fields});
    let case = case(def(), config);
    for uri in ["/1", "/2"] {
        case.request(&format!("GET {uri}")).run_now();
        let text = datagram(&server);
        assert!(text.ends_with('}'));
        let record: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(record["request"]["uri"], uri);
        assert_eq!(record["pad"].as_str().unwrap().len(), 20_000);
    }
}
