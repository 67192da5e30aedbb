//! Decides from headers what may be stored and sent: Cache-Control, Expires and media types. Sources: kong/tools/http.lua,
//! kong/tools/mime_type.lua.

use compact_str::CompactString;
use std::time::{Duration, SystemTime};

/// The directives of a Cache-Control header that count. Numbers are seconds. A number that cannot be read is as if the
/// directive were absent, except for a response: see [`Directives::lifetime`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Directives {
    pub(super) no_store: bool,
    pub(super) no_cache: bool,
    pub(super) private: bool,
    pub(super) only_if_cached: bool,
    pub(super) max_age: Option<u64>,
    s_maxage: Option<u64>,
    pub(super) max_stale: Option<u64>,
    pub(super) min_fresh: Option<u64>,
    /// Whether `max-age` or `s-maxage` has no readable number.
    has_unreadable_age: bool,
}

impl Directives {
    /// Reads all lines of the header. Of a directive that occurs twice, the later one counts.
    pub(super) fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut directives = Self::default();
        for directive in lines.flat_map(|line| line.split(|&byte| byte == b',')) {
            directives.add(directive);
        }
        directives
    }

    fn add(&mut self, directive: &[u8]) {
        let mut parts = directive.splitn(2, |&byte| byte == b'=');
        let name = parts.next().unwrap_or_default().trim_ascii();
        let seconds = parts.next().and_then(seconds);
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is("no-store") {
            self.no_store = true;
        } else if is("no-cache") {
            self.no_cache = true;
        } else if is("private") {
            self.private = true;
        } else if is("only-if-cached") {
            self.only_if_cached = true;
        } else if is("max-age") {
            self.max_age = seconds;
            self.has_unreadable_age |= seconds.is_none();
        } else if is("s-maxage") {
            self.s_maxage = seconds;
            self.has_unreadable_age |= seconds.is_none();
        } else if is("max-stale") {
            self.max_stale = seconds;
        } else if is("min-fresh") {
            self.min_fresh = seconds;
        }
    }

    /// Returns the seconds for which a response with these directives may be sent again: `s-maxage`, or `max-age`, or
    /// the time until `Expires`. A response with an age that cannot be read is not sent again.
    pub(super) fn lifetime(&self, expires: Option<&[u8]>, now: u64) -> u64 {
        if self.has_unreadable_age {
            return 0;
        }
        let age = self.s_maxage.or(self.max_age);
        age.or_else(|| {
            expires
                .and_then(http_date)
                .map(|end| end.saturating_sub(now))
        })
        .unwrap_or(0)
    }
}

/// Reads a number of seconds. Negative numbers count as zero, fractions are cut off.
fn seconds(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let number: f64 = text.parse().ok()?;
    // The cast keeps within the bounds of the type.
    number.is_finite().then_some(number as u64)
}

/// Returns the seconds since 1970 of a date in HTTP's form.
pub(super) fn http_date(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let time = httpdate::parse_http_date(text.trim()).ok()?;
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    Some(since.as_ref().map_or(0, Duration::as_secs))
}

/// A media type. Types and names of parameters are in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MediaType {
    kind: CompactString,
    subtype: CompactString,
    /// Sorted by name. Names are unique.
    parameters: Vec<(CompactString, CompactString)>,
}

impl MediaType {
    /// Parses `type/subtype; name=value`, where `*` is a type too. `None` if the text is anything else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, mut rest) = token(text)?;
        let (subtype, after) = match rest.strip_prefix('/') {
            Some(after) => token(after)?,
            None if kind == "*" => (kind, rest),
            None => return None,
        };
        rest = after;
        let mut parameters: Vec<(CompactString, CompactString)> = Vec::new();
        while !rest.is_empty() {
            let (name, value, after) = parameter(rest)?;
            let name = CompactString::from(name).to_ascii_lowercase();
            match parameters.binary_search_by(|(other, _)| other.as_str().cmp(&name)) {
                Ok(at) => parameters[at].1 = value.into(),
                Err(at) => parameters.insert(at, (name, value.into())),
            }
            rest = after;
        }
        Some(Self {
            kind: kind.to_ascii_lowercase().into(),
            subtype: subtype.to_ascii_lowercase().into(),
            parameters,
        })
    }

    /// Whether this configured type includes the type of a response, which is `None` if it cannot be read. All
    /// parameters must be equal, also under `*/*`.
    pub(super) fn includes(&self, other: Option<&MediaType>) -> bool {
        let is_same = |own: &str, other: Option<&CompactString>| {
            own == "*" || other.is_some_and(|other| own == other)
        };
        is_same(&self.kind, other.map(|other| &other.kind))
            && is_same(&self.subtype, other.map(|other| &other.subtype))
            && self.parameters == other.map_or(&[][..], |other| &other.parameters)
    }
}

/// Splits `; name=value` off the beginning.
fn parameter(text: &str) -> Option<(&str, &str, &str)> {
    let text = text.trim_start_matches([' ', '\t']).strip_prefix(';')?;
    let (name, rest) = token(text.trim_start_matches([' ', '\t']))?;
    let rest = rest.strip_prefix('=')?;
    match rest.strip_prefix('"') {
        None => token(rest).map(|(value, rest)| (name, value, rest)),
        Some(quoted) => {
            let end = closing_quote(quoted)?;
            Some((name, &quoted[..end], &quoted[end + 1..]))
        }
    }
}

/// Returns the position of the quote that ends a quoted text. A backslash makes the next character part of the text.
fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

/// Splits a token off the beginning. `None` if there is none.
fn token(text: &str) -> Option<(&str, &str)> {
    let is_token = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte);
    let end = text.bytes().position(|byte| !is_token(byte));
    let (token, rest) = text.split_at(end.unwrap_or(text.len()));
    (!token.is_empty()).then_some((token, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directives(lines: &[&str]) -> Directives {
        Directives::parse(lines.iter().map(|line| line.as_bytes()))
    }

    #[test]
    fn directives_are_read_from_all_lines_in_any_case() {
        let read = directives(&["No-Store , max-age=60", "private=\"x\",MIN-FRESH = 5 "]);
        let expected = Directives {
            no_store: true,
            private: true,
            max_age: Some(60),
            min_fresh: Some(5),
            ..Directives::default()
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn strange_directives_are_ignored() {
        for text in [
            "",
            ",,",
            "=",
            "=5",
            "public",
            "max-stale",
            "max-stale=x",
            "no-stores",
        ] {
            assert_eq!(directives(&[text]), Directives::default(), "{text}");
        }
    }

    #[test]
    fn a_shared_age_comes_first_then_the_age_then_the_date() {
        let date = Some(b"Thu, 01 Jan 2099 00:00:00 GMT".as_slice());
        let lifetime = |text, expires| directives(&[text]).lifetime(expires, 4_070_908_790);
        assert_eq!(lifetime("max-age=60, s-maxage=5", date), 5);
        assert_eq!(lifetime("s-maxage=0, max-age=60", date), 0);
        assert_eq!(lifetime("max-age=60", date), 60);
        assert_eq!(lifetime("public", date), 10);
        assert_eq!(lifetime("", None), 0);
        assert_eq!(lifetime("", Some(b"0")), 0);
        assert_eq!(lifetime("", Some(b"Thu, 01 Jan 2009 00:00:00 GMT")), 0);
    }

    #[test]
    fn ages_that_are_no_numbers_end_at_once() {
        let date = Some(b"Thu, 01 Jan 2099 00:00:00 GMT".as_slice());
        for text in [
            "max-age=",
            "max-age",
            "max-age=x",
            "s-maxage=nan",
            "max-age=-5",
            "max-age=inf",
        ] {
            assert_eq!(directives(&[text]).lifetime(date, 0), 0, "{text}");
        }
        assert_eq!(directives(&["max-age=1e300"]).lifetime(None, 0), u64::MAX);
    }

    fn includes(configured: &str, response: &str) -> bool {
        let configured = MediaType::parse(configured).unwrap();
        configured.includes(MediaType::parse(response).as_ref())
    }

    #[test]
    fn types_match_in_any_case_and_with_wildcards() {
        assert!(includes("text/plain", "TEXT/Plain"));
        assert!(includes("text/*", "text/csv"));
        assert!(includes("*/*", "image/png"));
        assert!(includes("*", "image/png"));
        assert!(!includes("text/*", "image/png"));
        assert!(!includes("text/plain", "text/html"));
    }

    #[test]
    fn parameters_must_be_the_same() {
        assert!(!includes("text/plain", "text/plain; charset=utf-8"));
        assert!(!includes("*/*", "text/plain; charset=utf-8"));
        assert!(!includes("text/plain; charset=utf-8", "text/plain"));
        assert!(!includes(
            "text/plain; charset=utf-8",
            "text/plain; charset=ascii"
        ));
        assert!(includes(
            "text/plain; charset=utf-8",
            "text/plain;Charset=\"utf-8\""
        ));
        assert!(includes("a/b; x=1; y=2", "a/b;y=2 ;\tx=1"));
    }

    #[test]
    fn what_is_no_type_matches_only_everything() {
        for text in [
            "",
            "text",
            "text/",
            "/plain",
            "text/plain;",
            "text/plain; a",
            "a b/c",
        ] {
            assert_eq!(MediaType::parse(text), None, "{text}");
            assert!(includes("*/*", text), "{text}");
            assert!(!includes("text/*", text), "{text}");
        }
    }

    #[test]
    fn a_header_costs_as_much_as_it_is_long() {
        testkit::cost::assert_linear(
            2000,
            |size| {
                ["max-age=1,", "=,", ";a=b", "\"\\", "text/plain;"].map(|shape| shape.repeat(size))
            },
            |texts: [String; 5]| {
                for text in &texts {
                    std::hint::black_box((
                        Directives::parse(std::iter::once(text.as_bytes())),
                        MediaType::parse(text),
                    ));
                }
            },
        );
    }
}
