//! Tests of what an exporter makes of answers.

use super::{Asked, answer, grpc, retry_after};
use ::http::header::RETRY_AFTER;
use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use bytes::Bytes;
use data_encoding::{BASE64, BASE64_NOPAD};
use services::http::{Body, Response, Url};
use services::queue::SendError;
use std::time::{Duration, SystemTime};

/// `google.rpc.Status` with `RetryInfo` of 2.5 seconds, after a detail of another type.
const DETAILS: &[u8] = b"\x08\x08\x12\x04full\
    \x1a\x1f\x0a\x1dtype.googleapis.com/other.One\
    \x1a\x36\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12\x0a\x0a\x08\x08\x02\x10\x80\xca\xb5\xee\x01";

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pairs = pairs.iter().map(|(name, value)| {
        let name = HeaderName::try_from(*name).unwrap();
        (name, HeaderValue::try_from(*value).unwrap())
    });
    pairs.collect()
}

fn response(status: u16, head: &[(&str, &str)], trailers: &[(&str, &str)]) -> Response {
    Response {
        status: StatusCode::from_u16(status).unwrap(),
        headers: headers(head),
        body: Bytes::from_static(b"\0\0\0\0\x02ok"),
        truncated: false,
        trailers: headers(trailers),
    }
}

fn asked(url: &str) -> Asked {
    Asked {
        url: Url::parse(url).expect("a URL"),
        headers: HeaderMap::new(),
    }
}

fn of_call(response: &Response) -> Result<&[u8], SendError> {
    grpc::answer(&asked("http://a.test:4317"), response, 7)
}

/// Returns the error for a status of gRPC without details.
fn of_status(status: &str) -> SendError {
    of_call(&response(200, &[], &[("grpc-status", status)])).unwrap_err()
}

#[test]
fn a_successful_call_returns_its_message() {
    let ok = response(200, &[], &[("grpc-status", "0")]);
    assert_eq!(of_call(&ok).unwrap(), b"ok");
    // A compressed message was not asked for.
    let compressed = Response {
        body: Bytes::from_static(b"\x01\0\0\0\x02ok"),
        ..ok.clone()
    };
    assert_eq!(of_call(&compressed).unwrap(), b"");
    let short = Response {
        body: Bytes::from_static(b"\0\0"),
        ..ok
    };
    assert_eq!(of_call(&short).unwrap(), b"");
}

#[test]
fn only_failures_that_can_pass_are_repeated() {
    let reason = |status: &str| {
        format!("call to a.test:4317 returned gRPC status {status} and message \"\"")
    };
    for status in ["1", "4", "10", "11", "14", "15"] {
        assert_eq!(of_status(status), SendError::new(reason(status)));
    }
    for status in ["2", "3", "5", "6", "7", "8", "9", "12", "13", "16", "99"] {
        assert_eq!(of_status(status), SendError::lost(7, reason(status)));
    }
    assert_eq!(of_status("what"), SendError::lost(7, reason("2")));
}

#[test]
fn a_status_can_be_in_the_headers_and_its_message_is_decoded() {
    let head = [("grpc-status", "14"), ("grpc-message", "not%20now")];
    let error = of_call(&response(200, &head, &[])).unwrap_err();
    let reason = "call to a.test:4317 returned gRPC status 14 and message \"not now\"";
    assert_eq!(error, SendError::new(reason));
}

#[test]
fn a_receiver_can_ask_for_a_pause() {
    let pause = Duration::from_millis(2500);
    for details in [BASE64.encode(DETAILS), BASE64_NOPAD.encode(DETAILS)] {
        // Without a pause, exhausted resources stay so.
        let trailers = [("grpc-status", "8"), ("grpc-status-details-bin", &*details)];
        let error = of_call(&response(200, &[], &trailers)).unwrap_err();
        let reason = "call to a.test:4317 returned gRPC status 8 and message \"\"";
        assert_eq!(error, SendError::new(reason).after(pause));
    }
    let trailers = [("grpc-status", "14"), ("grpc-status-details-bin", "CAgS*")];
    let error = of_call(&response(200, &[], &trailers)).unwrap_err();
    assert_eq!(error, of_status("14"));
}

#[test]
fn without_a_status_of_grpc_that_of_http_decides() {
    let reason = |status: u16| {
        format!("call to a.test:4317 returned status code {status} and no status of gRPC")
    };
    for status in [429, 502, 503, 504] {
        let error = of_call(&response(status, &[], &[])).unwrap_err();
        assert_eq!(error, SendError::new(reason(status)));
    }
    for status in [200, 302, 400, 401, 403, 404, 500] {
        let error = of_call(&response(status, &[], &[])).unwrap_err();
        assert_eq!(error, SendError::lost(7, reason(status)));
    }
}

#[test]
fn a_call_has_one_message_with_its_length() {
    let body = Body::from_iter([Bytes::from_static(b"abc"), Bytes::from_static(b"de")]);
    let message = grpc::message(body).unwrap();
    let expected = [&b"\0\0\0\0\x05"[..], b"abc", b"de"].map(Bytes::from);
    assert_eq!(
        format!("{message:?}"),
        format!("{:?}", Body::from_iter(expected))
    );
}

#[test]
fn a_server_of_http_can_ask_for_a_pause() {
    let asked = asked("http://a.test");
    let of_http = |status: u16, value: &str| {
        let response = response(status, &[("retry-after", value)], &[]);
        answer(&asked, &response, |status| status == 200).unwrap_err()
    };
    let plain = |status: u16| {
        SendError::new(format!(
            "request to a.test:80 returned status code {status} and body \"\\0\\0\\0\\0\\u{{2}}ok\""
        ))
    };
    for status in [429, 503] {
        let expected = plain(status).after(Duration::from_secs(3));
        assert_eq!(of_http(status, "3"), expected);
        assert_eq!(of_http(status, "soon"), plain(status));
    }
    assert_eq!(of_http(500, "3"), plain(500));
}

#[test]
fn a_pause_can_end_at_a_date() {
    let hour = Duration::from_secs(3600);
    let until = |date: SystemTime| {
        let mut headers = HeaderMap::new();
        let date = httpdate::fmt_http_date(date);
        headers.insert(RETRY_AFTER, HeaderValue::try_from(date).unwrap());
        retry_after(&headers)
    };
    let pause = until(SystemTime::now() + hour).unwrap();
    // A date has whole seconds.
    assert!(pause > hour / 2 && pause <= hour);
    assert_eq!(until(SystemTime::now() - hour), None);
}

#[test]
fn errors_show_nothing_of_the_path_the_query_and_configured_headers() {
    let mut asked = asked("https://log.test/in/TOKENS/TOKEN/b%C3%BCcher/v1?k=secret&x=y");
    for (name, value, is_sensitive) in [
        ("x-key", "api-key-1", true),
        ("authorization", "Bearer a.b.c-d", true),
        ("content-type", "text/plain", false),
    ] {
        let mut value = HeaderValue::from_static(value);
        value.set_sensitive(is_sensitive);
        asked.headers.insert(name, value);
    }
    for (text, shown) in [
        (
            "Cannot POST /in/TOKENS/TOKEN/b\u{fc}cher/v1",
            "Cannot POST /in/***/***/***/v1",
        ),
        ("b%C3%BCcher?k=secret", "***?k=***"),
        (
            "unknown key api-key-1 and a.b.c-d",
            "unknown key *** and ***",
        ),
        ("plain", "plain"),
    ] {
        assert_eq!(asked.shown(text), shown);
    }
    let said = [("grpc-status", "16"), ("grpc-message", "no api-key-1")];
    let error = grpc::answer(&asked, &response(200, &said, &[]), 1).unwrap_err();
    assert!(error.to_string().ends_with("\"no ***\""), "{error}");
}
