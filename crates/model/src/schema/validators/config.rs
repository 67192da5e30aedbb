//! Validators of whole plugin configurations. Source: the plugins' schema.lua.

use super::Verdict;
use crate::schema::Context;
use crate::schema::constraint::number;
use crate::schema::shorthand::UrlParts;
use crate::value::{Object, Value};

const PERIODS: [&str; 6] = ["second", "minute", "hour", "day", "month", "year"];

fn fail(text: impl Into<String>) -> Verdict {
    Err(Value::from(text.into()))
}

fn limit(config: &Object, period: &str) -> Option<f64> {
    config.get(period).and_then(number)
}

/// Finds the first pair of periods in which the longer one has the lower limit.
fn inverted(config: &Object) -> Option<(&'static str, f64, &'static str, f64)> {
    for (index, lower) in PERIODS.iter().enumerate() {
        let Some(lower_limit) = limit(config, lower) else {
            continue;
        };
        for upper in &PERIODS[index + 1..] {
            if let Some(upper_limit) = limit(config, upper)
                && upper_limit < lower_limit
            {
                return Some((upper, upper_limit, lower, lower_limit));
            }
        }
    }
    None
}

pub(super) fn rate_limits(value: &Value) -> Verdict {
    let Some(config) = value.as_object() else {
        return Ok(());
    };
    if let Some((upper, high, lower, low)) = inverted(config) {
        return fail(format!(
            "The limit for {upper}({high:.1}) cannot be lower than the limit for {lower}({low:.1})"
        ));
    }
    let rate = limit(config, "sync_rate").unwrap_or(-1.0);
    if config.str("policy") != Some("redis") && rate != -1.0 {
        return fail("sync_rate can only be used with the redis policy");
    }
    if rate != -1.0 && rate < 0.02 {
        return fail("sync_rate must be greater than 0.02, or -1 to disable");
    }
    Ok(())
}

pub(super) fn response_rate_limits(value: &Value) -> Verdict {
    let Some((upper, high, lower, low)) = value.as_object().and_then(inverted) else {
        return Ok(());
    };
    fail(format!(
        "the limit for {upper}({high:.1}) cannot be lower than the limit for {lower}({low:.1})"
    ))
}

/// Refuses counters shared through the database if there is none.
pub(super) fn rate_limiting_policy(value: &Value, context: &Context) -> Verdict {
    if context.dbless && value.as_str() == Some("cluster") {
        return fail("expected one of: local, redis");
    }
    Ok(())
}

pub(super) fn request_termination(value: &Value) -> Verdict {
    let Some(config) = value.as_object() else {
        return Ok(());
    };
    let has = |name: &str| config.get(name).is_some_and(|value| !value.is_null());
    if has("message") && (has("content_type") || has("body")) {
        return fail("message cannot be used with content_type or body");
    }
    if has("content_type") && !has("body") {
        return fail("content_type requires a body");
    }
    let echo = config.get("echo") == Some(&Value::Bool(true));
    if echo && (has("content_type") || has("body")) {
        return fail("echo cannot be used with content_type and body");
    }
    Ok(())
}

pub(super) fn oauth2_grants(value: &Value) -> Verdict {
    const GRANTS: [&str; 4] = [
        "enable_authorization_code",
        "enable_implicit_grant",
        "enable_client_credentials",
        "enable_password_grant",
    ];
    let Some(config) = value.as_object() else {
        return Ok(());
    };
    if GRANTS
        .iter()
        .any(|grant| config.get(grant) == Some(&Value::Bool(true)))
    {
        return Ok(());
    }
    fail(format!(
        "at least one of these fields must be true: {}",
        GRANTS.join(", ")
    ))
}

pub(super) fn http_log_credentials(value: &Value) -> Verdict {
    let Some(config) = value.as_object() else {
        return Ok(());
    };
    let endpoint = config.str("http_endpoint").unwrap_or_default();
    let headers = config.get("headers").and_then(Value::as_object);
    let has_header = headers.is_some_and(|headers| {
        headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
    });
    if has_header && UrlParts::split(endpoint).user_info.is_some() {
        return fail(
            "specifying both an 'Authorization' header and user info in 'http_endpoint' is not allowed",
        );
    }
    Ok(())
}

pub(super) fn unique_tag_names(value: &Value) -> Verdict {
    let tags = value.as_array().unwrap_or_default();
    let name = |tag: &'_ Value| {
        tag.as_object()
            .and_then(|tag| tag.str("name"))
            .map(str::to_owned)
    };
    let mut seen = std::collections::HashSet::new();
    for name in tags.iter().filter_map(name) {
        if seen.contains(&name) {
            return fail(format!("repeated tags are not allowed: {name}"));
        }
        seen.insert(name);
    }
    Ok(())
}

pub(super) fn resource_attributes(value: &Value) -> Verdict {
    for (_, value) in value.as_object().into_iter().flat_map(Object::iter) {
        match value {
            Value::String(text) if text.is_empty() => return fail("required field missing"),
            Value::Null => return fail("required field missing"),
            Value::Array(_) | Value::Object(_) => return fail("invalid type of value: table"),
            _ => {}
        }
    }
    Ok(())
}
