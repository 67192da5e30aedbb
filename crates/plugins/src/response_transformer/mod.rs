//! response-transformer, which is not implemented yet: its schema.

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("response-transformer", include_str!("schema.json"));
