//! Finds the access token of a request, and hides it. Source of the behaviour: kong/plugins/oauth2/access.lua
//! parse_access_token().

use super::Oauth2;
use bytes::Bytes;
use plugin::{Field, ParsedBody, Request, RequestBody, args};
use std::borrow::Cow;

const ACCESS_TOKEN: &str = "access_token";

/// The access token of a request.
pub(super) enum Search<'r> {
    NeedsBody,
    Missing,
    Found { token: Cow<'r, [u8]>, place: Place },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Header,
    /// The query, the body, or a header that is the token as a whole, which Kong does not hide.
    Elsewhere,
}

/// The body must be read first.
struct NeedsBody;

impl Oauth2 {
    /// Searches for the token. If the header exists, nothing else counts.
    pub(super) fn search<'r>(&self, request: &'r Request<'_>) -> Search<'r> {
        let is_strict = self.config.is_strict();
        let found = |token: Cow<'r, [u8]>, place| match token.is_empty() {
            true => Search::Missing,
            false => Search::Found { token, place },
        };
        if let Some(header) = request.first_header_field(self.config.header_name()) {
            return match bearer(header) {
                Some(token) => found(token.into(), Place::Header),
                // RFC 6750 section 2.1: a token without the scheme is none.
                None if is_strict => Search::Missing,
                None => found(header.into(), Place::Elsewhere),
            };
        }
        let in_body = match self.body_token(request) {
            Ok(in_body) => in_body,
            Err(NeedsBody) => return Search::NeedsBody,
        };
        let field = match in_body {
            // RFC 9700 section 4.3.2: tokens in URIs end up in logs and histories.
            Field::Absent if is_strict => Field::Absent,
            Field::Absent => request.query_field(ACCESS_TOKEN),
            field => field,
        };
        match field {
            Field::Text(token) => found(token, Place::Elsewhere),
            Field::Absent | Field::Other | Field::Several => Search::Missing,
        }
    }

    fn body_token<'r>(&self, request: &'r Request<'_>) -> Result<Field<'r>, NeedsBody> {
        if !matches!(request.method(), "POST" | "PUT" | "PATCH") {
            return Ok(Field::Absent);
        }
        let content_type = request.header("content-type").unwrap_or_default();
        // RFC 6750 section 2.2 allows forms only.
        if !is_readable(content_type) || (self.config.is_strict() && !is_form(content_type)) {
            return Ok(Field::Absent);
        }
        if matches!(request.body, RequestBody::Unread) {
            return Err(NeedsBody);
        }
        let body = request.parse_body();
        let field = body.as_ref().map(|body| body.field(ACCESS_TOKEN));
        Ok(match field {
            None | Some(Field::Absent) => Field::Absent,
            Some(Field::Text(token)) => Field::Text(Cow::Owned(token.into_owned())),
            Some(Field::Other | Field::Several) => Field::Other,
        })
    }

    /// Removes the token from the request for the upstream, as Kong does.
    pub(super) fn hide(&self, request: &mut Request<'_>, place: Place) {
        if place == Place::Header {
            request.remove_header_field(self.config.header_name());
            return;
        }
        let query = sorted_without(request.query(), ACCESS_TOKEN.as_bytes());
        request.upstream.query = Some(query.into_bytes());
        let content_type = request.header("content-type").unwrap_or_default();
        if request.method() != "GET"
            && is_form(content_type)
            && let Some(mut body @ ParsedBody::Form(_)) = request.parse_body()
        {
            body.remove(ACCESS_TOKEN);
            request.set_upstream_body(Bytes::from(body.encode()));
        }
    }
}

/// Returns the token in a header with two words, of which the first is `Bearer` or `Token`.
pub fn bearer(header: &[u8]) -> Option<&[u8]> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let mut words = header.split(is_space).filter(|word| !word.is_empty());
    let (scheme, token) = (words.next()?, words.next()?);
    let is_known = scheme.eq_ignore_ascii_case(b"bearer") || scheme.eq_ignore_ascii_case(b"token");
    (is_known && words.next().is_none()).then_some(token)
}

fn is_readable(content_type: &[u8]) -> bool {
    const READABLE: [&[u8]; 3] = [
        b"application/x-www-form-urlencoded",
        b"application/json",
        b"multipart/form-data",
    ];
    READABLE.iter().any(|one| {
        let start = content_type.get(..one.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(one))
    })
}

fn is_form(content_type: &[u8]) -> bool {
    let name = b"application/x-www-form-urlencoded";
    let start = content_type.get(..name.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(name))
}

/// Returns a query without the arguments with this name, sorted by name, as Kong writes it.
fn sorted_without(query: &[u8], name: &[u8]) -> String {
    let mut all: Vec<_> = args::parse_all(query)
        .filter(|arg| *arg.name != *name)
        .collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    let mut out = String::with_capacity(query.len());
    for arg in &all {
        args::write(&mut out, &arg.name, arg.value.as_deref());
    }
    out
}
