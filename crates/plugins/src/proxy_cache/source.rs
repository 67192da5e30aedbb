//! What proxy-cache brings to the registry: its schema.

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("proxy-cache", include_str!("schema.json"));
