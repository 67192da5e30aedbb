//! udp-log, which is not implemented yet: its schema.

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource = PluginSource::plain("udp-log", include_str!("schema.json"));
