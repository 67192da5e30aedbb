//! Body filters on forwarded responses, in every framing of the upstream and for both versions of HTTP/1.

use super::acts::Acts;
use super::*;
use plugin::Filtered;

/// Converts the body to capitals, and adds an exclamation mark at its end.
fn shout() -> Arc<PluginDef> {
    let acts = Acts::new().header_filter(|cx| {
        cx.answer.headers.remove("Content-Length");
        Ok(Filtered::Continue)
    });
    let acts = acts.body_filter(|cx, chunk| {
        assert!(cx.upstream.is_some());
        let mut data = chunk.data.to_ascii_uppercase();
        if chunk.last {
            data.push(b'!');
        }
        chunk.data = data.into();
        Ok(())
    });
    acts.define::<0>()
}

/// Sends `answer` through the gateway to a client of this HTTP version, and returns the response that the client
/// receives. If `closes` is set, the upstream closes the connection after the response.
fn through(version: &'static str, answer: &'static str, closes: bool) -> String {
    let (sender, receiver) = std::sync::mpsc::channel();
    run(async move {
        let address = upstream(vec![script(move |mut peer| async move {
            peer.head().await;
            peer.send(answer).await;
            if !closes {
                peer.head_or_end().await;
            }
        })])
        .await;
        let mut setup = Setup::new(address);
        setup.plugins = vec![shout()];
        let gateway = setup.start();
        let mut client = gateway.client().await;
        client
            .send(format!(
                "GET / HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n"
            ))
            .await;
        sender.send(client.rest().await).unwrap();
    });
    receiver.recv().unwrap()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").expect("a head").1
}

#[test]
fn a_body_of_known_length_gets_chunks_and_loses_its_length() {
    let answer = through(
        "1.1",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        false,
    );
    assert_eq!(header(&answer, "content-length"), None);
    assert_eq!(header(&answer, "transfer-encoding"), Some("chunked"));
    assert_eq!(body(&answer), "6\r\nHELLO!\r\n0\r\n\r\n");
}

#[test]
fn a_body_in_chunks_is_filtered_without_its_framing() {
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
    assert_eq!(
        body(&through("1.1", chunked, false)),
        "4\r\nABC!\r\n0\r\n\r\n"
    );
}

#[test]
fn a_body_ended_by_closing_is_filtered_to_its_end() {
    let answer = through("1.1", "HTTP/1.1 200 OK\r\n\r\nabc", true);
    // The response is buffered, so its end is sent together with the rest.
    assert_eq!(body(&answer), "4\r\nABC!\r\n0\r\n\r\n");
}

#[test]
fn a_client_without_chunks_gets_the_filtered_payload() {
    let answer = through(
        "1.0",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        false,
    );
    assert_eq!(body(&answer), "HELLO!");
}

#[test]
fn an_empty_body_is_filtered_too() {
    let answer = through("1.1", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false);
    assert_eq!(header(&answer, "content-length"), None);
    assert_eq!(body(&answer), "1\r\n!\r\n0\r\n\r\n");
}

#[test]
fn a_response_that_cannot_have_a_body_gets_none() {
    let answer = through("1.1", "HTTP/1.1 204 No Content\r\n\r\n", false);
    assert_eq!(header(&answer, "transfer-encoding"), None);
    assert_eq!(body(&answer), "");
}
