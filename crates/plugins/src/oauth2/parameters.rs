//! The parameters of requests to the endpoints, from the query and the body.

use model::Value;
use plugin::{Field, ParsedBody, Request, args, body};
use std::borrow::Cow;

/// The parameters of a request. Those in the body come first.
pub(super) struct Parameters<'r> {
    body: Option<ParsedBody>,
    query: &'r [u8],
}

/// A parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Given<'p> {
    Absent,
    Text(Cow<'p, str>),
    /// It is not one text: a number, a list, a name without a value, invalid UTF-8.
    Other,
}

impl<'r> Parameters<'r> {
    /// Reads the parameters. A body that cannot be read has none. With `only_body` the query has none (RFC 6749
    /// section 2.3.1: secrets must not be in URIs).
    pub(super) fn of(request: &'r Request<'_>, only_body: bool) -> Self {
        let has_body = matches!(request.method(), "POST" | "PUT" | "PATCH");
        Self {
            body: has_body.then(|| request.parse_body()).flatten(),
            query: if only_body { b"" } else { request.query() },
        }
    }

    pub(super) fn get(&self, name: &str) -> Given<'_> {
        let in_body = self.body.as_ref().map(|body| body.field(name));
        match in_body {
            None | Some(Field::Absent) => self.in_query(name),
            Some(field) => given(field),
        }
    }

    fn in_query(&self, name: &str) -> Given<'_> {
        let mut same = args::parse(self.query).filter(|arg| *arg.name == *name.as_bytes());
        match (same.next(), same.next()) {
            (None, _) => Given::Absent,
            (Some(arg), None) => match arg.value {
                Some(text) => text_of(text),
                None => Given::Other,
            },
            (Some(_), Some(_)) => Given::Other,
        }
    }

    /// Returns a parameter as a value, for answers that repeat it. As in Kong, JSON keeps its types.
    pub(super) fn value(&self, name: &str) -> Option<Value> {
        let object = match self.body.as_ref() {
            Some(ParsedBody::Json(json)) => {
                json.as_object().and_then(|json| json.get(name)).cloned()
            }
            Some(body) => member(body.to_value(), name),
            None => None,
        };
        object.or_else(|| {
            let pairs: Vec<_> = args::parse(self.query)
                .filter(|arg| *arg.name == *name.as_bytes())
                .collect();
            let pairs = pairs.iter().map(|arg| {
                let value = arg.value.as_deref();
                (
                    &*arg.name,
                    value.map_or(Value::Bool(true), body::text_value),
                )
            });
            member(body::collect_values(pairs), name)
        })
    }
}

fn member(value: Value, name: &str) -> Option<Value> {
    match value {
        Value::Object(mut object) => object.remove(name),
        _ => None,
    }
}

fn given(field: Field<'_>) -> Given<'_> {
    match field {
        Field::Absent => Given::Absent,
        Field::Text(text) => text_of(text),
        Field::Other | Field::Several => Given::Other,
    }
}

fn text_of(text: Cow<'_, [u8]>) -> Given<'_> {
    let text = match text {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    };
    text.map_or(Given::Other, Given::Text)
}

impl<'p> Given<'p> {
    pub(super) fn is_given(&self) -> bool {
        *self != Self::Absent
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Absent | Self::Other => None,
        }
    }

    /// Whether it is this text.
    pub(super) fn is(&self, wanted: &str) -> bool {
        self.text() == Some(wanted)
    }
}
