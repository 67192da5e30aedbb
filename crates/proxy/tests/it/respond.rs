//! Tests of error bodies and their negotiation, as recorded from Kong, and of the bytes of the gateway's own responses.

use crate::fixture::{REQUEST_ID, head};
use plugin::{Response, ResponseBody};
use proxy::respond::{Facts, Format, GatewayResponse, HeaderSet, Latency, ResponseSettings};
use serde_json::Value;

fn vectors(section: &str) -> Vec<Value> {
    let text = include_str!("../data/error-vectors.json");
    let vectors: Value = serde_json::from_str(text).expect("the vectors are JSON");
    vectors[section]["cases"]
        .as_array()
        .expect("a section has cases")
        .clone()
}

#[test]
fn errors_have_the_form_that_accept_asks_for() {
    let cases = vectors("error_content_negotiation");
    assert_eq!(cases.len(), 26);
    for case in cases {
        let accept = case["accept"].as_str().map(str::as_bytes);
        let wanted = case["content_type"].as_str().expect("a case has a type");
        let format = Format::accepted(accept);
        assert_eq!(format.content_type().unwrap_or_default(), wanted, "{case}");
    }
}

#[test]
fn error_bodies_are_kongs_byte_for_byte() {
    let cases = vectors("error_bodies");
    assert_eq!(cases.len(), 4);
    for case in cases {
        let content_type = case["content_type"].as_str().expect("a case has a type");
        let accept = content_type.split(';').next().expect("a type has a name");
        let request = head(&["GET / HTTP/1.1", &format!("Accept: {accept}")]);
        let response = Response::error(
            404,
            case["message"]
                .as_str()
                .expect("a case has a message")
                .to_owned(),
        );
        let id = case["request_id"].as_str().expect("a case has an id");
        let answer =
            GatewayResponse::new(response, Some(&request), id, &ResponseSettings::default());
        assert_eq!(
            case["body"].as_str().map(str::as_bytes),
            Some(&*answer.body)
        );
        assert_eq!(
            answer.headers.value("content-type"),
            Some(content_type.as_bytes())
        );
    }
}

fn server_error(status: u16, lines: &[&str]) -> (u16, String, String) {
    let request = head(lines);
    let settings = ResponseSettings::default();
    let answer = GatewayResponse::server_error(status, None, Some(&request), REQUEST_ID, &settings);
    let content_type = answer.headers.value("content-type").unwrap_or_default();
    (
        answer.status,
        String::from_utf8_lossy(content_type).into_owned(),
        String::from_utf8_lossy(&answer.body).into_owned(),
    )
}

#[test]
fn server_errors_are_text_unless_the_request_says_more() {
    let get = "GET / HTTP/1.1";
    let (status, content_type, body) = server_error(502, &[get]);
    assert_eq!((status, &*content_type), (502, "text/plain; charset=utf-8"));
    assert_eq!(
        body,
        format!(
            "An invalid response was received from the upstream server\nrequest_id: {REQUEST_ID}\n"
        )
    );
    let (_, content_type, _) = server_error(504, &[get, "Content-Type: text/html"]);
    assert_eq!(content_type, "text/html; charset=utf-8");
    let both = [get, "Accept: */*", "Content-Type: text/html"];
    assert_eq!(
        server_error(504, &both).1,
        "application/json; charset=utf-8"
    );
}

#[test]
fn a_too_large_head_is_a_bad_request_with_its_own_text() {
    let (status, _, body) = server_error(494, &["GET / HTTP/1.1"]);
    assert_eq!(status, 400);
    assert!(body.starts_with("Request header or cookie too large\n"));
}

#[test]
fn a_grpc_client_reads_the_status_from_headers() {
    let request = head(&["POST / HTTP/1.1", "Content-Type: application/grpc+proto"]);
    let settings = ResponseSettings::default();
    let answer = GatewayResponse::server_error(503, None, Some(&request), REQUEST_ID, &settings);
    assert!(answer.body.is_empty());
    let value = |name| answer.headers.value(name);
    assert_eq!(value("content-type"), Some(&b"application/grpc"[..]));
    assert_eq!(value("grpc-status"), Some(&b"14"[..]));
    let message = &b"The upstream server is currently unavailable"[..];
    assert_eq!(value("grpc-message"), Some(message));
}

fn to_grpc(response: Response) -> GatewayResponse {
    let request = head(&["POST / HTTP/1.1", "Content-Type: application/grpc"]);
    GatewayResponse::to_grpc(
        response,
        Some(&request),
        REQUEST_ID,
        &ResponseSettings::default(),
    )
}

/// A response whose content type a plugin has set is not converted to gRPC. Source: kong/pdk/response.lua send().
#[test]
fn an_answer_to_a_grpc_call_keeps_the_type_that_a_plugin_names() {
    for (response, kind, status, body) in [
        (
            Response::new(403, "<p>no</p>").with_header("Content-Type", "text/html"),
            "text/html",
            None,
            "<p>no</p>",
        ),
        (
            Response::message(403, "no").with_header("Content-Type", "application/problem+json"),
            "application/problem+json",
            None,
            r#"{"message":"no"}"#,
        ),
        (
            Response::new(200, "\0\0").with_header("Content-Type", "application/grpc-web"),
            "application/grpc-web",
            Some(("0", "OK")),
            "\0\0",
        ),
    ] {
        let answer = to_grpc(response);
        let value = |name| {
            let value = answer.headers.value(name)?;
            Some(std::str::from_utf8(value).unwrap())
        };
        assert_eq!(value("content-type"), Some(kind));
        assert_eq!(value("grpc-status").zip(value("grpc-message")), status);
        assert_eq!(answer.body, body);
    }
}

/// Responses have two styles, "exit" and "error". In gRPC, those in "error" style lose their message.
/// Source: kong/pdk/response.lua.
#[test]
fn an_answer_to_a_grpc_call_has_its_type_and_its_message() {
    for (response, status, message) in [
        (
            Response::error(503, "no Service found with those values"),
            "14",
            "Unavailable",
        ),
        (
            Response::error(404, "no Route matched with those values"),
            "5",
            "NotFound",
        ),
        (Response::status_error(401), "16", "Unauthenticated"),
        (
            Response::message(403, "You shall not"),
            "7",
            "You shall not",
        ),
        (Response::new(400, "not so"), "3", "not so"),
        (
            Response::message(403, r#"say "hi" \ x"#),
            "7",
            r#"say "hi" \ x"#,
        ),
        // A header cannot contain a line end, so this message is dropped.
        (Response::message(403, "a\nb"), "7", "PermissionDenied"),
        (
            Response::new(400, r#"{"message":"a text"}"#),
            "3",
            r#"{"message":"a text"}"#,
        ),
        (Response::json(400, &[1]), "3", "InvalidArgument"),
        (Response::new(418, ""), "3", "InvalidArgument"),
        (
            Response::new(200, "")
                .with_header("content-type", "application/grpc+proto")
                .with_header("grpc-status", "1")
                .with_header("grpc-message", "as it is"),
            "1",
            "as it is",
        ),
    ] {
        let answer = to_grpc(response);
        let value = |name| {
            let value = answer.headers.value(name).unwrap_or_default();
            std::str::from_utf8(value).unwrap()
        };
        assert!(value("content-type").starts_with("application/grpc"));
        assert_eq!(
            (value("grpc-status"), value("grpc-message")),
            (status, message)
        );
        assert!(answer.body.is_empty());
    }
}

#[test]
fn an_error_response_needs_an_error_status() {
    let response = Response::error(200, "fine");
    let answer = GatewayResponse::new(response, None, REQUEST_ID, &ResponseSettings::default());
    assert_eq!(answer.status, 500);
    let body = String::from_utf8_lossy(&answer.body);
    let expected = format!(
        "{{\n  \"message\":\"An unexpected error occurred\",\n  \"request_id\":\"{REQUEST_ID}\"\n}}"
    );
    assert_eq!(body, expected);
}

#[test]
fn a_status_without_a_text_is_named_by_its_number() {
    let answer = GatewayResponse::new(
        Response::status_error(499),
        None,
        REQUEST_ID,
        &ResponseSettings::default(),
    );
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(
        body.contains("The upstream server responded with 499"),
        "{body}"
    );
}

fn written(response: Response, settings: &HeaderSet, head_only: bool) -> String {
    let answer = GatewayResponse::new(response, None, REQUEST_ID, &ResponseSettings::default());
    let facts = Facts {
        request_id: REQUEST_ID,
        date: "Fri, 20 Nov 2026 00:00:00 GMT",
        latency: Latency::Produced { total: 7 },
        keep_alive: true,
        head_only,
    };
    let mut out = Vec::new();
    answer.write_head(&facts, settings, &mut out);
    out.extend_from_slice(answer.start_of_body(head_only));
    String::from_utf8(out).expect("the answer is text")
}

#[test]
fn a_produced_answer_carries_kongs_headers() {
    let text = written(Response::message(404, "x"), &HeaderSet::default(), false);
    let wanted = format!(
        "HTTP/1.1 404 Not Found\r\nDate: Fri, 20 Nov 2026 00:00:00 GMT\r\n\
         Content-Type: application/json; charset=utf-8\r\nConnection: keep-alive\r\nContent-Length: 15\r\n\
         X-Kong-Response-Latency: 7\r\nServer: kong/3.9.1\r\nX-Kong-Request-Id: {REQUEST_ID}\r\n\r\n{{\"message\":\"x\"}}"
    );
    assert_eq!(text, wanted);
}

#[test]
fn headers_off_leaves_kongs_headers_out_and_a_plugin_cannot_set_framing() {
    let response = Response::new(200, "abc")
        .with_header("Content-Length", "7")
        .with_header("Transfer-Encoding", "chunked")
        .with_header("Server", "mine");
    let text = written(response, &HeaderSet::from_names(["off"]), false);
    let wanted = "HTTP/1.1 200 OK\r\nDate: Fri, 20 Nov 2026 00:00:00 GMT\r\n\
                  Content-Type: text/plain; charset=UTF-8\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(text, wanted);
}

#[test]
fn an_answer_to_head_has_the_length_and_no_body() {
    let text = written(Response::new(200, "abc"), &HeaderSet::OFF, true);
    assert!(text.contains("Content-Length: 3\r\n"));
    assert!(text.ends_with("\r\n\r\n"));
}

#[test]
fn texts_get_the_charset_of_the_web_server() {
    let html = Response::new(451, "x").with_header("Content-Type", "text/html");
    let text = written(html, &HeaderSet::OFF, false);
    assert!(text.contains("Content-Type: text/html; charset=UTF-8\r\n"));
}

/// Writes a response as the gateway sends it to HTTP/1.1 clients.
fn sent(response: Response, frames: bool) -> String {
    let settings = ResponseSettings::default();
    let mut answer = GatewayResponse::new(response, None, REQUEST_ID, &settings);
    if frames {
        assert!(answer.chunked);
        answer.frame();
    }
    let facts = Facts {
        request_id: REQUEST_ID,
        date: "today",
        latency: Latency::Produced { total: 0 },
        keep_alive: true,
        head_only: false,
    };
    let mut out = Vec::new();
    let date = answer.write_head(&facts, &settings.headers, &mut out);
    assert_eq!(&out[date], b"Date: today\r\n");
    out.extend_from_slice(answer.start_of_body(facts.head_only));
    String::from_utf8(out).expect("it is text")
}

#[test]
fn an_exit_without_a_body_gets_nginxs_page() {
    let forbidden = sent(Response::page(403), false);
    assert!(forbidden.contains("Content-Type: text/html; charset=UTF-8\r\n"));
    assert!(forbidden.contains("<center><h1>403 Forbidden</h1></center>\r\n"));
    // Kong has a body of its own for 404, and nginx has no page for 418.
    assert!(sent(Response::page(404), false).contains("\r\n\r\nNot found\nrequest_id: "));
    assert!(sent(Response::page(418), false).ends_with("\r\n\r\n"));
}

#[test]
fn a_length_is_stated_as_nginx_states_it() {
    let length = |response| {
        let text = sent(response, false);
        let line = text.lines().find(|line| line.starts_with("Content-Length"));
        line.map(str::to_owned)
    };
    assert_eq!(length(Response::new(204, "")), None);
    let stated = |length| Some(format!("Content-Length: {length}"));
    assert_eq!(length(Response::new(204, "x")), stated(1));
    assert_eq!(length(Response::page(304)), stated(0));
    assert!(sent(Response::new(204, "x"), false).ends_with("\r\n\r\n"));
}

#[test]
fn a_body_that_was_written_piece_by_piece_goes_in_chunks() {
    let mut response = Response::new(200, "");
    response.body = ResponseBody::Written("hello".into());
    let text = sent(response, true);
    assert!(text.contains("Transfer-Encoding: chunked\r\n") && !text.contains("Content-Length"));
    assert!(text.ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), "{text}");
}
