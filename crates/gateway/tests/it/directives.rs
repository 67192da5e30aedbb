//! Supported nginx directives, with the real binary.

use crate::{launch, one_route};
use std::io::Write;
use testkit::Scripted;
use testkit::upstream::read_until_blank_line;

/// An upstream whose responses have content types without a charset.
fn pages() -> Scripted {
    Scripted::start(|mut stream| {
        read_until_blank_line(&mut stream);
        let answer = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nX-Inner: yes\r\nContent-Length: 2\r\n\r\nhi";
        // Writing fails if the gateway has already closed the connection.
        let _ = stream.write_all(answer.as_bytes());
    })
}

#[test]
fn headers_of_every_response_are_added_set_and_cleared() {
    let pages = pages();
    let url = format!("http://{}", pages.address);
    let gateway = launch()
        .set(
            "nginx_http_add_header",
            "X-Sometimes 1; add_header Strict-Transport-Security 'max-age=5; preload' always",
        )
        .set("nginx_proxy_more_set_headers", "'Server: mine'")
        .set("nginx_proxy_more_clear_headers", "X-Inner Via")
        .set("nginx_http_charset", "off")
        .configuration(&one_route(&url, "/page"))
        .start();
    let page = gateway.get("/page", &[]);
    assert_eq!((page.status, page.text().as_str()), (200, "hi"));
    assert_eq!(page.header("content-type"), Some("text/html"));
    let missing = gateway.get("/nowhere", &[]);
    assert_eq!(missing.status, 404);
    for answer in [&page, &missing] {
        let header = |name| answer.header(name);
        assert_eq!(
            header("Strict-Transport-Security"),
            Some("max-age=5; preload")
        );
        assert_eq!(header("Server"), Some("mine"));
        assert_eq!((header("X-Inner"), header("Via")), (None, None));
    }
    assert_eq!(page.header("X-Sometimes"), Some("1"));
    assert_eq!(missing.header("X-Sometimes"), None);
}

#[test]
fn text_responses_get_a_charset_unless_it_is_off() {
    let pages = pages();
    let url = format!("http://{}", pages.address);
    let gateway = launch().configuration(&one_route(&url, "/page")).start();
    let page = gateway.get("/page", &[]);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=UTF-8")
    );
}
