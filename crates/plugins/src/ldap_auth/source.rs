//! What ldap-auth brings to the registry: its schema.

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("ldap-auth", include_str!("schema.json"));
