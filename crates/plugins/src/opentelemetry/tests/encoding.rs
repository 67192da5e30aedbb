//! Tests of the messages: what is written by hand is read by prost.

use super::super::lines;
use super::super::protobuf::{self, Attribute, Envelope, TextKey};
use super::super::spans::{Address, Ids, show_status};
use proptest::prelude::*;
use prost::Message;
use services::log_lines::LogLine;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, UNIX_EPOCH};
use testkit::otlp::{self, KeyValue, Value};

fn key_value(bytes: &[u8]) -> KeyValue {
    // The field that the attribute is in has the number 1, as in a resource.
    let mut list = otlp::Resource::decode(bytes).unwrap().attributes;
    assert_eq!(list.len(), 1);
    list.remove(0)
}

fn read(key: &str, value: Attribute<'_>) -> KeyValue {
    let mut out = Vec::new();
    protobuf::attribute(1, key, value, &mut out);
    key_value(&out)
}

proptest! {
    #[test]
    fn attributes_are_read_as_they_were_written(
        key in ".{0,200}", text in prop::collection::vec(any::<u8>(), 0..20_000).prop_map(|text| protobuf::text(&text).into_owned()), number in any::<f64>(),
    ) {
        let found = read(&key, Attribute::Text(&text));
        prop_assert_eq!(&found.key, &key);
        prop_assert_eq!(found.value.unwrap().value.unwrap(), Value::Text(text.clone()));
        let mut out = Vec::new();
        TextKey::new(1, "known.key").write(text.as_bytes(), &mut out);
        let found = key_value(&out);
        prop_assert_eq!(&found.key, "known.key");
        prop_assert_eq!(found.value.unwrap().value.unwrap(), Value::Text(text));
        let Some(Value::Number(found)) = read(&key, Attribute::Number(number)).value.unwrap().value else {
            panic!("a number");
        };
        prop_assert_eq!(found.to_bits(), number.to_bits());
    }

    #[test]
    fn entries_of_any_length_are_joined(
        lengths in prop::collection::vec(0_usize..40_000, 0..5), expected in 1_usize..3,
    ) {
        let mut entries = Vec::new();
        for length in &lengths {
            let name = "x".repeat(*length);
            // A wrong guess of the length makes no difference.
            protobuf::message(protobuf::ENTRY, expected, &mut entries, |out| {
                protobuf::bytes(5, name.as_bytes(), out);
            });
        }
        let mut body = Envelope::new([("a", "b")].into_iter()).around(entries.len());
        body.extend_from_slice(&entries);
        let found: Vec<_> = otlp::spans(&body).iter().map(|span| span.name.len()).collect();
        prop_assert_eq!(found, lengths);
    }
}

#[test]
fn addresses_have_their_usual_text() {
    for octet in 0..=255 {
        for place in 0..4 {
            let mut octets = [255, 0, 10, 9];
            octets[place] = octet;
            let address = IpAddr::from(octets);
            assert_eq!(Address::of(address).text(), address.to_string().as_bytes());
        }
    }
    let mapped = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped();
    assert_eq!(Address::of(mapped.into()).text(), b"192.0.2.1");
    let address: IpAddr = "2001:db8::1".parse().unwrap();
    assert_eq!(Address::of(address).text(), b"2001:db8::1");
}

#[test]
fn a_status_is_a_number() {
    for status in 100..1000 {
        let mut out = Vec::new();
        show_status(status, &mut out);
        // The field of a span's attributes has the number 9, that of a resource's 1.
        out[0] = 1 << 3 | 2;
        let found = key_value(&out);
        assert_eq!(found.key, "http.status_code");
        assert_eq!(
            found.value.unwrap().value,
            Some(Value::Integer(status.into()))
        );
    }
}

#[test]
fn a_line_of_the_log_is_a_record() {
    let line = LogLine {
        time: UNIX_EPOCH + Duration::from_nanos(1_234_567_890),
        level: 5,
        text: "careful".into(),
        request_id: Some("ab".into()),
        source_line: Some(7),
    };
    let ids = Ids {
        trace: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
        root: 9,
        parent: None,
        last_try: 3,
    };
    let mut out = Vec::new();
    lines::write(&line, Some((ids, true)), &mut out);
    assert_eq!(out[0], protobuf::tag_of_bytes(protobuf::ENTRY));
    let record = otlp::LogRecord::decode_length_delimited(&out[1..]).unwrap();
    assert_eq!(
        (record.severity_number, &*record.severity_text),
        (13, "WARN")
    );
    assert_eq!(
        (record.time, record.observed_time),
        (1_234_567_890, 1_234_567_890)
    );
    assert_eq!(
        record.body.unwrap().value,
        Some(Value::Text("careful".into()))
    );
    let attributes = otlp::attributes(&record.attributes);
    assert_eq!(attributes["request.id"], Value::Text("ab".into()));
    assert_eq!(attributes["introspection.current.line"], Value::Number(7.0));
    assert_eq!(
        (record.flags, record.trace_id.len(), record.span_id[7]),
        (1, 16, 9)
    );
}
