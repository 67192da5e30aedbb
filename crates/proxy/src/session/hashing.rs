//! Gives the load balancer the attributes of a request that its hash can use, so that similar requests reach the same
//! target.

use crate::balance::{Group, HashSource};
use model::uri::{Slashes, normalize};
use plugin::{Request, RequestState, args};
use std::borrow::Cow;
use std::net::IpAddr;
use uuid::Uuid;

pub(super) struct Hashed<'a>(
    pub(super) &'a Request<'a>,
    pub(super) Option<&'a RequestState>,
);

impl Hashed<'_> {
    fn lines<'n>(&self, name: &'n str) -> impl Iterator<Item = &[u8]> + use<'_, 'n> {
        let pairs = self.0.header_pairs();
        pairs
            .filter(move |(sent, _)| is_named(sent, name))
            .map(|(_, value)| value)
    }
}

/// Compares a header's name with nginx's form of it: lower case, with `_` for `-`.
fn is_named(sent: &str, name: &str) -> bool {
    let lowered = sent.bytes().map(|byte| match byte {
        b'-' => b'_',
        byte => byte.to_ascii_lowercase(),
    });
    sent.len() == name.len() && lowered.eq(name.bytes())
}

impl HashSource for Hashed<'_> {
    fn ip(&self) -> IpAddr {
        self.0.client.ip
    }

    fn consumer(&self) -> Option<Uuid> {
        let state = self.1?;
        let credential = || state.credential.as_ref().map(|credential| credential.id);
        let consumer = state.consumer.as_ref().map(|consumer| consumer.id.0);
        consumer.or_else(credential)
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let mut lines = self.lines(name);
        let first = lines.next()?;
        let Some(second) = lines.next() else {
            return Some(first.into());
        };
        let all: Vec<&[u8]> = [first, second].into_iter().chain(lines).collect();
        Some(all.join(&b", "[..]).into())
    }

    fn cookie(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let pieces = (self.lines("cookie")).flat_map(|line| line.split(|byte| *byte == b';'));
        let mut values = pieces.filter_map(|piece| {
            let (own, value) = piece.trim_ascii().split_at_checked(name.len())?;
            let value = value.trim_ascii_start().strip_prefix(b"=")?;
            own.eq_ignore_ascii_case(name.as_bytes())
                .then(|| value.trim_ascii())
        });
        values.next().map(Cow::from)
    }

    fn path(&self) -> Option<Cow<'_, [u8]>> {
        Some(normalize(self.0.head.path_bytes(), Slashes::Merge))
    }

    fn query_arg(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let args = args::parse(self.0.query());
        let own = args.filter(|arg| *arg.name == *name.as_bytes());
        let mut values: Vec<Cow<'_, [u8]>> = own
            .map(|arg| arg.value.unwrap_or(Cow::Borrowed(b"true")))
            .collect();
        values.sort();
        match values.len() {
            0 => None,
            1 => values.pop(),
            _ => Some(Cow::from(values.join(&b","[..]))),
        }
    }

    fn capture(&self, group: &Group) -> Option<Cow<'_, [u8]>> {
        let found = self.0.captures.iter().rfind(|capture| match group {
            Group::Name(name) => capture.name.as_deref() == Some(name),
            Group::Number(number) => capture.number == *number,
        });
        found.map(|capture| Cow::from(capture.value.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::http1::{Limits, RequestHead};
    fn head(target: &str, lines: &str) -> RequestHead {
        let wide = Limits {
            line: 1 << 20,
            head: 1 << 20,
            lines: 1 << 16,
        };
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        RequestHead::parse(text.as_bytes(), &wide)
            .unwrap()
            .unwrap()
            .0
    }

    #[test]
    fn all_lines_of_a_header_are_hashed_as_one() {
        let hashed = |lines: &str| {
            let head = head("/", lines);
            let context = Request::bare(&head);
            let request = Hashed(&context, None);
            let value = request.header("x_a");
            value.map(|value| String::from_utf8_lossy(&value).into_owned())
        };
        assert_eq!(hashed("X-B: 1\r\n"), None);
        assert_eq!(hashed("X-A: 1\r\n").as_deref(), Some("1"));
        let three = hashed("X-A: 1\r\nx-a: 2\r\nX-A: 3\r\n");
        assert_eq!(three.as_deref(), Some("1, 2, 3"));
        // Kong hashes nginx's variable, which has all lines, not the first 100 as Kong's header tables.
        let late = "X-B: 1\r\n".repeat(120) + "X-A: 1\r\n";
        assert_eq!(hashed(&late).as_deref(), Some("1"));
    }

    #[test]
    fn what_is_hashed_costs_as_much_as_it_is_long() {
        testkit::cost::assert_linear(
            800,
            |size| {
                let line = format!("X-A: {}\r\n", "a".repeat(100));
                [
                    head("/", &line.repeat(size)),
                    head("/", &format!("Cookie: {}\r\n", "session;b=c;".repeat(size))),
                    head("/", &format!("Cookie: {}\r\n", ";".repeat(size))),
                    head("/", &"Cookie: a=b\r\n".repeat(size)),
                    head(&format!("/?{}", "a=1&".repeat(size)), ""),
                    head(
                        &format!("/{}?{}", "%2e./".repeat(size), "&".repeat(size)),
                        "",
                    ),
                ]
            },
            |heads: [RequestHead; 6]| {
                for head in &heads {
                    let context = Request::bare(head);
                    let hashed = Hashed(&context, None);
                    std::hint::black_box((hashed.header("x_a"), hashed.cookie("session")));
                    std::hint::black_box((hashed.query_arg("a"), hashed.path()));
                }
            },
        );
    }
}
