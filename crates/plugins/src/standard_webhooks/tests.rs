//! Tests of standard-webhooks.

use super::*;
use crate::testing::case;
use plugin::testing::{Call, Case};
use serde_json::json;

/// The time of the node's clock in tests.
const NOW: i64 = 1_700_000_000;
const BODY: &str = "{\"type\":\"x\"}";

fn webhooks() -> Case {
    case(
        def(),
        json!({"secret_v1": "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}),
    )
}

fn signature(id: &str, time: &str, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let tag = hmac::sign(&key, format!("{id}.{time}.{body}").as_bytes());
    format!("v1,{}", BASE64.encode(tag.as_ref()))
}

fn message<'c>(case: &'c Case, time: &str, signature: &str) -> Call<'c> {
    case.request("POST /")
        .header("webhook-id", "msg_1")
        .header("webhook-timestamp", time)
        .header("webhook-signature", signature)
        .body(BODY)
}

fn status(call: Call<'_>) -> u16 {
    call.run_now().client.status
}

/// The example of the specification's reference libraries.
#[test]
fn the_signature_is_that_of_the_standard() {
    let key = BASE64
        .decode(b"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        .expect("base64");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let webhooks = StandardWebhooks {
        key,
        tolerance: 0.0,
    };
    let message = Message {
        id: b"msg_p5jXN8AQM9LWM0D4loKWxJek",
        signature: b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        time: 1_614_265_330.0,
    };
    assert!(webhooks.has_signed(&message, b"{\"test\": 2432232314}"));
    assert!(!webhooks.has_signed(&message, b"{\"test\": 2432232315}"));
}

#[test]
fn a_signed_message_of_the_last_minutes_passes() {
    let case = webhooks();
    for (age, wanted) in [(0, 200), (300, 200), (301, 400), (-100_000, 200)] {
        let time = (NOW - age).to_string();
        let call = message(&case, &time, &signature("msg_1", &time, BODY));
        assert_eq!(status(call), wanted, "{age}");
    }
    let time = NOW.to_string();
    let outcome = message(&case, &time, &signature("msg_1", &time, BODY)).run_now();
    assert_eq!(outcome.sent().text(), BODY);
}

#[test]
fn the_number_is_signed_and_not_its_text() {
    let case = webhooks();
    let right = signature("msg_1", "1700000000", BODY);
    for (text, wanted) in [
        ("1700000000.0", 200),
        ("01.7e9", 200),
        ("0x6553F100", 200),
        ("1700000001", 400),
        ("nan", 400),
        ("soon", 400),
        ("0x", 400),
        ("0x+1", 400),
    ] {
        assert_eq!(status(message(&case, text, &right)), wanted, "{text}");
    }
    for (text, signed) in [("nan", "nan"), ("soon", "0"), ("1e15", "1e+15")] {
        let call = message(&case, text, &signature("msg_1", signed, BODY));
        let wanted = if text == "1e15" { 200 } else { 400 };
        assert_eq!(status(call), wanted, "{text}");
    }
}

#[test]
fn a_wrong_signature_is_a_bad_request() {
    let case = webhooks();
    let time = NOW.to_string();
    let right = signature("msg_1", &time, BODY);
    let others = [
        signature("msg_2", &time, BODY),
        signature("msg_1", &time, "x"),
        right.replacen("v1", "v2", 1),
        format!("{right} {right}"),
        right.trim_end_matches('=').to_owned(),
        "v1,".to_owned(),
    ];
    for other in others {
        let outcome = message(&case, &time, &other).run_now();
        assert_eq!(outcome.client.status, 400, "{other}");
    }
}

#[test]
fn headers_and_body_are_required() {
    let case = webhooks();
    let time = NOW.to_string();
    let right = signature("msg_1", &time, "");
    let lines = [
        "webhook-id: msg_1".to_owned(),
        format!("webhook-timestamp: {time}"),
        format!("webhook-signature: {right}"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    for without in 0..3 {
        let mut some = lines.clone();
        some.remove(without);
        let call = case.request("POST /").lines(&some).body(BODY);
        assert_eq!(status(call), 400, "{without}");
    }
    assert_eq!(status(case.request("POST /").lines(&lines)), 400);
    let right = signature("msg_1", &time, BODY);
    assert_eq!(status(message(&case, &time, &right).too_large()), 400);
}
