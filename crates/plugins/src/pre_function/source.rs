//! What pre-function brings to the registry: its schema.

use crate::functions;
use model::schema::{Checks, PluginSource};

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "pre-function",
    schema: include_str!("schema.json"),
    entities: &[],
    checks: Checks {
        validators: &[("pre_function", |text, _| {
            functions::check("pre-function", text)
        })],
        ..Checks::NONE
    },
};
