//! Conversions of deprecated settings. Source: kong/plugins/session/schema.lua.

use model::Value;
use model::schema::{Checks, Conversion};

pub(super) const CHECKS: Checks = Checks {
    shorthands: &[
        Conversion {
            name: "session_idletime",
            fills: &["idling_timeout"],
            apply: |value, input| {
                let seconds = match value {
                    Value::Null => Value::Int(0),
                    seconds => seconds,
                };
                input.insert("idling_timeout", seconds);
            },
        },
        Conversion {
            name: "session_samesite",
            fills: &["cookie_same_site"],
            apply: |value, input| {
                let mode = match value.as_str() {
                    Some("off") => "Lax".into(),
                    _ => value,
                };
                input.insert("cookie_same_site", mode);
            },
        },
    ],
    ..Checks::NONE
};
