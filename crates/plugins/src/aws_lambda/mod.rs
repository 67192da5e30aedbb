//! aws-lambda, which is not implemented yet: its schema.

mod checks;

use model::schema::PluginSource;

pub(crate) const SOURCE: PluginSource = PluginSource {
    name: "aws-lambda",
    schema: include_str!("schema.json"),
    entities: &[],
    checks: checks::CHECKS,
};
