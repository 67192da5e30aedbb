//! Checks of the schema. Source: kong/plugins/response-ratelimiting/schema.lua.

use crate::limits::{self, Inverted};
use model::Value;
use model::schema::Checks;

pub(super) const CHECKS: Checks = Checks {
    validators: &[
        ("response_rate_limits", |value, _| limits_of_header(value)),
        ("rate_limiting_policy", limits::policy),
    ],
    ..Checks::NONE
};

fn limits_of_header(value: &Value) -> Result<(), Value> {
    let Some(Inverted {
        upper,
        upper_limit,
        lower,
        lower_limit,
    }) = value.as_object().and_then(limits::inverted)
    else {
        return Ok(());
    };
    let text = format!(
        "the limit for {upper}({upper_limit:.1}) cannot be lower than the limit for {lower}({lower_limit:.1})"
    );
    Err(text.into())
}
