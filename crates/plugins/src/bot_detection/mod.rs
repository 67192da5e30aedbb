//! bot-detection, which is not implemented yet: its schema.

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("bot-detection", include_str!("schema.json"));
