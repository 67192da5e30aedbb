//! ai-prompt-template, which is not implemented yet: its schema.

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("ai-prompt-template", include_str!("schema.json"));
