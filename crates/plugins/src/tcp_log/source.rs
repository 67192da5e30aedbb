//! What tcp-log brings to the registry: its schema.

use crate::custom_fields;
use model::schema::{Checks, PluginSource};

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "tcp-log",
    schema: include_str!("schema.json"),
    entities: &[],
    checks: Checks {
        validators: &[custom_fields::VALIDATOR],
        ..Checks::NONE
    },
};
