//! grpc-gateway, which is not implemented yet: its schema.

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("grpc-gateway", include_str!("schema.json"));
