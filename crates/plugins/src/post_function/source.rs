//! What post-function brings to the registry: its schema.

use crate::functions;
use model::schema::{Checks, PluginSource};

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "post-function",
    schema: include_str!("schema.json"),
    entities: &[],
    checks: Checks {
        validators: &[("post_function", |text, _| {
            functions::check("post-function", text)
        })],
        ..Checks::NONE
    },
};
