use super::*;

fn request(text: &str) -> Result<Option<(RequestHead, usize)>, BadRequest> {
    RequestHead::parse(text.as_bytes(), &Limits::default())
}

#[test]
fn a_request_is_read() {
    let text = "GET /a/b?c=d HTTP/1.1\r\nHost: Example.com:80\r\nX-Empty:\r\nx-a:  1 \r\nX-A: 2\r\n\r\nrest";
    let (head, len) = request(text).unwrap().unwrap();
    assert_eq!(len, text.len() - 4);
    assert_eq!((head.method(), head.target()), ("GET", "/a/b?c=d"));
    assert_eq!((head.path(), head.query()), ("/a/b", Some("c=d")));
    assert_eq!(head.host(), Some("Example.com:80"));
    assert_eq!(head.header("X-EMPTY"), Some(&b""[..]));
    assert_eq!(head.header("x-A"), Some(&b"1"[..]));
    assert_eq!(head.header_count("x-a"), 2);
    assert_eq!(head.headers().count(), 4);
    assert_eq!(head.framing(), Framing::None);
    assert!(head.keep_alive());
}
