//! Rules over several fields of an entity. The values are in the order of the check's `field_sources`. A field that is
//! not set is null.

use super::tls;
use crate::schema::Context;
use crate::value::Value;

type Verdict = Result<(), String>;

/// Checks that `jwk` is a JSON Web Key with the same `kid` as the entity. Source: kong/db/schema/entities/keys.lua.
pub(super) fn keys(values: &[&Value], _: &Context) -> Verdict {
    let [jwk, _, kid] = values else {
        return Ok(());
    };
    let Some(jwk) = jwk.as_str() else {
        return Ok(());
    };
    let Ok(serde_json::Value::Object(jwk)) = serde_json::from_str(jwk) else {
        return Err("could not json decode jwk string".to_owned());
    };
    if jwk.get("kid").and_then(serde_json::Value::as_str) != kid.as_str() {
        return Err("kid in jwk.kid must be equal to keys.kid".to_owned());
    }
    tls::jwk(&jwk)
}

/// Checks that a key belongs to its certificate.
pub(super) fn certificate_pair(values: &[&Value], _: &Context) -> Verdict {
    pair(values, "certificate does not match key")
}

/// Checks that the alternative key belongs to the alternative certificate.
pub(super) fn alternative_pair(values: &[&Value], _: &Context) -> Verdict {
    pair(values, "alternative certificate does not match key")
}

fn pair(values: &[&Value], problem: &str) -> Verdict {
    match values {
        [Value::String(certificate), Value::String(key)] if !tls::is_pair(certificate, key) => {
            Err(problem.to_owned())
        }
        _ => Ok(()),
    }
}

/// Checks that a certificate and its alternative have different key types, which is the purpose of the alternative.
pub(super) fn certificate_types(values: &[&Value], _: &Context) -> Verdict {
    match values {
        [Value::String(certificate), Value::String(alternative)]
            if tls::key_type(certificate) == tls::key_type(alternative) =>
        {
            Err("certificate and alternative certificate need to have different type (e.g. RSA and ECDSA), the provided certificates were both of the same type".to_owned())
        }
        _ => Ok(()),
    }
}

pub(super) fn ca_certificate(values: &[&Value], context: &Context) -> Verdict {
    match values {
        [Value::String(certificate)] => tls::ca_certificate(certificate, context.now),
        _ => Ok(()),
    }
}

/// Refuses all filters, because they need WebAssembly, which is not supported.
pub(super) fn wasm_filters(_: &[&Value], _: &Context) -> Verdict {
    Err("wasm support is not enabled".to_owned())
}
