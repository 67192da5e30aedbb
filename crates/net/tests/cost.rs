//! Tests that the cost of parsing a peer's bytes grows only linearly with their number, even for adversarial input.

use net::http1::{Body, Framing, Limits, RequestHead, ResponseHead};
use net::{client_hello, proxy_protocol};
use std::hint::black_box;

/// Limits that refuse no head of these tests, so that the tests measure the parsing of whole heads.
const WIDE: Limits = Limits {
    line: 1 << 20,
    head: 1 << 20,
    lines: 1 << 16,
};

/// Joins a beginning, a piece that is repeated to about `size` bytes, and an end.
fn written((begin, again, end): &(&str, &str, &str), size: usize) -> Vec<u8> {
    [
        begin.as_bytes(),
        &again.as_bytes().repeat(size / again.len()),
        end.as_bytes(),
    ]
    .concat()
}

#[test]
fn a_request_head_costs_as_much_as_it_is_long() {
    let shapes = [
        ("GET /", "%2e./;a=b//", " HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("GET /?", "a=%00&", " HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("GET http://a", ".b-c", "/ HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: ", " \t", "a\r\n\r\n"),
        ("GET / HTTP/1.1\r\nHost: a\r\n", "x-a-b", ": c\r\n\r\n"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: ",
            "a, close,",
            "\r\n\r\n",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ",
            "chunked,",
            "\r\n\r\n",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: ",
            "0",
            "\r\n\r\n",
        ),
        ("GET / HTTP/1.1\r\nHost: ", "a.-_~%41", "\r\n\r\n"),
        ("GET / HTTP/1.1\r\nHost: [", "0:", "]\r\n\r\n"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nExpect: ",
            "100-continue,",
            "\r\n\r\n",
        ),
        ("\r\nGET / HTTP/1.1\r\nHost: a\r\nX: ", "a", ""),
    ];
    testkit::cost::assert_linear(
        16 * 1024,
        |size| shapes.iter().map(|shape| written(shape, size)).collect(),
        |heads: Vec<Vec<u8>>| {
            for head in &heads {
                let _ = black_box(RequestHead::parse(head, &WIDE));
            }
        },
    );
}

#[test]
fn a_request_head_costs_as_much_as_it_has_lines() {
    let kinds = [
        "x: y\r\n",
        "Connection: x\r\n",
        "Upgrade: websocket\r\n",
        "Accept:\r\n",
    ];
    testkit::cost::assert_linear(
        200,
        |lines| {
            let head =
                |line: &&str| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", line.repeat(lines));
            kinds.iter().map(head).collect()
        },
        |heads: Vec<String>| {
            for head in &heads {
                let (head, _) = RequestHead::parse(head.as_bytes(), &WIDE)
                    .expect("the head is valid")
                    .expect("the head is complete");
                let mut kept = Vec::new();
                head.copy_lines(&mut kept, |line| !line.is_hop());
                black_box(kept);
            }
        },
    );
}

#[test]
fn a_response_head_costs_as_much_as_it_is_long() {
    let shapes = [
        ("HTTP/1.1 200 ", "OK ", "\r\n\r\n"),
        ("HTTP/1.1 200 OK\r\nX: ", " \t", "a\r\n\r\n"),
        ("HTTP/1.1 200 OK\r\nConnection: ", "a, close,", "\r\n\r\n"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: ",
            "chunked,",
            "\r\n\r\n",
        ),
        ("HTTP/1.1 101 S\r\nUpgrade: ", "websocket,", "\r\n\r\n"),
        ("HTTP/1.1 200 OK\r\nX: ", "a", ""),
    ];
    testkit::cost::assert_linear(
        16 * 1024,
        |size| shapes.iter().map(|shape| written(shape, size)).collect(),
        |heads: Vec<Vec<u8>>| {
            for head in &heads {
                let _ = black_box(ResponseHead::parse(head, false, &WIDE));
            }
        },
    );
}

#[test]
fn a_chunked_body_costs_as_much_as_it_is_long() {
    let shapes = [
        ("", "1\r\na\r\n", "0\r\n\r\n"),
        ("", "1;a=\"\\b\";c=d\r\na\r\n", "0\r\n\r\n"),
        ("0\r\n", "x-a: b\r\n", "\r\n"),
        ("ffffff\r\n", "a\r\n0", ""),
    ];
    testkit::cost::assert_linear(
        16 * 1024,
        |size| shapes.iter().map(|shape| written(shape, size)).collect(),
        |bodies: Vec<Vec<u8>>| {
            for body in &bodies {
                // Decode small pieces, because a body may arrive in pieces of any size.
                let (mut reader, mut payload) = (Body::new(Framing::Chunked), Vec::new());
                for piece in body.chunks(7) {
                    if reader.decode(piece, &mut payload).is_err() {
                        break;
                    }
                }
                black_box(payload);
            }
        },
    );
}

/// Builds a client hello with these bytes as extensions, in records of at most `record` bytes.
fn hello(extensions: &[u8], record: usize) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([0; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    let length = (body.len() as u32).to_be_bytes();
    let message = [&[1], &length[1..], &body].concat();
    let records = message.chunks(record);
    let written =
        records.map(|part| [&[22, 3, 1], &(part.len() as u16).to_be_bytes()[..], part].concat());
    written.collect::<Vec<_>>().concat()
}

#[test]
fn a_client_hello_costs_as_much_as_it_is_long() {
    testkit::cost::assert_linear(
        4 * 1024,
        |size| {
            // Many empty extensions of an unknown type; and one extension, in records of one byte each.
            let many = [0xfa_u8, 0xfa, 0, 0].repeat(size / 4);
            let one = [
                &[0xfa, 0xfa],
                &(size as u16 / 6).to_be_bytes()[..],
                &vec![0; size / 6],
            ]
            .concat();
            vec![hello(&many, 1 << 14), hello(&one, 1)]
        },
        |hellos: Vec<Vec<u8>>| {
            for hello in &hellos {
                let _ = black_box(client_hello::parse(hello));
            }
        },
    );
}

#[test]
fn a_proxy_header_costs_as_much_as_it_is_long() {
    let header = |tlv: &[u8], size: usize| {
        let values = tlv.repeat(size / tlv.len());
        let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
        header.extend((12 + values.len() as u16).to_be_bytes());
        header.extend([127, 0, 0, 1, 127, 0, 0, 1, 0, 1, 0, 2]);
        [header, values].concat()
    };
    testkit::cost::assert_linear(
        16 * 1024,
        |size| {
            let values = [
                &[0xe0, 0, 0][..],
                &[3, 0, 4, 1, 2, 3, 4],
                &[0x20, 0, 5, 0, 0, 0, 0, 0],
            ];
            values.map(|tlv| header(tlv, size))
        },
        |headers: [Vec<u8>; 3]| {
            for header in &headers {
                let _ = black_box(proxy_protocol::parse(header));
            }
        },
    );
}
