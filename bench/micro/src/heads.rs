//! Operations that parse heads and bodies, and that normalise paths.

use crate::operation::Operation;
use model::uri::{Slashes, escape_into, normalize_into};
use net::http1::{Body, Framing, Limits, RequestHead, ResponseHead};
use std::hint::black_box;

const CURL: &str = "GET /service-7/route-1207/users/42 HTTP/1.1\r\n\
    Host: gateway.test:8000\r\n\
    User-Agent: curl/8.5.0\r\n\
    Accept: */*\r\n\
    apikey: 0123456789abcdef0123456789abcdef\r\n\
    \r\n";

const BROWSER: &str = "GET /shop/basket?step=2&lang=en HTTP/1.1\r\n\
    Host: shop.example.test\r\n\
    Connection: keep-alive\r\n\
    Cache-Control: max-age=0\r\n\
    sec-ch-ua: \"Chromium\";v=\"128\", \"Not;A=Brand\";v=\"24\", \"Google Chrome\";v=\"128\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\n\
    DNT: 1\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/128.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-User: ?1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Referer: https://shop.example.test/articles/1207\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; basket=1207x2.4711x1; consent=all\r\n\
    If-None-Match: \"5d8c72a5edda8d6a:0\"\r\n\
    X-Requested-With: basket\r\n\
    \r\n";

const ANSWER: &str = "HTTP/1.1 200 OK\r\n\
    Server: nginx/1.26.2\r\n\
    Date: Fri, 20 Nov 2026 11:00:00 GMT\r\n\
    Content-Type: application/json; charset=utf-8\r\n\
    Content-Length: 512\r\n\
    Connection: keep-alive\r\n\
    Cache-Control: private, max-age=0, no-store\r\n\
    ETag: \"5d8c72a5edda8d6a:0\"\r\n\
    Vary: Accept-Encoding\r\n\
    \r\n";

const COUNT: u32 = 1000;

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        request_head("net/request-head/curl", CURL),
        request_head("net/request-head/browser", BROWSER),
        Operation::repeat("net/response-head", COUNT, || {
            let limits = Limits::default();
            move || {
                black_box(
                    ResponseHead::parse(black_box(ANSWER.as_bytes()), false, &limits).is_ok(),
                );
            }
        }),
        chunked("net/chunked/16x4096", 16, 4096, 100),
        chunked("net/chunked/100x100", 100, 100, 100),
        normalization("uri/normalize/clean", "/service-7/route-1207/users/42"),
        normalization(
            "uri/normalize/dirty",
            "/service-7//route%2D1207/./users/../users/%34%32",
        ),
        Operation::repeat("uri/escape", COUNT, || {
            let mut out = Vec::new();
            move || {
                out.clear();
                escape_into(black_box(b"/service-7/route-1207/users/42"), &mut out);
                black_box(&out);
            }
        }),
    ]
}

fn request_head(name: &str, text: &'static str) -> Operation {
    Operation::repeat(name, COUNT, move || {
        let limits = Limits::default();
        move || {
            black_box(RequestHead::parse(black_box(text.as_bytes()), &limits).is_ok());
        }
    })
}

/// Decodes the chunks of a whole body.
fn chunked(name: &str, chunks: usize, size: usize, count: u32) -> Operation {
    Operation::repeat(name, count, move || {
        let chunk = format!("{size:x}\r\n{}\r\n", "x".repeat(size));
        let text = chunk.repeat(chunks) + "0\r\n\r\n";
        let mut payload = Vec::with_capacity(chunks * size);
        move || {
            payload.clear();
            let mut body = Body::new(Framing::Chunked);
            let taken = body.decode(black_box(text.as_bytes()), &mut payload);
            assert!(taken.is_ok() && body.is_done(), "the body is well formed");
        }
    })
}

fn normalization(name: &str, path: &'static str) -> Operation {
    Operation::repeat(name, COUNT, move || {
        let mut out = Vec::new();
        move || {
            black_box(normalize_into(
                black_box(path.as_bytes()),
                Slashes::Merge,
                &mut out,
            ));
        }
    })
}
