//! ldap-auth, which is not implemented yet: its schema.

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("ldap-auth", include_str!("schema.json"));
