//! standard-webhooks, which is not implemented yet: its schema.

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("standard-webhooks", include_str!("schema.json"));
