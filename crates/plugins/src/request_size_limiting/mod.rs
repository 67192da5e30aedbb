//! request-size-limiting, which is not implemented yet: its schema.

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("request-size-limiting", include_str!("schema.json"));
