//! Cache-Control as RFC 9111, section 5.2 defines it, with the extensions of RFC 5861. Unlike Kong's reading, it knows
//! quoted strings, takes the strictest of repeated directives, and never takes an unreadable number as permission.

use compact_str::CompactString;

/// Largest number of seconds (RFC 9111, section 1.2.2).
const MAX_SECONDS: u64 = 1 << 31;

/// Maximum number of field names in `no-cache` and `private`. A response with more is treated as if it had named none,
/// which is stricter.
const MAX_NAMES: usize = 16;

/// The directives of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ResponseDirectives {
    pub(super) no_store: bool,
    pub(super) no_cache: bool,
    pub(super) private: bool,
    pub(super) public: bool,
    pub(super) must_revalidate: bool,
    pub(super) proxy_revalidate: bool,
    pub(super) must_understand: bool,
    pub(super) max_age: Option<u64>,
    pub(super) s_maxage: Option<u64>,
    pub(super) while_revalidate: u64,
    pub(super) if_error: u64,
    /// Names of header fields that are not stored: those of `no-cache="…"` and `private="…"`.
    pub(super) hidden: Vec<CompactString>,
}

/// The directives of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RequestDirectives {
    pub(super) no_store: bool,
    pub(super) no_cache: bool,
    pub(super) only_if_cached: bool,
    pub(super) max_age: Option<u64>,
    pub(super) min_fresh: Option<u64>,
    pub(super) max_stale: Option<u64>,
    pub(super) if_error: u64,
}

impl ResponseDirectives {
    pub(super) fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut read = Self::default();
        for (name, value) in lines.flat_map(split) {
            read.add(name, value);
        }
        read
    }

    fn add(&mut self, name: &[u8], value: Option<&[u8]>) {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is("no-store") {
            self.no_store = true;
        } else if is("no-cache") {
            self.no_cache |= !self.hide(value);
        } else if is("private") {
            self.private |= !self.hide(value);
        } else if is("public") {
            self.public = true;
        } else if is("must-revalidate") {
            self.must_revalidate = true;
        } else if is("proxy-revalidate") {
            self.proxy_revalidate = true;
        } else if is("must-understand") {
            self.must_understand = true;
        } else if is("max-age") {
            self.max_age = strictest(self.max_age, value);
        } else if is("s-maxage") {
            self.s_maxage = strictest(self.s_maxage, value);
        } else if is("stale-while-revalidate") {
            self.while_revalidate = seconds(value).unwrap_or(0);
        } else if is("stale-if-error") {
            self.if_error = seconds(value).unwrap_or(0);
        }
    }

    /// Takes the field names of a directive. Returns whether it has any that can be read, so that it concerns only them.
    fn hide(&mut self, value: Option<&[u8]>) -> bool {
        let Some(value) = value else {
            return false;
        };
        let names = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        let names = names.filter(|name| !name.is_empty());
        let names: Vec<CompactString> = names
            .map(|name| CompactString::from_utf8_lossy(name).to_ascii_lowercase())
            .collect();
        let is_readable = !names.is_empty() && self.hidden.len() + names.len() <= MAX_NAMES;
        if is_readable {
            self.hidden.extend(names);
        }
        is_readable
    }

    pub(super) fn hides(&self, name: &str) -> bool {
        let mut hidden = self.hidden.iter();
        hidden.any(|hidden| hidden.eq_ignore_ascii_case(name))
    }
}

impl RequestDirectives {
    pub(super) fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut read = Self::default();
        for (name, value) in lines.flat_map(split) {
            read.add(name, value);
        }
        read
    }

    fn add(&mut self, name: &[u8], value: Option<&[u8]>) {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is("no-store") {
            self.no_store = true;
        } else if is("no-cache") {
            self.no_cache = true;
        } else if is("only-if-cached") {
            self.only_if_cached = true;
        } else if is("max-age") {
            self.max_age = strictest(self.max_age, value);
        } else if is("min-fresh") {
            // The client wants something fresh, and an unreadable number does not say for how long.
            let seconds = seconds(value).unwrap_or(MAX_SECONDS);
            self.min_fresh = self.min_fresh.max(Some(seconds));
        } else if is("max-stale") {
            let stale = match value {
                // Any staleness.
                None => MAX_SECONDS,
                value => seconds(value).unwrap_or(0),
            };
            self.max_stale = Some(self.max_stale.map_or(stale, |other| other.min(stale)));
        } else if is("stale-if-error") {
            self.if_error = seconds(value).unwrap_or(0);
        }
    }
}

/// Returns the smaller of two numbers of seconds. An unreadable number is zero, so that the response is stale.
fn strictest(known: Option<u64>, value: Option<&[u8]>) -> Option<u64> {
    let seconds = seconds(value).unwrap_or(0);
    Some(known.map_or(seconds, |known| known.min(seconds)))
}

/// Reads a number of seconds, which has only digits.
fn seconds(value: Option<&[u8]>) -> Option<u64> {
    let digits = value?;
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| (sum * 10 + u64::from(digit - b'0')).min(MAX_SECONDS);
    Some(digits.iter().fold(0, add))
}

/// Splits a line into directives with their values. A value in quotes comes without them.
fn split(line: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = end_of_member(rest);
        let member = rest[..end].trim_ascii();
        rest = rest.get(end + 1..).unwrap_or_default();
        Some(match memchr::memchr(b'=', member) {
            None => (member, None),
            Some(at) => {
                let value = &member[at + 1..];
                let inner = value.strip_prefix(b"\"");
                let inner = inner.and_then(|inner| inner.strip_suffix(b"\""));
                (member[..at].trim_ascii_end(), Some(inner.unwrap_or(value)))
            }
        })
    })
}

/// Returns the position of the comma that ends the first member of a list. Commas in quoted strings do not count.
fn end_of_member(list: &[u8]) -> usize {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let end = list.iter().position(|&byte| {
        let is_end = byte == b',' && !is_quoted;
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
        is_end
    });
    end.unwrap_or(list.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(line: &str) -> ResponseDirectives {
        ResponseDirectives::parse(std::iter::once(line.as_bytes()))
    }

    fn request(line: &str) -> RequestDirectives {
        RequestDirectives::parse(std::iter::once(line.as_bytes()))
    }

    #[test]
    fn ages_are_digits_and_the_strictest_counts() {
        for (line, age) in [
            ("max-age=60", Some(60)),
            ("MAX-AGE=\"60\"", Some(60)),
            ("max-age=0060", Some(60)),
            ("max-age=60, max-age=5", Some(5)),
            ("max-age=5, max-age=60", Some(5)),
            ("max-age=99999999999999999999999", Some(MAX_SECONDS)),
            ("max-age=-1", Some(0)),
            ("max-age=6.5", Some(0)),
            ("max-age='60'", Some(0)),
            ("max-age=60x", Some(0)),
            ("max-age= 60", Some(0)),
            ("max-age", Some(0)),
            ("x=\"a, max-age=60\"", None),
            ("x=\"\\\", max-age=60", None),
            ("max-aged=60", None),
            ("", None),
        ] {
            assert_eq!(response(line).max_age, age, "{line}");
        }
    }

    #[test]
    fn named_fields_are_hidden_and_the_rest_stays_usable() {
        let read = response("no-cache=\"Set-Cookie, x-a\", private=\"X-B\"");
        assert!(!read.no_cache && !read.private);
        assert!(read.hides("set-cookie") && read.hides("X-A") && read.hides("x-b"));
        let many = format!("no-cache=\"{}\"", "x,".repeat(17));
        for line in ["no-cache", "no-cache=", "no-cache=\",\"", &many] {
            assert!(response(line).no_cache, "{line}");
        }
    }

    #[test]
    fn requests_ask_for_freshness() {
        let read = request("max-stale, min-fresh=5, stale-if-error=9");
        assert_eq!(
            (read.max_stale, read.min_fresh),
            (Some(MAX_SECONDS), Some(5))
        );
        assert_eq!(read.if_error, 9);
        assert_eq!(request("max-stale=x").max_stale, Some(0));
        assert_eq!(request("min-fresh=x").min_fresh, Some(MAX_SECONDS));
    }

    #[test]
    fn a_line_costs_as_much_as_it_is_long() {
        testkit::cost::assert_linear(
            2000,
            |size| ["\"", ",", "=\\,", "no-cache=\"a\",", "\"a,"].map(|piece| piece.repeat(size)),
            |lines: [String; 5]| {
                for line in &lines {
                    std::hint::black_box((response(line), request(line)));
                }
            },
        );
    }
}
