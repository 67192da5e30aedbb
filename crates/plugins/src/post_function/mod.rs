//! post-function runs the user's Lua code after all other plugins.

pub(crate) mod source;

use crate::functions::{Functions, Name, PHASES};
use plugin::{PluginDef, Scopes};

struct PostFunction;

impl Name for PostFunction {
    const NAME: &'static str = "post-function";
}

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<Functions<PostFunction>>(
        PostFunction::NAME,
        -1000,
        PHASES,
        Scopes::NO_CONSUMER,
    )
}
