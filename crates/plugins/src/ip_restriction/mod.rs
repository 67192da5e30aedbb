//! ip-restriction, which is not implemented yet: its schema.

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("ip-restriction", include_str!("schema.json"));
