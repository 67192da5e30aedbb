//! syslog, which is not implemented yet: its schema.

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource = PluginSource::plain("syslog", include_str!("schema.json"));
