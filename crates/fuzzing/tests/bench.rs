//! Checks that the fuzzed connection, which has no socket, serves requests like a real one. If its setup were broken,
//! fuzzing would exercise nothing and still pass.

use net::memory::Then;
use proxy::session::memory::Bench;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn holds(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

#[test]
fn requests_reach_upstreams_and_answers_the_client() {
    let client = b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n";
    for piece in [1, 7, usize::MAX] {
        let outcome = Bench::new().connection(client, Then::Wait, &[OK, OK], piece);
        let [first, second] = &outcome.to_upstreams[..] else {
            panic!("{outcome:?}");
        };
        let text = String::from_utf8_lossy(first);
        assert!(text.starts_with("POST /a HTTP/1.1\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\nhi"), "{text}");
        assert!(second.starts_with(b"GET /b HTTP/1.1\r\n"));
        let answers = outcome
            .to_client
            .windows(5)
            .filter(|window| window == b"hello");
        assert_eq!(answers.count(), 2, "in pieces of {piece}");
    }
}

#[test]
fn an_upstream_that_is_not_there_is_told() {
    let client = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let outcome = Bench::new().connection(client, Then::Wait, &[], usize::MAX);
    assert!(outcome.to_client.starts_with(b"HTTP/1.1 502 "));
}

#[test]
fn streams_of_http2_are_served() {
    let settings = b"\0\0\0\x04\0\0\0\0\0";
    // In HPACK: the indexed fields `GET`, `http` and `/`, then an `:authority` field with a literal value.
    let headers = b"\0\0\x07\x01\x05\0\0\0\x01\x82\x86\x84\x41\x02ab";
    let client = [&settings[..], headers].concat();
    for piece in [64, usize::MAX] {
        let outcome = Bench::new().http2(&client, Then::Wait, &[OK], piece);
        assert!(
            outcome.to_upstreams[0].starts_with(b"GET / HTTP/1.1\r\n"),
            "{outcome:?}"
        );
        assert!(holds(&outcome.to_client, b"hello"), "{outcome:?}");
    }
}
