//! The names of counters in Redis. They are Kong's, so that its nodes can count in the same Redis.

use super::counters::Identifier;
use super::window::{Moment, Period};
use aws_lc_rs::digest::{Context, SHA256};
use sha1::{Digest, Sha1};
use uuid::Uuid;

/// Maximum bytes of names that a node keeps for a client that nobody has configured.
const MAX_KEPT: usize = 512;

/// What is before the window in the names of the counters of one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names(Vec<u8>);

impl Names {
    /// `plugin` is Kong's word for the counters of a plugin. In a Cluster, all counters of a client must be on one node,
    /// so that a name begins with a hash tag. Only a digest is certain to have no braces: clients choose the identifier.
    pub(crate) fn new(
        plugin: &str,
        route: Option<Uuid>,
        service: Option<Uuid>,
        identifier: Identifier<'_>,
        in_cluster: bool,
    ) -> Self {
        let (route, service) = (route.unwrap_or_default(), service.unwrap_or_default());
        let mut rest = format!("{route}:{service}:").into_bytes();
        match identifier {
            Identifier::Text(text) => rest.extend_from_slice(text),
            Identifier::Id(id) | Identifier::Made(id) => rest.extend(id.to_string().into_bytes()),
            Identifier::Address(address) => rest.extend(address.to_string().into_bytes()),
        }
        let mut name = format!("{plugin}:").into_bytes();
        if in_cluster {
            let digest = Sha1::digest(&rest);
            let digest = data_encoding::HEXLOWER.encode(digest.get(..10).unwrap_or_default());
            name.extend(format!("{{{digest}}}:").into_bytes());
        }
        name.append(&mut rest);
        Self(name)
    }

    /// Returns a digest, for which clients cannot find another identifier. Texts that look like addresses or ids have
    /// other digests than those.
    pub(super) fn digest(&self, identifier: Identifier<'_>) -> [u8; 16] {
        let kind = match identifier {
            Identifier::Text(_) => 0,
            Identifier::Id(_) => 1,
            Identifier::Made(_) => 2,
            Identifier::Address(_) => 3,
        };
        let mut context = Context::new(&SHA256);
        context.update(&[kind]);
        context.update(&self.0);
        let digest = context.finish();
        digest.as_ref().first_chunk().copied().unwrap_or_default()
    }

    /// Whether the names take more memory than a node keeps for a client that nobody has configured. The value of a header
    /// can have many kilobytes.
    pub(super) fn is_long(&self) -> bool {
        self.0.len() > MAX_KEPT
    }

    /// Returns the name of the counter of a window, which begins at this number of units of the period. `what` comes
    /// before the period's name.
    pub(crate) fn of_window(&self, what: &str, period: Period, begin: u64) -> Vec<u8> {
        let begin = u128::from(begin) * u128::from(period.unit()) * 1000;
        let mut name = self.0.clone();
        name.extend(format!(":{begin}:{what}{}", period.name()).into_bytes());
        name
    }

    pub(crate) fn current(&self, what: &str, period: Period, moment: &Moment) -> Vec<u8> {
        self.of_window(what, period, moment.window(period))
    }
}

/// The lifetime of a counter in seconds. Kong lets the counters of a month live for 30 days and those of a year for 365,
/// so that they can end before their window.
pub(crate) fn lifetime(period: Period) -> Vec<u8> {
    period.longest().to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::window::Calendar;
    use super::*;

    fn name(identifier: Identifier<'_>, in_cluster: bool) -> String {
        let route = Some(Uuid::from_u128(1));
        let names = Names::new("ratelimit", route, None, identifier, in_cluster);
        let moment = Calendar::default().moment(1_800_000_030);
        String::from_utf8(names.current("", Period::Minute, &moment)).unwrap()
    }

    #[test]
    fn names_are_kongs() {
        let scope = "00000000-0000-0000-0000-000000000001:00000000-0000-0000-0000-000000000000";
        let expected =
            |identifier: &str| format!("ratelimit:{scope}:{identifier}:1800000000000:minute");
        let address = Identifier::Address("2001:db8::1".parse().unwrap());
        assert_eq!(name(address, false), expected("2001:db8::1"));
        let id = Identifier::Id(Uuid::from_u128(7));
        assert_eq!(
            name(id, false),
            expected("00000000-0000-0000-0000-000000000007")
        );
        assert_eq!(name(Identifier::Text(b"a {b}"), false), expected("a {b}"));
    }

    #[test]
    fn a_text_that_looks_like_an_address_has_another_digest() {
        let digest = |identifier| Names::new("a", None, None, identifier, false).digest(identifier);
        let address = Identifier::Address([192, 0, 2, 1].into());
        assert_ne!(digest(Identifier::Text(b"192.0.2.1")), digest(address));
        assert_eq!(digest(address), digest(address));
    }

    #[test]
    fn the_first_braces_of_a_name_in_a_cluster_are_those_of_the_digest() {
        let first = name(Identifier::Text(b"{x}"), true);
        assert!(first.starts_with("ratelimit:{"), "{first}");
        let tag = |name: &str| name.split(['{', '}']).nth(1).unwrap().to_owned();
        assert_eq!(tag(&first).len(), 20);
        assert_ne!(tag(&first), tag(&name(Identifier::Text(b"{x}{y}"), true)));
    }
}
