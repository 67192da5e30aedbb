//! tcp-log, which is not implemented yet: its schema.

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource = PluginSource::plain("tcp-log", include_str!("schema.json"));
