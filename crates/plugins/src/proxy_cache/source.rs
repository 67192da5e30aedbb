//! What proxy-cache brings to the registry: its schema.

use super::checks;
use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource = PluginSource {
    checks: checks::CHECKS,
    ..PluginSource::plain("proxy-cache", include_str!("schema.json"))
};
