//! The values of template expressions, with Lua's rules: what counts as true, what an index finds, and how a value is
//! rendered. A template that needs more than that is rendered in Lua.

use super::template::Key;
use crate::number;
use ::lua::{self, Forbidden, Globals};
use model::Value;
use plugin::{BuildCx, PerWorker};
use std::borrow::Cow;
use std::fmt;

/// A value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Item<'v> {
    Nil,
    Bool(bool),
    Number(f64),
    Text(Cow<'v, [u8]>),
    /// The values of a header or an argument that occurs several times.
    List(Vec<Item<'v>>),
    /// A JSON list or object in the shared values.
    Shared(&'v Value),
    /// One of the tables of the request as a whole.
    Table,
}

/// A failure while a template is rendered. Kong answers 500.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RenderError {
    #[error("attempt to index a {0} value")]
    Index(&'static str),
    /// The value is a table, whose text only Lua has, or a function.
    #[error("the value needs Lua")]
    NeedsLua,
    #[error("{0}")]
    Lua(String),
    #[error("{}", lua::Forbidden)]
    Off,
}

/// A template as Lua code. It is compiled on each worker that renders it.
pub(super) struct LuaCode {
    text: Box<str>,
    globals: Globals,
    part: PerWorker<lua::Template>,
}

impl LuaCode {
    pub(super) fn new(text: &str, cx: &BuildCx<'_>) -> Result<Self, Forbidden> {
        Ok(Self {
            text: text.into(),
            globals: Globals::new(cx.lua)?,
            part: cx.per_worker(),
        })
    }

    pub(super) fn render(&self, target: &lua::Target<'_>) -> Result<Vec<u8>, RenderError> {
        let make = || lua::Template::new(&self.text, self.globals.clone());
        let template = self.part.get(make);
        template.render(target).map_err(RenderError::Lua)
    }
}

impl fmt::Debug for LuaCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LuaCode").field(&self.text).finish()
    }
}

/// The functions that Lua finds by name in a string.
const STRING_FUNCTIONS: [&str; 15] = [
    "byte", "char", "dump", "find", "format", "gmatch", "gsub", "len", "lower", "match", "rep",
    "reverse", "sub", "upper", "buffer",
];

impl<'v> Item<'v> {
    /// Combines the values of one name, as the tables of the request have them.
    pub(super) fn of_values(mut values: impl Iterator<Item = Item<'v>>) -> Self {
        let Some(first) = values.next() else {
            return Self::Nil;
        };
        match values.next() {
            None => first,
            Some(second) => Self::List([first, second].into_iter().chain(values).collect()),
        }
    }

    pub(super) fn is_true(&self) -> bool {
        !matches!(self, Self::Nil | Self::Bool(false))
    }

    pub(super) fn index(self, key: &Key) -> Result<Self, RenderError> {
        match self {
            Self::Nil => Err(RenderError::Index("nil")),
            Self::Bool(_) => Err(RenderError::Index("boolean")),
            Self::Number(_) => Err(RenderError::Index("number")),
            Self::Text(_) => match key {
                Key::Name(name) if STRING_FUNCTIONS.contains(&&**name) => {
                    Err(RenderError::NeedsLua)
                }
                Key::Name(_) | Key::Number(_) => Ok(Self::Nil),
            },
            Self::List(values) => Ok(nth(values.into_iter(), key)),
            Self::Shared(Value::Array(values)) => Ok(nth(values.iter().map(Item::from), key)),
            Self::Shared(Value::Object(object)) => Ok(match key {
                Key::Name(name) => object.get(name).map_or(Self::Nil, Item::from),
                Key::Number(_) => Self::Nil,
            }),
            Self::Shared(_) | Self::Table => Ok(Self::Nil),
        }
    }

    /// Returns the text of the value. `nil` and `false` give an empty one, as in Penlight's templates.
    pub(super) fn render(self) -> Result<Cow<'v, [u8]>, RenderError> {
        match self {
            Self::Nil | Self::Bool(false) => Ok(Cow::Borrowed(b"")),
            Self::Bool(true) => Ok(Cow::Borrowed(b"true")),
            Self::Number(number) => Ok(Cow::Owned(number::text(number).as_bytes().to_vec())),
            Self::Text(text) => Ok(text),
            Self::List(_) | Self::Shared(_) | Self::Table => Err(RenderError::NeedsLua),
        }
    }
}

impl<'v> From<&'v Value> for Item<'v> {
    fn from(value: &'v Value) -> Self {
        match value {
            Value::Null => Self::Nil,
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(value) => Self::Number(*value as f64),
            Value::Float(value) => Self::Number(*value),
            Value::String(text) => Self::Text(Cow::Borrowed(text.as_bytes())),
            Value::Array(_) | Value::Object(_) => Self::Shared(value),
        }
    }
}

/// Returns the element with this number, counted from 1.
fn nth<'v>(mut values: impl Iterator<Item = Item<'v>>, key: &Key) -> Item<'v> {
    let at = match key {
        Key::Number(number) => number.checked_sub(1),
        Key::Name(_) => None,
    };
    at.and_then(|at| values.nth(usize::try_from(at).ok()?))
        .unwrap_or(Item::Nil)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_fourteen_digits_as_in_lua() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-7.5, "-7.5"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.33333333333333"),
            (1e14, "1e+14"),
            (99_999_999_999_999.0, "99999999999999"),
            (1e15, "1e+15"),
            (1e100, "1e+100"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (2f64.powi(53), "9.007199254741e+15"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(number::text(number), text, "{number}");
        }
    }

    #[test]
    fn only_nil_and_false_are_false() {
        assert!(!Item::Nil.is_true());
        assert!(!Item::Bool(false).is_true());
        assert!(Item::Number(0.0).is_true());
        assert!(Item::Text(Cow::Borrowed(b"")).is_true());
    }

    #[test]
    fn a_list_is_counted_from_one() {
        let list = || Item::of_values([Item::Number(5.0), Item::Bool(true)].into_iter());
        assert_eq!(list().index(&Key::Number(1)), Ok(Item::Number(5.0)));
        assert_eq!(list().index(&Key::Number(2)), Ok(Item::Bool(true)));
        assert_eq!(list().index(&Key::Number(0)), Ok(Item::Nil));
        assert_eq!(list().index(&Key::Number(3)), Ok(Item::Nil));
        assert_eq!(list().render(), Err(RenderError::NeedsLua));
    }
}
