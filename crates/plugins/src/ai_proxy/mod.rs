//! ai-proxy, which is not implemented yet: its schema.

use crate::llm;
use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "ai-proxy",
    schema: include_str!("schema.json"),
    entities: &[],
    checks: llm::CHECKS,
};
