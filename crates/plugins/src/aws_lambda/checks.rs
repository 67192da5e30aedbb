//! Checks of the schema. Source: kong/plugins/aws-lambda/schema.lua.

use model::Value;
use model::schema::{Checks, UrlParts};

pub(super) const CHECKS: Checks = Checks {
    rules: &[("aws_proxy_url", |values, _| proxy_url(values))],
    ..Checks::NONE
};

fn proxy_url(values: &[&Value]) -> Result<(), String> {
    let [Value::String(url)] = values else {
        return Ok(());
    };
    match UrlParts::split(url).scheme {
        Some(scheme) if scheme != "http" => Err("proxy_url scheme must be http".to_owned()),
        _ => Ok(()),
    }
}
