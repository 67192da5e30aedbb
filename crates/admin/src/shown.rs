//! Parts of responses that several endpoints share.

use crate::paging::escape;
use crate::respond::Failure;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

/// An entity as JSON, written by its schema.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Entity(
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")] Box<RawValue>,
);

impl Entity {
    /// Creates an entity from the JSON that `write` appends to a buffer.
    pub(crate) fn written(
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let mut out = Vec::with_capacity(1024);
        write(&mut out)?;
        let text = String::from_utf8(out).map_err(Failure::internal)?;
        let raw = RawValue::from_string(text).map_err(Failure::internal)?;
        Ok(Self(raw))
    }

    /// Appends the fields of the struct `more` to the entity's own fields.
    pub(crate) fn with(self, more: &impl Serialize) -> Result<Self, Failure> {
        let more = serde_json::to_string(more).map_err(Failure::internal)?;
        let (own, added) = (self.0.get().strip_suffix('}'), more.strip_prefix('{'));
        let (Some(own), Some(added)) = (own, added) else {
            return Err(Failure::internal("only objects have fields"));
        };
        let raw = RawValue::from_string(format!("{own},{added}")).map_err(Failure::internal)?;
        Ok(Self(raw))
    }
}

/// A page of a list.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Page<T> {
    pub(crate) data: Vec<T>,
    /// The path of the next page; null on the last page.
    pub(crate) next: Option<String>,
    /// The offset at which the next page begins; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<String>,
}

impl<T> Page<T> {
    /// Creates a page. Its `next` consists of `path`, the offset, and the `repeated` arguments.
    pub(crate) fn new<'a>(
        data: Vec<T>,
        path: &str,
        offset: Option<String>,
        repeated: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let next = offset.as_deref().map(|offset| {
            let mut next = format!("{path}?offset={}", escape(offset));
            for (name, value) in repeated {
                next.push_str(&format!("&{}={}", escape(name), escape(value)));
            }
            next
        });
        Self { data, next, offset }
    }
}
