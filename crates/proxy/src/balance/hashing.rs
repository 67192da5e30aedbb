//! Computes the hash of a request for consistent hashing, from the property that the upstream configures.
//! Source: kong/runloop/balancer/init.lua get_value_to_hash(), set_cookie().

use super::ring;
use model::entities::{HashOn, Upstream};
use std::borrow::Cow;
use std::net::IpAddr;
use uuid::Uuid;

/// `hash_on` and `hash_fallback` of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashing {
    primary: Input,
    fallback: Option<Input>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Input {
    Consumer,
    Ip,
    /// A header, by its name in lower case with `_` for `-`.
    Header(Box<str>),
    Cookie(Cookie),
    Path,
    QueryArg(Box<str>),
    UriCapture(Group),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Cookie {
    name: Box<str>,
    path: Box<str>,
}

/// A capture group of a route's regex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Group {
    Name(Box<str>),
    /// The number of a group, counted from 1.
    Number(usize),
}

/// The properties of a request or stream connection that hashing can use. A connection has only some of them.
pub trait HashSource {
    /// The client's IP address, after real-IP processing.
    fn ip(&self) -> IpAddr;

    /// The consumer's id, or else that of the credential.
    fn consumer(&self) -> Option<Uuid> {
        None
    }

    /// All lines of a header, joined. The name is in lower case, with `_` for `-`.
    fn header(&self, _name: &str) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn cookie(&self, _name: &str) -> Option<Cow<'_, [u8]>> {
        None
    }

    /// The normalised path.
    fn path(&self) -> Option<Cow<'_, [u8]>> {
        None
    }

    /// The values of a query argument, sorted and joined by commas. An argument without a value has the value `true`.
    fn query_arg(&self, _name: &str) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn capture(&self, _group: &Group) -> Option<Cow<'_, [u8]>> {
        None
    }
}

/// The hash of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub hash: u64,
    /// The `Set-Cookie` header for a client that has no cookie yet.
    pub set_cookie: Option<String>,
}

impl Hashing {
    /// Reads the hash settings. Returns `None` if `hash_on` is `none`.
    pub fn new(upstream: &Upstream) -> Option<Self> {
        let primary = Input::new(
            upstream.hash_on,
            upstream,
            [
                &upstream.hash_on_header,
                &upstream.hash_on_query_arg,
                &upstream.hash_on_uri_capture,
            ],
        )?;
        let fallback = Input::new(
            upstream.hash_fallback,
            upstream,
            [
                &upstream.hash_fallback_header,
                &upstream.hash_fallback_query_arg,
                &upstream.hash_fallback_uri_capture,
            ],
        );
        Some(Self { primary, fallback })
    }

    pub fn wants_captures(&self) -> bool {
        let is_capture = |input: &Input| matches!(input, Input::UriCapture(_));
        is_capture(&self.primary) || self.fallback.as_ref().is_some_and(is_capture)
    }

    /// Returns the key of a request: from the primary input, or else from the fallback. Requests without either get the
    /// key of an empty value.
    pub fn key(&self, source: &dyn HashSource) -> Key {
        let inputs = [Some(&self.primary), self.fallback.as_ref()];
        let found = inputs
            .into_iter()
            .flatten()
            .find_map(|input| input.key(source));
        found.unwrap_or_else(|| Key::of(b""))
    }
}

impl Key {
    pub fn of(value: &[u8]) -> Self {
        Self {
            hash: ring::hash(value),
            set_cookie: None,
        }
    }
}

impl Input {
    fn new(
        kind: HashOn,
        upstream: &Upstream,
        [header, query_arg, capture]: [&Option<impl AsRef<str>>; 3],
    ) -> Option<Self> {
        let text = |field: &Option<_>| {
            field
                .as_ref()
                .map(|text: &_| AsRef::<str>::as_ref(text).to_owned())
        };
        Some(match kind {
            HashOn::None => return None,
            HashOn::Consumer => Self::Consumer,
            HashOn::Ip => Self::Ip,
            HashOn::Path => Self::Path,
            HashOn::Header => {
                Self::Header(text(header)?.to_ascii_lowercase().replace('-', "_").into())
            }
            HashOn::Cookie => Self::Cookie(Cookie {
                name: upstream.hash_on_cookie.as_deref()?.into(),
                path: upstream
                    .hash_on_cookie_path
                    .as_deref()
                    .unwrap_or("/")
                    .into(),
            }),
            HashOn::QueryArg => Self::QueryArg(text(query_arg)?.into()),
            HashOn::UriCapture => {
                let group = text(capture)?;
                Self::UriCapture(match group.parse() {
                    Ok(number) => Group::Number(number),
                    Err(_) => Group::Name(group.into()),
                })
            }
        })
    }

    fn key(&self, source: &dyn HashSource) -> Option<Key> {
        let value = match self {
            Self::Consumer => {
                let id = source.consumer()?;
                return Some(Key::of(id.as_bytes()));
            }
            Self::Ip => {
                return Some(match source.ip().to_canonical() {
                    IpAddr::V4(ip) => Key::of(&ip.octets()),
                    IpAddr::V6(ip) => Key::of(&ip.octets()),
                });
            }
            Self::Header(name) => source.header(name)?,
            Self::Cookie(cookie) => match source.cookie(&cookie.name) {
                Some(value) => value,
                None => return Some(cookie.begin()),
            },
            Self::Path => source.path()?,
            Self::QueryArg(name) => source.query_arg(name)?,
            Self::UriCapture(group) => source.capture(group)?,
        };
        Some(Key::of(&value))
    }
}

impl Cookie {
    /// Creates a cookie with a random value for a client that has none, and the key of that value. The attribute is
    /// spelled `Same-Site`, as in Kong; the standard name is `SameSite`.
    fn begin(&self) -> Key {
        let value = Uuid::new_v4().hyphenated().to_string();
        let Self { name, path } = self;
        Key {
            hash: ring::hash(value.as_bytes()),
            set_cookie: Some(format!(
                "{name}={value}; Path={path}; Same-Site=Lax; HttpOnly"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[derive(Default)]
    struct Request {
        consumer: Option<Uuid>,
        header: Option<&'static str>,
        cookie: Option<&'static str>,
        query_arg: Option<&'static str>,
        capture: Option<(Group, &'static str)>,
    }

    fn bytes(text: Option<&'static str>) -> Option<Cow<'static, [u8]>> {
        text.map(|text| Cow::from(text.as_bytes()))
    }

    impl HashSource for Request {
        fn ip(&self) -> IpAddr {
            IpAddr::from([192, 0, 2, 7])
        }
        fn consumer(&self) -> Option<Uuid> {
            self.consumer
        }
        fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
            bytes(self.header.filter(|_| name == "x_user_id"))
        }
        fn cookie(&self, name: &str) -> Option<Cow<'_, [u8]>> {
            bytes(self.cookie.filter(|_| name == "session"))
        }
        fn path(&self) -> Option<Cow<'_, [u8]>> {
            bytes(Some("/a/b"))
        }
        fn query_arg(&self, name: &str) -> Option<Cow<'_, [u8]>> {
            bytes(self.query_arg.filter(|_| name == "user"))
        }
        fn capture(&self, group: &Group) -> Option<Cow<'_, [u8]>> {
            let (own, value) = self.capture.as_ref()?;
            bytes((own == group).then_some(*value))
        }
    }

    fn hashing(fields: Value) -> Hashing {
        let mut upstream =
            json!({"id": Uuid::nil(), "name": "u", "algorithm": "consistent-hashing"});
        for (name, value) in fields.as_object().unwrap() {
            upstream[name] = value.clone();
        }
        let upstream: Upstream = serde_json::from_value(upstream).unwrap();
        Hashing::new(&upstream).unwrap()
    }

    fn check(fields: Value, request: &Request, expected: &[u8]) {
        let key = hashing(fields.clone()).key(request);
        assert_eq!(key, Key::of(expected), "{fields}");
    }

    #[test]
    fn requests_are_hashed_by_the_property_that_the_upstream_names() {
        let id = Uuid::from_u128(5);
        let request = Request {
            consumer: Some(id),
            header: Some("u-1"),
            cookie: Some("c-1"),
            query_arg: Some("q-1"),
            capture: Some((Group::Name("who".into()), "w-1")),
        };
        check(json!({"hash_on": "consumer"}), &request, id.as_bytes());
        check(json!({"hash_on": "ip"}), &request, &[192, 0, 2, 7]);
        check(
            json!({"hash_on": "header", "hash_on_header": "X-User-Id"}),
            &request,
            b"u-1",
        );
        check(
            json!({"hash_on": "cookie", "hash_on_cookie": "session"}),
            &request,
            b"c-1",
        );
        check(json!({"hash_on": "path"}), &request, b"/a/b");
        check(
            json!({"hash_on": "query_arg", "hash_on_query_arg": "user"}),
            &request,
            b"q-1",
        );
        check(
            json!({"hash_on": "uri_capture", "hash_on_uri_capture": "who"}),
            &request,
            b"w-1",
        );
        let numbered = Request {
            capture: Some((Group::Number(2), "w-2")),
            ..Request::default()
        };
        check(
            json!({"hash_on": "uri_capture", "hash_on_uri_capture": "2"}),
            &numbered,
            b"w-2",
        );
    }

    #[test]
    fn the_fallback_is_for_requests_that_lack_the_first() {
        let fields = json!({
            "hash_on": "header", "hash_on_header": "x-user-id",
            "hash_fallback": "query_arg", "hash_fallback_query_arg": "user",
        });
        let both = Request {
            header: Some("h"),
            query_arg: Some("q"),
            ..Request::default()
        };
        check(fields.clone(), &both, b"h");
        let second = Request {
            header: None,
            ..both
        };
        check(fields.clone(), &second, b"q");
        check(fields, &Request::default(), b"");
    }

    #[test]
    fn a_client_without_the_cookie_gets_one_that_leads_to_the_same_peer() {
        let fields = json!({
            "hash_on": "cookie", "hash_on_cookie": "session", "hash_on_cookie_path": "/shop",
        });
        let key = hashing(fields).key(&Request::default());
        let text = key.set_cookie.unwrap();
        let value = text.strip_prefix("session=").unwrap();
        let value = value
            .strip_suffix("; Path=/shop; Same-Site=Lax; HttpOnly")
            .unwrap();
        assert_eq!(Uuid::try_parse(value).unwrap().get_version_num(), 4);
        assert_eq!(key.hash, Key::of(value.as_bytes()).hash);
    }

    #[test]
    fn an_upstream_without_hash_on_has_no_hashing() {
        let upstream = json!({"id": Uuid::nil(), "name": "u"});
        let upstream: Upstream = serde_json::from_value(upstream).unwrap();
        assert_eq!(Hashing::new(&upstream), None);
    }
}
