//! Pipelined requests: the gateway finds the start of the next request, whether or not a plugin has read the body of
//! the previous one.

use super::launch;
use testkit::http::Client;

const CONFIGURATION: &str = r#"
_format_version: "3.0"
services:
  - name: nowhere
    url: http://127.0.0.1:1
    retries: 0
    routes:
      - {name: lost, paths: [/lost]}
      - name: keyed
        paths: [/keyed]
        plugins:
          - {name: key-auth, config: {key_in_body: true}}
          - {name: request-termination, config: {status_code: 200, message: keyed}}
      - name: fixed
        paths: [/fixed]
        plugins:
          - {name: request-termination, config: {status_code: 200, message: fixed}}
      - name: interim
        paths: [/interim]
        plugins:
          - {name: request-termination, config: {status_code: 103}}
consumers:
  - username: alice
    keyauth_credentials: [{key: alice-key}]
"#;

const NEXT: &str = "GET /fixed HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// Sends the given request and then one for `/fixed` without waiting. Returns the statuses of both responses.
fn pipelined(first: &str) -> (u16, u16) {
    let gateway = launch().configuration(CONFIGURATION).start();
    let mut client = Client::connect(gateway.proxy);
    client
        .send(format!("{first}{NEXT}"))
        .expect("the gateway reads");
    let one = client.receive("POST").expect("the first is answered");
    let two = client.receive("GET").expect("the second is answered");
    assert_eq!(two.json()["message"], "fixed");
    (one.status, two.status)
}

#[test]
fn a_body_that_a_plugin_read_is_not_skipped_again() {
    let head = "POST /keyed HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    let with_length = format!("{head}Content-Length: 16\r\n\r\napikey=alice-key");
    assert_eq!(pipelined(&with_length), (200, 200));
    let in_chunks =
        format!("{head}Transfer-Encoding: chunked\r\n\r\n10\r\napikey=alice-key\r\n0\r\n\r\n");
    assert_eq!(pipelined(&in_chunks), (200, 200));
}

#[test]
fn a_body_that_nobody_read_is_skipped() {
    let fixed = "POST /fixed HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(pipelined(fixed), (200, 200));
    let lost = "POST /lost HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(pipelined(lost), (502, 200));
}

#[test]
fn a_response_below_200_closes_the_connection() {
    let gateway = launch().configuration(CONFIGURATION).start();
    let mut client = Client::connect(gateway.proxy);
    client
        .send(format!(
            "GET /interim HTTP/1.1\r\nHost: a.test\r\n\r\n{NEXT}"
        ))
        .expect("the gateway reads");
    // The client keeps reading after an interim response, because a status below 200 is not final. If the gateway sent
    // the response to the next request now, the client would use it for the first request.
    assert!(client.is_cut_off("GET"));
}
