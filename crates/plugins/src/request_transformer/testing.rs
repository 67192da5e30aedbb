//! A request for the tests of the rules.

use super::headers::Lines;
use super::lua::{Item, LuaCode, RenderError};
use super::template::{Environment, Key};
use super::template::{Expressions, Template};
use plugin::BuildCx;
use smallvec::SmallVec;
use std::borrow::Cow;

/// Runs something with expressions allowed.
pub(super) fn with_expressions<T>(run: impl FnOnce(Expressions<'_>) -> T) -> T {
    run(Expressions::Allowed(&BuildCx {
        identity: &Default::default(),
        lua: &Default::default(),
        life: &Default::default(),
    }))
}

pub(super) fn compile(text: &str) -> Template {
    with_expressions(|expressions| Template::compile(text, expressions))
}

/// The error of a template that needs Lua, which these requests do not have.
pub(super) fn no_lua() -> RenderError {
    RenderError::Lua("no Lua here".to_owned())
}

#[derive(Default)]
pub(super) struct Request {
    headers: Vec<(String, String)>,
}

impl Request {
    pub(super) fn with_headers(headers: &[(&str, &str)]) -> Self {
        let headers = headers.iter();
        Self {
            headers: headers
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        }
    }
}

impl Lines for Request {
    fn values(&self, name: &str) -> SmallVec<[&[u8]; 2]> {
        let same = self
            .headers
            .iter()
            .filter(|(other, _)| other.eq_ignore_ascii_case(name));
        same.map(|(_, value)| value.as_bytes()).collect()
    }

    fn spelling(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(spelled, _)| spelled.as_str())
    }
}

impl Environment for Request {
    fn header(&self, name: &str) -> Item<'_> {
        let values = self.values(&name.replace('_', "-"));
        Item::of_values(
            values
                .into_iter()
                .map(|value| Item::Text(Cow::Borrowed(value))),
        )
    }

    fn query_param(&self, _name: &str) -> Item<'_> {
        Item::Nil
    }

    fn capture(&self, _key: &Key) -> Item<'_> {
        Item::Nil
    }

    fn shared(&self, _name: &str) -> Item<'_> {
        Item::Nil
    }

    fn has_lua_shared(&self) -> bool {
        false
    }

    fn render_lua(&self, _: &LuaCode) -> Result<Vec<u8>, RenderError> {
        Err(no_lua())
    }
}
