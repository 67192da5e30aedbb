//! `multipart/form-data` bodies. Parts are slices of the request's body, so that a configuration file of many megabytes
//! is not copied.

use bytes::Bytes;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) content_type: Option<String>,
    pub(crate) data: Bytes,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MultipartError {
    #[error("no boundary in the content type")]
    NoBoundary,
    #[error("the body ends within a part")]
    Truncated,
    #[error("too many parts")]
    TooManyParts,
}

/// Returns the named parts of `body`, in order. As in Kong, parts without a name are skipped.
pub(crate) fn parts(
    content_type: &str,
    body: &Bytes,
    limit: usize,
) -> Result<Vec<Part>, MultipartError> {
    let boundary = boundary(content_type).ok_or(MultipartError::NoBoundary)?;
    let delimiter = format!("--{boundary}");
    let mut parts = Vec::new();
    // The text before the first delimiter is a preamble without meaning.
    let mut at = find(body, delimiter.as_bytes(), 0).ok_or(MultipartError::Truncated)?;
    let inner = format!("\r\n{delimiter}");
    loop {
        at += delimiter.len();
        if body[at..].starts_with(b"--") {
            return Ok(parts);
        }
        if parts.len() == limit {
            return Err(MultipartError::TooManyParts);
        }
        let head = find(body, b"\r\n", at).ok_or(MultipartError::Truncated)?;
        let end = find(body, inner.as_bytes(), head).ok_or(MultipartError::Truncated)?;
        parts.extend(part(body, head, end));
        at = end + 2;
    }
}

/// Parses a part: `body[start..end]` holds the line end after the delimiter, header lines, an empty line and the data.
fn part(body: &Bytes, start: usize, end: usize) -> Option<Part> {
    let section = &body[start..end];
    let head_end = find(section, b"\r\n\r\n", 0)?;
    let head = String::from_utf8_lossy(&section[..head_end]);
    let header = |wanted: &str| {
        head.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.trim().eq_ignore_ascii_case(wanted))
            .map(|(_, value)| value.trim().to_owned())
    };
    Some(Part {
        name: parameter(&header("content-disposition")?, "name")?,
        content_type: header("content-type"),
        data: body.slice(start + head_end + 4..end),
    })
}

fn boundary(content_type: &str) -> Option<String> {
    parameter(content_type, "boundary").filter(|boundary| !boundary.is_empty())
}

/// Returns the unquoted value of `name=` among the `;`-separated parameters of a header.
fn parameter(header: &str, wanted: &str) -> Option<String> {
    split_parameters(header).into_iter().find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        if !name.trim().eq_ignore_ascii_case(wanted) {
            return None;
        }
        let value = value.trim();
        let quoted = value
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'));
        Some(match quoted {
            Some(inner) => inner.replace("\\\"", "\""),
            None => value.to_owned(),
        })
    })
}

fn split_parameters(header: &str) -> Vec<&str> {
    let mut quoted = false;
    let mut escaped = false;
    header
        .split(|character| {
            match character {
                '"' if !escaped => quoted = !quoted,
                _ => {}
            }
            escaped = character == '\\' && !escaped;
            character == ';' && !quoted
        })
        .collect()
}

fn find(haystack: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    memchr::memmem::find(haystack.get(from..)?, needle).map(|found| from + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn fields_and_files_are_found() {
        let body = body(
            "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--B\r\nContent-Disposition: form-data; \
             name=\"config\"; filename=\"x;y.yml\"\r\nContent-Type: text/yaml\r\n\r\nk: v\n\r\n--B--\r\n",
        );
        let parts = parts("multipart/form-data; boundary=B", &body, 10).unwrap();
        assert_eq!(parts.len(), 2);
        assert_eq!(
            (parts[0].name.as_str(), &parts[0].data[..]),
            ("a", &b"1"[..])
        );
        assert_eq!(parts[1].name, "config");
        assert_eq!(parts[1].content_type.as_deref(), Some("text/yaml"));
        assert_eq!(&parts[1].data[..], b"k: v\n");
    }

    #[test]
    fn a_quoted_boundary_and_an_empty_part_are_read() {
        let body = body("--x y\r\nContent-Disposition: form-data; name=e\r\n\r\n\r\n--x y--");
        let parts = parts(
            "multipart/form-data; charset=u; boundary=\"x y\"",
            &body,
            10,
        )
        .unwrap();
        assert_eq!(&parts[0].data[..], b"");
    }

    #[test]
    fn a_body_that_stops_within_a_part_is_refused() {
        for text in [
            "",
            "--B",
            "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1",
        ] {
            assert_eq!(
                parts("multipart/form-data; boundary=B", &body(text), 10),
                Err(MultipartError::Truncated),
                "{text}"
            );
        }
    }

    #[test]
    fn a_missing_boundary_and_too_many_parts_are_refused() {
        assert_eq!(
            parts("multipart/form-data", &body("--"), 10),
            Err(MultipartError::NoBoundary)
        );
        let many = "--B\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n".repeat(3) + "--B--";
        assert_eq!(
            parts("multipart/form-data; boundary=B", &Bytes::from(many), 2),
            Err(MultipartError::TooManyParts)
        );
    }

    #[test]
    fn a_body_costs_as_much_as_it_is_long() {
        const TYPE: &str = "multipart/form-data; boundary=BB";
        let shapes: [fn(usize) -> String; 4] = [
            |size| {
                "--BB\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n".repeat(size)
                    + "--BB--"
            },
            |size| format!("--BB\r\n{}\r\n\r\n--BB--", "a: b\r\n".repeat(size)),
            |size| format!("--BB\r\n\r\n{}--BB--", "\r\n--B".repeat(size)),
            |size| {
                format!(
                    "--BB\r\nContent-Disposition: {}\r\n\r\n\r\n--BB--",
                    "\"\\;".repeat(size)
                )
            },
        ];
        testkit::cost::assert_linear(
            2000,
            |size| shapes.map(|shape| Bytes::from(shape(size))),
            |bodies: [Bytes; 4]| {
                for body in &bodies {
                    drop(parts(TYPE, body, usize::MAX));
                }
            },
        );
    }
}
