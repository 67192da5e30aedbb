//! The transformation of passwords to the stored form.

use model::schema::{Checks, Transformation, is_given};
use model::{Object, Value};
use sha1::{Digest, Sha1};
use std::fmt::Write;

pub(super) const CHECKS: Checks = Checks {
    transformations: &[Transformation {
        name: "basicauth_password",
        input: "password",
        replaces_input: true,
        staleness,
        apply: |credential| {
            hash_password(credential);
            Ok(())
        },
    }],
    ..Checks::NONE
};

/// Replaces the password by the SHA-1 of the password followed by the consumer's id.
/// Source: kong/plugins/basic-auth/crypto.lua.
fn hash_password(credential: &mut Object) {
    let consumer = credential
        .get("consumer")
        .and_then(Value::as_object)
        .and_then(|consumer| consumer.str("id"));
    if let (Some(password), Some(consumer)) = (credential.str("password"), consumer) {
        let digest = Sha1::new()
            .chain_update(password)
            .chain_update(consumer)
            .finalize();
        let mut hash = String::with_capacity(2 * digest.len());
        for byte in digest {
            let _ = write!(hash, "{byte:02x}");
        }
        credential.insert("password", hash.into());
    }
}

/// A patch that moves the credential to another consumer must give the password again.
fn staleness(patch: &Object, existing: &Object) -> Option<&'static str> {
    let consumer = |credential: &Object| {
        let consumer = credential.get("consumer")?.as_object()?;
        Some(consumer.str("id")?.to_ascii_lowercase())
    };
    let changes = consumer(patch).is_some_and(|id| consumer(existing) != Some(id));
    (changes && !is_given(patch, "password")).then_some("'password', 'consumer.id'")
}
