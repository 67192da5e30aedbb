//! The request as rules and templates see it.

use super::headers::Lines;
use super::lua::{Item, LuaCode, RenderError};
use super::template::{Environment, Key};
use ::lua::{Parts, Phase, Target};
use model::Object;
use plugin::{Configured, Node, Request, RequestState, args};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

/// The request before the plugin changes it.
pub(super) struct View<'v> {
    pub(super) request: &'v Request<'v>,
    pub(super) shared: &'v Object,
    pub(super) interpreter: &'v dyn Interpreter,
}

/// Renders templates in Lua.
pub(super) trait Interpreter {
    /// Whether Lua has shared values. It has all of them if it has some.
    fn has_shared(&self) -> bool;
    fn render(&self, code: &LuaCode, request: &Request<'_>) -> Result<Vec<u8>, RenderError>;
}

impl Interpreter for RefCell<RequestParts<'_>> {
    fn has_shared(&self) -> bool {
        self.borrow().state.interpreter.is_some()
    }

    fn render(&self, code: &LuaCode, request: &Request<'_>) -> Result<Vec<u8>, RenderError> {
        let parts = &mut *self.borrow_mut();
        let parts = Parts {
            state: &mut *parts.state,
            configured: parts.configured,
            node: parts.node,
        };
        code.render(&Target::reading(Phase::Access, request, parts).of("request-transformer"))
    }
}

/// What Lua code sees of a request in addition to the request itself.
pub(super) struct RequestParts<'c> {
    pub(super) state: &'c mut RequestState,
    pub(super) configured: Configured<'c>,
    pub(super) node: &'c Arc<Node>,
}

impl Lines for View<'_> {
    fn values(&self, name: &str) -> SmallVec<[&[u8]; 2]> {
        self.request.every_header_line(name).collect()
    }

    fn spelling(&self, name: &str) -> Option<&str> {
        let mut pairs = self.request.header_pairs();
        pairs
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(spelled, _)| spelled)
    }
}

impl Environment for View<'_> {
    /// A `_` in the name also matches `-`, as in Kong's header tables.
    fn header(&self, name: &str) -> Item<'_> {
        let mut values = self.values(name);
        if values.is_empty() && name.contains('_') {
            values = self.values(&name.replace('_', "-"));
        }
        Item::of_values(values.into_iter().map(text))
    }

    fn query_param(&self, name: &str) -> Item<'_> {
        let arguments = args::parse(self.request.query().as_bytes());
        let same = arguments.filter(|arg| *arg.name == *name.as_bytes());
        Item::of_values(same.map(|arg| arg.value.map_or(Item::Bool(true), Item::Text)))
    }

    fn capture(&self, key: &Key) -> Item<'_> {
        let found = self.request.captures.iter().rfind(|capture| match key {
            Key::Name(name) => capture.name.as_deref() == Some(name.as_str()),
            Key::Number(number) => {
                capture.name.is_none() && u32::try_from(capture.number) == Ok(*number)
            }
        });
        found.map_or(Item::Nil, |capture| text(capture.value.as_bytes()))
    }

    fn shared(&self, name: &str) -> Item<'_> {
        self.shared.get(name).map_or(Item::Nil, Item::from)
    }

    fn has_lua_shared(&self) -> bool {
        self.interpreter.has_shared()
    }

    fn render_lua(&self, code: &LuaCode) -> Result<Vec<u8>, RenderError> {
        self.interpreter.render(code, self.request)
    }
}

fn text(value: &[u8]) -> Item<'_> {
    Item::Text(Cow::Borrowed(value))
}
