//! ai-prompt-decorator, which is not implemented yet: its schema.

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("ai-prompt-decorator", include_str!("schema.json"));
