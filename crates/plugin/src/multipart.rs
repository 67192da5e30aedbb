//! Bodies of type `multipart/form-data`: finds, replaces and removes parts, and encodes the remaining ones.

use memchr::memmem;

/// A parsed body. The parts are in the order of the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multipart {
    boundary: Vec<u8>,
    parts: Vec<Part>,
}

/// A named part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub name: Vec<u8>,
    /// The header lines, without the blank line after them.
    head: Vec<u8>,
    pub content: Vec<u8>,
}

impl Multipart {
    /// Parses a body. An empty one has no parts. Returns `None` if there is no boundary in the content type or no end in
    /// the body. Text before the first part and parts without a name, or with two of them, are left out.
    pub fn parse(content_type: &[u8], body: &[u8]) -> Option<Self> {
        let (parsed, has_end) = Self::read(content_type, body)?;
        has_end.then_some(parsed)
    }

    /// Parses a body that may break off. The parts that another one follows are known, as in Kong.
    pub fn parse_begun(content_type: &[u8], body: &[u8]) -> Option<Self> {
        Self::read(content_type, body).map(|(parsed, _)| parsed)
    }

    /// Returns the parts, and whether the body has an end.
    fn read(content_type: &[u8], body: &[u8]) -> Option<(Self, bool)> {
        let boundary = parameter(content_type, "boundary")?.to_vec();
        let delimiter = memmem::Finder::new(&[b"--", boundary.as_slice()].concat()).into_owned();
        let length = delimiter.needle().len();
        let (mut parts, mut has_end) = (Vec::new(), body.is_empty());
        let mut rest = delimiter.find(body).map(|at| &body[at + length..]);
        while let Some(text) = rest {
            has_end = text.starts_with(b"--");
            rest = delimiter.find(text).filter(|_| !has_end).map(|end| {
                parts.extend(parse_part(&text[..end]));
                &text[end + length..]
            });
        }
        Some((Self { boundary, parts }, has_end))
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the content of the first part with this name.
    pub fn first(&self, name: &[u8]) -> Option<&[u8]> {
        let mut parts = self.parts.iter();
        parts
            .find(|part| part.name == name)
            .map(|part| part.content.as_slice())
    }

    /// Removes all parts with this name.
    pub fn remove(&mut self, name: &[u8]) {
        self.parts.retain(|part| part.name != name);
    }

    /// Replaces the first part with this name by one that has only a name, or adds one at the end.
    pub fn set(&mut self, name: &[u8], content: Vec<u8>) {
        let mut head = b"Content-Disposition: form-data; name=\"".to_vec();
        push_name(&mut head, name);
        head.push(b'"');
        let part = Part {
            name: name.to_vec(),
            head,
            content,
        };
        match self.parts.iter_mut().find(|part| part.name == name) {
            Some(old) => *old = part,
            None => self.parts.push(part),
        }
    }

    /// Whether a part may have this content. It must not contain the boundary, after which another part would begin.
    pub fn may_contain(&self, content: &[u8]) -> bool {
        memmem::find(content, &[b"--", self.boundary.as_slice()].concat()).is_none()
    }

    /// Sorts the parts by name.
    pub fn sort(&mut self) {
        self.parts.sort_by(|one, two| one.name.cmp(&two.name));
    }

    /// Encodes the parts with their header lines.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for part in &self.parts {
            out.extend_from_slice(b"--");
            out.extend_from_slice(&self.boundary);
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(&part.head);
            out.extend_from_slice(b"\r\n\r\n");
            out.extend_from_slice(&part.content);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"--");
        out.extend_from_slice(&self.boundary);
        out.extend_from_slice(b"--\r\n");
        out
    }
}

/// Writes a name between quotes. Characters that would end it are encoded as browsers do.
fn push_name(out: &mut Vec<u8>, name: &[u8]) {
    for &byte in name {
        match byte {
            b'"' => out.extend_from_slice(b"%22"),
            b'\r' => out.extend_from_slice(b"%0D"),
            b'\n' => out.extend_from_slice(b"%0A"),
            _ => out.push(byte),
        }
    }
}

/// Parses the text between two delimiters: line break, header lines, blank line, content, line break.
fn parse_part(text: &[u8]) -> Option<Part> {
    let text = strip_line_break(text);
    let (head, content) = match memmem::find(text, b"\r\n\r\n") {
        Some(at) => (&text[..at], &text[at + 4..]),
        None => {
            let at = memmem::find(text, b"\n\n")?;
            (&text[..at], &text[at + 2..])
        }
    };
    let content = content
        .strip_suffix(b"\r\n")
        .or_else(|| content.strip_suffix(b"\n"))
        .unwrap_or(content);
    let mut dispositions = head.split(|&byte| byte == b'\n').filter(|line| {
        let name = line.get(..b"content-disposition:".len());
        name.is_some_and(|name| name.eq_ignore_ascii_case(b"content-disposition:"))
    });
    let disposition = dispositions.next()?;
    if dispositions.next().is_some() {
        // The upstream could use the other one, and read a part that a plugin has to remove.
        return None;
    }
    Some(Part {
        name: parameter(disposition, "name")?.to_vec(),
        head: head.to_vec(),
        content: content.to_vec(),
    })
}

fn strip_line_break(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\r\n")
        .or_else(|| text.strip_prefix(b"\n"))
        .unwrap_or(text)
}

/// Returns the value of `; name=value` or `; name="value"` in a header.
fn parameter<'a>(header: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut is_quoted = false;
    header
        .split(|&byte| {
            is_quoted ^= byte == b'"';
            byte == b';' && !is_quoted
        })
        .skip(1)
        .map(<[u8]>::trim_ascii)
        .find_map(|piece| {
            let at = memchr::memchr(b'=', piece)?;
            let value = piece[at + 1..].trim_ascii();
            let value = value
                .strip_prefix(b"\"")
                .and_then(|value| value.strip_suffix(b"\""))
                .unwrap_or(value);
            let same = piece[..at]
                .trim_ascii()
                .eq_ignore_ascii_case(name.as_bytes());
            (same && !value.is_empty()).then_some(value)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &[u8] = b"multipart/form-data; boundary=B";

    fn part(name: &str, content: &str) -> String {
        format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
    }

    fn text(parsed: &Multipart) -> String {
        String::from_utf8(parsed.encode()).expect("a text")
    }

    #[test]
    fn parts_are_replaced_in_their_place_and_added_at_the_end() {
        let body = [part("a", "1"), part("b", "2"), "--B--\r\n".to_owned()].concat();
        let mut parsed = Multipart::parse(TYPE, body.as_bytes()).expect("well formed");
        parsed.set(b"a", b"x".to_vec());
        parsed.set(b"c\"\r\n", b"y".to_vec());
        let wanted = [part("a", "x"), part("b", "2"), part("c%22%0D%0A", "y")].concat();
        assert_eq!(text(&parsed), wanted + "--B--\r\n");
        assert_eq!(parsed.first(b"b"), Some(&b"2"[..]));
    }

    #[test]
    fn a_semicolon_in_quotes_ends_no_parameter() {
        let head = "Content-Disposition: form-data; filename=\"; name=b\"; name=\"a\"";
        let body = format!("--B\r\n{head}\r\n\r\n1\r\n--B--\r\n");
        let parsed = Multipart::parse(TYPE, body.as_bytes()).expect("well formed");
        assert_eq!(parsed.first(b"a"), Some(&b"1"[..]));
        assert_eq!(parsed.first(b"b\""), None);
    }

    #[test]
    fn a_part_with_two_names_is_left_out() {
        let line = |name: &str| format!("Content-Disposition: form-data; name=\"{name}\"\r\n");
        let body = format!("--B\r\n{}{}\r\n1\r\n--B--\r\n", line("a"), line("b"));
        let parsed = Multipart::parse(TYPE, body.as_bytes()).expect("well formed");
        assert!(parsed.parts().is_empty());
    }

    #[test]
    fn an_empty_body_has_no_parts() {
        let mut parsed = Multipart::parse(TYPE, b"").expect("it has a boundary");
        assert!(parsed.parts().is_empty());
        parsed.set(b"a", b"1".to_vec());
        assert_eq!(text(&parsed), part("a", "1") + "--B--\r\n");
        assert_eq!(Multipart::parse(b"multipart/form-data", b""), None);
    }

    #[test]
    fn no_part_is_lost_however_many_there_are() {
        let body = part("a", "1").repeat(250) + "--B--\r\n";
        let parsed = Multipart::parse(TYPE, body.as_bytes()).expect("well formed");
        assert_eq!(text(&parsed), body);
    }

    #[test]
    fn a_body_that_breaks_off_has_the_parts_before_the_last_one() {
        let body = [&part("a", "1"), &part("b", "2")[..20]].concat();
        assert_eq!(Multipart::parse(TYPE, body.as_bytes()), None);
        let parsed = Multipart::parse_begun(TYPE, body.as_bytes()).expect("it has a boundary");
        assert_eq!(text(&parsed), part("a", "1") + "--B--\r\n");
        assert_eq!(Multipart::parse(TYPE, b"no delimiter"), None);
    }

    #[test]
    fn content_with_the_boundary_does_not_fit() {
        let parsed = Multipart::parse(TYPE, b"").expect("it has a boundary");
        assert!(parsed.may_contain(b"-B\r\n--"));
        assert!(!parsed.may_contain(b"x\r\n--B\r\n"));
    }
}
