//! Fuzz targets for HTTP/1 heads. The crate `httparse` must read every accepted head in the same way. Every shorter
//! prefix of the head must be incomplete. The head must stay the same when it is written out and parsed again.

use crate::beginnings;
use net::http1::{Framing, Limits, MAX_HEADERS, RequestHead, ResponseHead};

/// The header lines of a head, as names and values.
type Lines = Vec<(String, Vec<u8>)>;

/// Checks a request head, which is the whole input.
pub fn request_head(data: &[u8]) {
    let limits = Limits::default();
    let Ok(Some((head, length))) = RequestHead::parse(data, &limits) else {
        return;
    };
    assert!(length <= data.len() && length <= limits.head);
    let whole = &data[..length];
    for cut in beginnings(whole) {
        assert!(
            matches!(RequestHead::parse(cut, &limits), Ok(None)),
            "an accepted head is not incomplete when cut at {}",
            cut.len()
        );
    }
    check_request(&head);
    let lines = lines(head.headers());
    check_values(&lines);
    let mut text = [head.method_bytes(), b" ", head.target_bytes(), b" "].concat();
    text.extend_from_slice(match head.version() {
        net::http1::Version::Http10 => b"HTTP/1.0\r\n",
        net::http1::Version::Http11 => b"HTTP/1.1\r\n",
    });
    write_lines(&lines, &mut text);
    let again = RequestHead::parse(&text, &limits);
    let (again, end) = again.expect("still accepted").expect("still whole");
    assert_eq!(end, text.len());
    assert_eq!(
        (
            head.method(),
            head.target_bytes(),
            head.path(),
            head.query_bytes()
        ),
        (
            again.method(),
            again.target_bytes(),
            again.path(),
            again.query_bytes()
        )
    );
    assert_eq!(head.framing(), again.framing());
    assert_eq!(head.keep_alive(), again.keep_alive());
    assert_eq!(head.host(), again.host());
    assert_eq!(lines, self::lines(again.headers()));
    by_another_reader(whole, &head, &lines);
}

fn check_request(head: &RequestHead) {
    let target = String::from_utf8_lossy(head.target_bytes());
    let is_visible = |byte: &u8| *byte > b' ' && *byte != 0x7f;
    assert!(head.target_bytes().iter().all(is_visible));
    assert!(!target.contains('#'));
    assert!(head.path().starts_with('/') && head.path().is_ascii());
    assert_ne!(head.framing(), Framing::Close);
    if let Some((name, upper)) = head.host_name() {
        let absolute = target.split("://").nth(1).unwrap_or_default();
        let host = head.host().unwrap_or_default();
        assert!(host.starts_with(name) || absolute.starts_with(name));
        assert_eq!(upper, name.bytes().any(|byte| byte.is_ascii_uppercase()));
    }
    let lengths = head.header_count("content-length");
    let codings = head.header_count("transfer-encoding");
    assert!(lengths + codings <= 1);
    assert!(head.header_count("host") <= 1);
    match head.framing() {
        Framing::Length(length) => {
            let value = head.header("content-length").unwrap_or_default();
            assert_eq!(value, length.to_string().as_bytes());
        }
        Framing::Chunked => assert_eq!(codings, 1),
        Framing::None | Framing::Close => assert_eq!(codings, 0),
    }
}

/// Checks that `httparse`, which is more lenient, finds the same parts. It refuses minor versions other than 0 and 1,
/// so heads with other versions are not compared.
fn by_another_reader(whole: &[u8], head: &RequestHead, lines: &Lines) {
    let usual = [&b" HTTP/1.0\r\n"[..], b" HTTP/1.1\r\n"];
    let mut all = whole.split_inclusive(|&byte| byte == b'\n');
    let first = all.find(|line| *line != b"\r\n");
    let ends_in = |end: &&[u8]| first.is_some_and(|line| line.ends_with(end));
    if !usual.iter().any(ends_in) {
        return;
    }
    // `httparse` refuses targets that are not UTF-8, so it gets a letter in place of each byte that is not ASCII.
    let mut readable = whole.to_vec();
    let blanks = if whole.starts_with(b"\r\n") { 2 } else { 0 };
    let start = blanks + head.method_bytes().len() + 1;
    let target = &mut readable[start..][..head.target_bytes().len()];
    assert_eq!(target, head.target_bytes());
    for byte in target.iter_mut().filter(|byte| !byte.is_ascii()) {
        *byte = b'x';
    }
    let target = String::from_utf8_lossy(target).into_owned();
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    assert_eq!(
        request.parse(&readable),
        Ok(httparse::Status::Complete(whole.len()))
    );
    assert_eq!(request.method, Some(head.method()));
    assert_eq!(request.path, Some(&*target));
    let theirs = request.headers.iter();
    let theirs: Lines = theirs
        .map(|header| (header.name.to_owned(), header.value.to_vec()))
        .collect();
    assert_eq!(&theirs, lines);
}

/// Checks a response head. The first byte of the input is `H` if the response answers a HEAD request.
pub fn response_head(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let (to_head, limits) = (first == b'H', Limits::default());
    let Ok(Some((head, length))) = ResponseHead::parse(data, to_head, &limits) else {
        return;
    };
    assert!(length <= data.len() && length <= limits.head);
    let whole = &data[..length];
    for cut in beginnings(whole) {
        assert!(
            matches!(ResponseHead::parse(cut, to_head, &limits), Ok(None)),
            "an accepted head is not incomplete when cut at {}",
            cut.len()
        );
    }
    assert!((100..1000).contains(&head.status()));
    if to_head || head.is_interim() || matches!(head.status(), 204 | 304) {
        assert_eq!(head.framing(), Framing::None);
    }
    let lines = lines(head.headers());
    check_values(&lines);
    let mut text = head.status_line().to_vec();
    write_lines(&lines, &mut text);
    let again = ResponseHead::parse(&text, to_head, &limits);
    let (again, end) = again.expect("still accepted").expect("still whole");
    assert_eq!(end, text.len());
    assert_eq!(
        (head.status(), head.reason()),
        (again.status(), again.reason())
    );
    assert_eq!(head.framing(), again.framing());
    assert_eq!(head.keep_alive(), again.keep_alive());
    assert_eq!(lines, self::lines(again.headers()));
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    // `httparse` accepts fewer reason phrases, so responses that it refuses are not compared.
    if response.parse(whole) == Ok(httparse::Status::Complete(whole.len())) {
        assert_eq!(response.code, Some(head.status()));
        assert_eq!(response.headers.len(), lines.len());
    }
}

fn lines<'h>(headers: impl Iterator<Item = (&'h str, &'h [u8])>) -> Lines {
    headers
        .map(|(name, value)| (name.to_owned(), value.to_vec()))
        .collect()
}

fn check_values(lines: &Lines) {
    assert!(lines.len() <= MAX_HEADERS);
    for (name, value) in lines {
        assert!(!name.is_empty() && name.bytes().all(|byte| byte > b' ' && byte < 0x7f));
        assert!(!name.contains(':'));
        let control = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
        assert!(!value.iter().any(control));
        assert_eq!(value.trim_ascii(), value);
    }
}

fn write_lines(lines: &Lines, out: &mut Vec<u8>) {
    for (name, value) in lines {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}
