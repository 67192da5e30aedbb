//! Tests of signatures and keys.

use super::data::*;
use super::signer::{Signer, hmac_of, pem, signed, unsigned, with_signature};
use super::{bearing, case, credential, entities, good, outcome, refused, signer, token};
use crate::jwt::algorithm::Algorithm;
use crate::jwt::credential::JwtSecret;
use crate::kinds::JWT_SECRETS;
use plugin::testing::Case;
use serde_json::{Value, json};

/// A case with one more credential, whose key is `own`.
fn with_credential(config: Value, algorithm: Algorithm, changes: Value) -> Case {
    let mut own = credential("own", algorithm);
    for (name, value) in changes.as_object().expect("changes are an object") {
        own[name] = value.clone();
    }
    case(config).entities(entities().with(JWT_SECRETS, own))
}

fn own_token(algorithm: Algorithm, key: Signer) -> String {
    let header = json!({"alg": algorithm.name()}).to_string();
    let unsigned = unsigned(&header, r#"{"iss":"own"}"#);
    with_signature(&unsigned, &key.sign(algorithm, unsigned.as_bytes()))
}

#[test]
fn tokens_of_every_algorithm_are_verified() {
    let case = case(json!({}));
    for algorithm in Algorithm::ALL.iter().copied() {
        let good = token(algorithm, &json!({"iss": algorithm.name()}));
        assert_eq!(outcome(&case, &good), "nora", "{algorithm}");
        // Another message with the same signature.
        let (_, signature) = good.rsplit_once('.').expect("a token has dots");
        let header = json!({"typ": "JWT", "alg": algorithm.name()}).to_string();
        let claims = json!({"iss": algorithm.name(), "admin": true}).to_string();
        let forged = format!("{}.{signature}", unsigned(&header, &claims));
        let wrong = refused("Invalid signature");
        assert_eq!(outcome(&case, &forged), wrong, "{algorithm}");
    }
}

/// The header of a token must not choose how the key of a credential is used.
#[test]
fn the_algorithm_of_the_credential_counts() {
    let case = case(json!({}));
    for of_token in Algorithm::ALL.iter().copied() {
        for of_credential in Algorithm::ALL {
            let token = token(of_token, &json!({"iss": of_credential.name()}));
            let wanted = match of_token == *of_credential {
                true => "nora".to_owned(),
                false => refused("Invalid algorithm"),
            };
            let found = outcome(&case, &token);
            assert_eq!(found, wanted, "{of_token} {of_credential}");
        }
    }
}

#[test]
fn a_public_key_is_no_secret_of_an_hmac() {
    let case = case(json!({}));
    for secret in [signer(Algorithm::Rs256).pem(), String::new()] {
        let header = r#"{"alg":"HS256"}"#;
        let unsigned = unsigned(header, r#"{"iss":"RS256"}"#);
        let signature = hmac_of(Algorithm::Hs256, secret.as_bytes(), unsigned.as_bytes());
        let token = with_signature(&unsigned, &signature);
        assert_eq!(outcome(&case, &token), refused("Invalid algorithm"));
    }
}

#[test]
fn a_signature_of_another_length_is_wrong() {
    let case = case(json!({}));
    for algorithm in Algorithm::ALL.iter().copied() {
        let header = json!({"alg": algorithm.name()}).to_string();
        let claims = json!({"iss": algorithm.name()}).to_string();
        let unsigned = unsigned(&header, &claims);
        let signature = signer(algorithm).sign(algorithm, unsigned.as_bytes());
        let with_zero = |before: &[u8], after: &[u8]| [before, &signature, after].concat();
        let wrong = [
            Vec::new(),
            vec![0],
            signature[..signature.len() - 1].to_vec(),
            signature[..signature.len() / 2].to_vec(),
            with_zero(&[0], &[]),
            with_zero(&[], &[0]),
            vec![0; signature.len()],
            vec![0xff; signature.len()],
            vec![7; 1_000],
        ];
        for signature in wrong {
            let token = with_signature(&unsigned, &signature);
            let found = outcome(&case, &token);
            let length = signature.len();
            assert_eq!(found, refused("Invalid signature"), "{algorithm} {length}");
        }
        assert_eq!(
            outcome(&case, &with_signature(&unsigned, &signature)),
            "nora"
        );
    }
}

#[test]
fn salts_may_have_the_length_of_the_hash_or_the_greatest() {
    for algorithm in [Algorithm::Ps256, Algorithm::Ps384, Algorithm::Ps512] {
        let case = with_credential(json!({}), algorithm, json!({}));
        for key in [Signer::Rsa, Signer::LongSalt] {
            assert_eq!(outcome(&case, &own_token(algorithm, key)), "nora");
        }
    }
}

#[test]
fn larger_rsa_keys_verify_too() {
    use Algorithm::*;
    for algorithm in [Rs256, Rs384, Rs512, Ps256, Ps384, Ps512] {
        let large = json!({"rsa_public_key": Signer::LargeRsa.pem()});
        let case = with_credential(json!({}), algorithm, large);
        let found = outcome(&case, &own_token(algorithm, Signer::LargeRsa));
        assert_eq!(found, "nora", "{algorithm}");
    }
}

#[test]
fn a_key_that_does_not_fit_is_an_error_that_the_log_explains() {
    use Algorithm::*;
    let keys = [
        Signer::Rsa,
        Signer::P256,
        Signer::P384,
        Signer::P521,
        Signer::Ed25519,
    ];
    for algorithm in Algorithm::ALL.iter().copied() {
        if algorithm.is_symmetric() {
            continue;
        }
        let own = signer(algorithm);
        let mut pems: Vec<String> = keys
            .iter()
            .filter(|key| **key != own)
            .map(|key| key.pem())
            .collect();
        pems.extend([
            ED448.to_owned(),
            "no key".to_owned(),
            pem("PUBLIC KEY", b""),
            pem("PRIVATE KEY", b"abc"),
            own.pem().replace("PUBLIC", "PRIVATE"),
        ]);
        for pem in pems {
            let case = with_credential(json!({}), algorithm, json!({"rsa_public_key": pem}));
            let outcome = bearing(&case, &own_token(algorithm, own));
            assert_eq!(outcome.client.status, 500, "{algorithm} {pem}");
            assert!(outcome.upstream.is_none());
            let error = &outcome.failures[0].error;
            assert!(error.contains("its public key is"), "{error}");
        }
    }
    let none = with_credential(json!({}), Es256, json!({"rsa_public_key": null}));
    let found = outcome(&none, &own_token(Es256, Signer::P256));
    assert_eq!(found, refused("Invalid key/secret"));
}

#[test]
fn a_certificate_or_pkcs1_may_hold_the_key() {
    let pkcs1 = with_short(json!({"accept_short_rsa_keys": true}), SHORT_PKCS1);
    assert_eq!(outcome(&pkcs1, SHORT_RS256), "nora");
    let certificate = json!({"rsa_public_key": CERTIFICATE});
    let case = with_credential(json!({}), Algorithm::Rs256, certificate);
    assert_eq!(outcome(&case, OF_CERTIFICATE), "nora");
}

fn with_short(config: Value, pem: &str) -> Case {
    let case = case(config);
    let entities = entities();
    for algorithm in [Algorithm::Rs256, Algorithm::Rs384, Algorithm::Rs512] {
        let mut short = credential("short", algorithm);
        short["key"] = format!("short{algorithm}").into();
        short["rsa_public_key"] = pem.into();
        entities.put(JWT_SECRETS, short);
    }
    case.entities(entities)
}

#[test]
fn short_rsa_keys_need_the_setting() {
    for config in [json!({}), json!({"accept_short_rsa_keys": false})] {
        let case = with_short(config, SHORT);
        for token in [SHORT_RS256, SHORT_RS384, SHORT_RS512] {
            let outcome = bearing(&case, token);
            assert_eq!(outcome.client.status, 500);
            assert!(outcome.failures[0].error.contains("2048"));
        }
    }
    let case = with_short(json!({"accept_short_rsa_keys": true}), SHORT);
    assert_eq!(outcome(&case, SHORT_RS256), "nora");
    assert_eq!(outcome(&case, SHORT_RS512), "nora");
    let forged = SHORT_RS256.replace(".Vv5p", ".Wv5p");
    assert_ne!(forged, SHORT_RS256);
    assert_eq!(outcome(&case, &forged), refused("Invalid signature"));
    // The library has no RS384 for short keys.
    let refused = bearing(&case, SHORT_RS384);
    assert_eq!(refused.client.status, 500);
    assert!(refused.failures[0].error.contains("has only 1024 bits"));
}

#[test]
fn secrets_may_be_base64url() {
    use data_encoding::{BASE64URL, BASE64URL_NOPAD};
    let bytes = b"\0binary\xff\xfe?>";
    let header = r#"{"alg":"HS256"}"#;
    let unsigned = unsigned(header, r#"{"iss":"own"}"#);
    let by = |secret: &[u8]| {
        let signature = hmac_of(Algorithm::Hs256, secret, unsigned.as_bytes());
        with_signature(&unsigned, &signature)
    };
    let of = |secret: &str| {
        let config = json!({"secret_is_base64": true});
        with_credential(config, Algorithm::Hs256, json!({"secret": secret}))
    };
    for text in [BASE64URL.encode(bytes), BASE64URL_NOPAD.encode(bytes)] {
        let case = of(&text);
        assert_eq!(outcome(&case, &by(bytes)), "nora");
        let as_text = by(text.as_bytes());
        assert_eq!(outcome(&case, &as_text), refused("Invalid signature"));
    }
    // Nothing can be signed with these, least of all with an empty secret.
    for text in ["=", "====", "a b", "+/+/"] {
        let found = outcome(&of(text), &by(b""));
        assert_eq!(found, refused("Invalid key/secret"), "{text}");
    }
    let none = with_credential(json!({}), Algorithm::Hs256, json!({"secret": null}));
    assert_eq!(outcome(&none, &by(b"")), refused("Invalid key/secret"));
    // Public keys stay as they are.
    let case = case(json!({"secret_is_base64": true}));
    let token = signed(Algorithm::Es256, r#"{"alg":"ES256"}"#, r#"{"iss":"ES256"}"#);
    assert_eq!(outcome(&case, &token), "nora");
}

#[test]
fn a_deleted_credential_and_a_changed_secret_count_at_once() {
    let entities = std::sync::Arc::new(entities());
    let case = case(json!({})).entities(entities.clone());
    assert_eq!(outcome(&case, &good()), "nora");
    let mut changed = credential("hs", Algorithm::Hs256);
    changed["id"] = json!(super::HS);
    changed["secret"] = "other".into();
    entities.put(JWT_SECRETS, changed);
    assert_eq!(outcome(&case, &good()), refused("Invalid signature"));
    entities.remove(JWT_SECRETS, super::HS);
    let unknown = refused("No credentials found for given 'iss'");
    assert_eq!(outcome(&case, &good()), unknown);
}

/// Look-ups keep what was decoded, so requests do not parse keys.
#[test]
fn the_key_is_parsed_when_the_credential_is_read() {
    let read = |algorithm| -> JwtSecret {
        serde_json::from_value(credential("a", algorithm)).expect("it is a credential")
    };
    for algorithm in Algorithm::ALL.iter().copied() {
        let credential = read(algorithm);
        let is_parsed = matches!(credential.public_key, Some(Ok(_)));
        assert_eq!(is_parsed, !algorithm.is_symmetric(), "{algorithm}");
    }
}
