//! Gives the load balancer the attributes of a request that its hash can use, so that similar requests reach the same
//! target.

use crate::balance::{Group, HashSource};
use model::uri::{Slashes, normalize};
use plugin::{RequestCx, args};
use std::borrow::Cow;
use std::net::IpAddr;
use uuid::Uuid;

pub(super) struct Hashed<'a>(pub(super) &'a RequestCx<'a>);

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
        let credential = || self.0.credential.as_ref().map(|credential| credential.id);
        let consumer = self.0.consumer.as_ref().map(|consumer| consumer.id.0);
        consumer.or_else(credential)
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let mut lines = self.lines(name);
        let first = Cow::from(lines.next()?);
        Some(lines.fold(first, |joined, line| {
            Cow::from([&*joined, b", ", line].concat())
        }))
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
        let args = args::parse(self.0.query().as_bytes());
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
            Group::Name(name) => capture.name == Some(name),
            Group::Number(number) => capture.number == *number,
        });
        found.map(|capture| Cow::from(capture.value.as_bytes()))
    }
}
