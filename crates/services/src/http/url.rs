//! URLs of a configuration. The user information in them is a secret: it is shown nowhere.

use data_encoding::BASE64;
use http::HeaderValue;
use http::uri::{PathAndQuery, Scheme};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

/// An absolute `http` or `https` URL. Its text forms, `Debug` included, do not contain the user information.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Url {
    pub(super) scheme: HttpScheme,
    /// The host name in lower case, or the address, without brackets.
    pub(super) host: Arc<str>,
    pub(super) port: u16,
    path_and_query: PathAndQuery,
    user: Option<Arc<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum HttpScheme {
    Http,
    Https,
}

/// Why a text is no URL that the client can use. The message does not contain the text, which may have a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("the URL does not begin with http:// or https://")]
    Scheme,
    #[error("the URL has no host")]
    NoHost,
    #[error("the host of the URL is invalid")]
    Host,
    #[error("the port of the URL is invalid")]
    Port,
    #[error("the path of the URL is invalid")]
    Path,
}

impl Url {
    /// Parses an absolute URL. A fragment is ignored, and an empty path is `/`.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = scheme(text).ok_or(UrlError::Scheme)?;
        let (authority, path) = split_authority(rest);
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let (host, port) = host_and_port(place)?;
        let path = path.split('#').next().unwrap_or_default();
        let path_and_query = match path.as_bytes().first() {
            None => PathAndQuery::from_static("/"),
            Some(b'/') => path.parse().map_err(|_| UrlError::Path)?,
            Some(_) => format!("/{path}").parse().map_err(|_| UrlError::Path)?,
        };
        Ok(Self {
            scheme,
            host: host.to_ascii_lowercase().into(),
            port: port.unwrap_or(scheme.port()),
            path_and_query,
            user: user.map(Arc::from),
        })
    }

    /// Returns the host name in lower case, or the address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn is_https(&self) -> bool {
        self.scheme == HttpScheme::Https
    }

    /// Returns the path, which begins with `/`.
    pub fn path(&self) -> &str {
        self.path_and_query.path()
    }

    pub fn query(&self) -> Option<&str> {
        self.path_and_query.query()
    }

    /// Returns the same URL with this path and query, which must begin with `/`.
    pub fn with_path(&self, path_and_query: &str) -> Result<Self, UrlError> {
        if !path_and_query.starts_with('/') {
            return Err(UrlError::Path);
        }
        let path_and_query = path_and_query.parse().map_err(|_| UrlError::Path)?;
        Ok(Self {
            path_and_query,
            ..self.clone()
        })
    }

    /// Returns the value of the header `Authorization` for the user information: `Basic` and its bytes as they are, as
    /// Kong sends it. The value is marked as sensitive.
    pub fn basic_authorization(&self) -> Option<HeaderValue> {
        let user = self.user.as_deref()?;
        Some(basic(user.as_bytes()))
    }

    /// Like [`Url::basic_authorization`], and decodes percent-encoded bytes first, as browsers and curl do.
    pub fn decoded_authorization(&self) -> Option<HeaderValue> {
        let user: Cow<'_, [u8]> = percent_decode_str(self.user.as_deref()?).into();
        Some(basic(&user))
    }

    /// Returns the URL without the user information, for hyper.
    pub(super) fn uri(&self) -> http::Uri {
        let authority = self.authority();
        http::Uri::builder()
            .scheme(match self.scheme {
                HttpScheme::Http => Scheme::HTTP,
                HttpScheme::Https => Scheme::HTTPS,
            })
            .authority(authority)
            .path_and_query(self.path_and_query.clone())
            .build()
            .expect("all parts were checked when the URL was parsed")
    }

    /// Returns the host and the port, the host of an IPv6 address in brackets.
    fn authority(&self) -> String {
        let (host, port) = (&self.host, self.port);
        let own = if port == self.scheme.port() {
            String::new()
        } else {
            format!(":{port}")
        };
        if host.contains(':') {
            format!("[{host}]{own}")
        } else {
            format!("{host}{own}")
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.scheme.name();
        write!(
            formatter,
            "{scheme}://{}{}",
            self.authority(),
            self.path_and_query
        )
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Url({self})")
    }
}

impl HttpScheme {
    fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Replaces the user information of all URLs in a text by `***`, so that the text can be logged.
pub fn without_userinfo(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        let (authority, further) = split_authority(after);
        shown.push_str(before);
        match authority.rsplit_once('@') {
            Some((_, place)) => {
                shown.push_str("***@");
                shown.push_str(place);
            }
            None => shown.push_str(authority),
        }
        rest = further;
    }
    if shown.is_empty() {
        return text.into();
    }
    shown.push_str(rest);
    shown.into()
}

/// Splits what follows `://` before the path, the query or the fragment.
fn split_authority(text: &str) -> (&str, &str) {
    let end = text.find(['/', '?', '#', '\\']).unwrap_or(text.len());
    text.split_at(end)
}

fn scheme(text: &str) -> Option<(HttpScheme, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    [HttpScheme::Http, HttpScheme::Https]
        .into_iter()
        .find(|known| scheme.eq_ignore_ascii_case(known.name()))
        .map(|scheme| (scheme, rest))
}

/// Splits a host from its port, and removes the brackets of an IPv6 address.
fn host_and_port(place: &str) -> Result<(&str, Option<u16>), UrlError> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(UrlError::Host)?;
            host.parse::<Ipv6Addr>().map_err(|_| UrlError::Host)?;
            let port = match port {
                "" => None,
                port => Some(port.strip_prefix(':').ok_or(UrlError::Port)?),
            };
            return Ok((host, parse_port(port)?));
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    // The characters of a host name and of an IPv4 address. Names with others cannot be sent in the header Host.
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if !host.bytes().all(valid) {
        return Err(UrlError::Host);
    }
    Ok((host, parse_port(port)?))
}

/// Parses a port. An empty one counts as missing (RFC 3986, section 3.2.3).
fn parse_port(port: Option<&str>) -> Result<Option<u16>, UrlError> {
    let Some(port) = port.filter(|port| !port.is_empty()) else {
        return Ok(None);
    };
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UrlError::Port);
    }
    match port.parse() {
        Ok(0) | Err(_) => Err(UrlError::Port),
        Ok(port) => Ok(Some(port)),
    }
}

fn basic(user: &[u8]) -> HeaderValue {
    let text = format!("Basic {}", BASE64.encode(user));
    let mut value = HeaderValue::try_from(text).expect("base64 is valid in a header");
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, u16, String, bool) {
        let url = Url::parse(text).unwrap();
        let host = url.host().to_owned();
        (
            host,
            url.port(),
            url.path_and_query.to_string(),
            url.is_https(),
        )
    }

    #[test]
    fn a_url_has_a_host_a_port_and_a_path() {
        let cases = [
            ("http://Log.test", "log.test", 80, "/", false),
            (
                "HTTPS://log.test:8443/a/b?c=d#e",
                "log.test",
                8443,
                "/a/b?c=d",
                true,
            ),
            ("https://log.test?a", "log.test", 443, "/?a", true),
            ("http://[::1]:81/x", "::1", 81, "/x", false),
            ("http://10.0.0.1:", "10.0.0.1", 80, "/", false),
            ("http://u:p@q@log.test/", "log.test", 80, "/", false),
        ];
        for (text, host, port, path, https) in cases {
            let expected = (host.to_owned(), port, path.to_owned(), https);
            assert_eq!(parts(text), expected, "{text}");
        }
    }

    #[test]
    fn wrong_urls_are_refused_with_a_reason() {
        let cases = [
            ("", UrlError::Scheme),
            ("log.test", UrlError::Scheme),
            ("ftp://log.test", UrlError::Scheme),
            ("http://", UrlError::NoHost),
            ("http://:80/", UrlError::NoHost),
            ("http://user:password@/", UrlError::NoHost),
            ("http://a b/", UrlError::Host),
            ("http://[::1", UrlError::Host),
            ("http://[name]/", UrlError::Host),
            ("http://::1/", UrlError::NoHost),
            ("http://a:0/", UrlError::Port),
            ("http://a:65536/", UrlError::Port),
            ("http://a:+80/", UrlError::Port),
            ("http://[::1]80/", UrlError::Port),
            ("http://a/b c", UrlError::Path),
        ];
        for (text, error) in cases {
            assert_eq!(Url::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn user_information_is_in_no_text_of_a_url() {
        let url = Url::parse("https://me:sec%3Aret@log.test:444/p").unwrap();
        assert_eq!(url.to_string(), "https://log.test:444/p");
        assert_eq!(format!("{url:?}"), "Url(https://log.test:444/p)");
        assert_eq!(url.uri().to_string(), "https://log.test:444/p");
        let raw = url.basic_authorization().unwrap();
        assert_eq!(raw, "Basic bWU6c2VjJTNBcmV0");
        assert_eq!(format!("{raw:?}"), "Sensitive");
        let decoded = url.decoded_authorization().unwrap();
        assert_eq!(decoded, "Basic bWU6c2VjOnJldA==");
        let without = Url::parse("https://log.test").unwrap();
        assert_eq!(without.basic_authorization(), None);
    }

    #[test]
    fn user_information_is_masked_in_texts() {
        let cases = [
            ("plain", "plain"),
            ("http://log.test/a@b", "http://log.test/a@b"),
            (
                "http://me:secret@log.test/x:POST",
                "http://***@log.test/x:POST",
            ),
            (
                "http://me@x@log.test:POST:10",
                "http://***@log.test:POST:10",
            ),
            (
                "a http://b:c@d?e https://f@g",
                "a http://***@d?e https://***@g",
            ),
        ];
        for (text, shown) in cases {
            assert_eq!(without_userinfo(text), shown);
        }
    }

    #[test]
    fn the_path_can_be_replaced() {
        let url = Url::parse("http://u:p@log.test/a?b").unwrap();
        let other = url.with_path("/c?d=e").unwrap();
        assert_eq!((other.path(), other.query()), ("/c", Some("d=e")));
        assert!(other.basic_authorization().is_some());
        assert_eq!(url.with_path("c"), Err(UrlError::Path));
        assert_eq!(url.with_path("/ "), Err(UrlError::Path));
    }
}
