//! pre-function runs the user's Lua code before all other plugins.

pub(crate) mod source;

use crate::functions::{Functions, Name, PHASES};
use plugin::{PluginDef, Scopes};

struct PreFunction;

impl Name for PreFunction {
    const NAME: &'static str = "pre-function";
}

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<Functions<PreFunction>>(
        PreFunction::NAME,
        1_000_000,
        PHASES,
        Scopes::NO_CONSUMER,
    )
}
