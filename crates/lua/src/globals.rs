//! The globals that the user's code sees (`untrusted_lua` and the settings of its sandbox).

use plugin::{LuaSettings, UntrustedLua};
use std::sync::Arc;

/// The globals that the user's code sees. All instances with the same settings share them in a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Globals {
    /// One item a line, which starts with its kind. `lua/sandbox.lua` reads it: `s` is the sandbox, `r` a module that it
    /// allows, `e` a global that it has in addition.
    text: Arc<str>,
}

/// The setting `untrusted_lua` forbids the user's code. Source: kong/tools/sandbox.lua.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "loading of untrusted Lua code disabled because 'untrusted_lua' config option is set to 'off'"
)]
pub struct Forbidden;

impl Globals {
    /// Returns the globals by the settings, or an error if no code of the user may run.
    pub fn new(settings: &LuaSettings) -> Result<Self, Forbidden> {
        match settings.untrusted {
            UntrustedLua::Off => return Err(Forbidden),
            UntrustedLua::On => return Ok(Self::all()),
            UntrustedLua::Sandbox => {}
        }
        let requires = settings.sandbox_requires.iter().map(|name| ('r', name));
        let environment = settings.sandbox_environment.iter().map(|name| ('e', name));
        let mut text = String::from("s\n");
        for (kind, name) in requires.chain(environment) {
            text.push(kind);
            text.push_str(name);
            text.push('\n');
        }
        Ok(Self { text: text.into() })
    }

    /// Returns all globals of the VM (`untrusted_lua = on`).
    pub fn all() -> Self {
        Self { text: "".into() }
    }

    /// Returns the globals of the sandbox with its default settings.
    pub fn sandbox() -> Self {
        Self { text: "s\n".into() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}
