//! Tests of the plugin: the message around a record.

use super::{def, middle};
use crate::testing::{case, datagram, udp_server};
use serde_json::{Value, json};

#[test]
fn a_record_is_a_message_with_the_key_and_the_tags() {
    let server = udp_server();
    let port = server.local_addr().unwrap().port();
    let config = json!({"host": "127.0.0.1", "port": port, "key": "0123-key", "tags": ["b"]});
    let case = case(def(), config);
    case.request("GET /1").run_now();
    let text = datagram(&server);
    let (head, record) = text.split_at(text.find('{').unwrap());
    let words: Vec<&str> = head.split(' ').collect();
    assert_eq!(words[0], "<14>1");
    assert_eq!(words[1].len(), "2026-01-01T00:00:00Z".len());
    assert_eq!(words[3..6], ["kong", "-", "-"]);
    assert_eq!(words[6..], ["[0123-key@41058", "tag=\"b\"]", ""]);
    let record: Value = serde_json::from_str(record).unwrap();
    assert_eq!(record["request"]["uri"], "/1");
}

#[test]
fn tags_and_keys_stay_within_their_places() {
    let tags = ["a\"]\\".to_owned(), "b\nc".to_owned()];
    let text = middle("ho st", "k\ne]y", &tags);
    let expected = r#" ho_st kong - - [k_e_y@41058 tag="a\"\]\\" tag="b_c"] "#;
    assert_eq!(text, expected);
}
