//! What grpc-web brings to the registry: its schema.

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("grpc-web", include_str!("schema.json"));
