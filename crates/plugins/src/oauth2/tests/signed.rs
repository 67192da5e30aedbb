//! Signed access tokens.

use super::*;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RsaKeyPair};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use std::sync::LazyLock;

/// A private key and its public one, in PEM.
struct Pair {
    private: String,
    public: String,
}

fn pem(label: &str, der: &[u8]) -> String {
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        BASE64.encode(der)
    )
}

fn ec() -> Pair {
    let pair =
        EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key is generated");
    let private = pair.to_pkcs8v1().expect("a key is written");
    let public = pair.public_key().as_der().expect("a key is written");
    Pair {
        private: pem("PRIVATE KEY", private.as_ref()),
        public: pem("PUBLIC KEY", public.as_ref()),
    }
}

static EC: LazyLock<Pair> = LazyLock::new(ec);
static OTHER_EC: LazyLock<Pair> = LazyLock::new(ec);
static RSA: LazyLock<Pair> = LazyLock::new(|| {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key is generated");
    let private = pair.as_der().expect("a key is written");
    let public = pair.public_key().as_der().expect("a key is written");
    Pair {
        private: pem("PRIVATE KEY", private.as_ref()),
        public: pem("PUBLIC KEY", public.as_ref()),
    }
});

fn signing(key: &Pair, more: Value) -> Value {
    let mut config = config(&json!({
        "signing_key": key.private, "issuer": "https://as.example", "introspection": true, "revocation": true,
    }));
    merge(&mut config, more);
    config
}

fn part(token: &str, at: usize) -> Value {
    let part = token.split('.').nth(at).expect("a token has parts");
    let json = BASE64URL_NOPAD.decode(part.as_bytes()).expect("base64url");
    serde_json::from_slice(&json).expect("JSON")
}

#[tokio::test]
async fn any_node_accepts_a_signed_token_without_the_store() {
    for (key, algorithm) in [(&EC, "ES256"), (&RSA, "RS256")] {
        let shop = Shop::new(signing(key, json!({})));
        let outcome = shop.token(password("web")).await;
        let token = text(&outcome, "access_token");
        let header = part(&token, 0);
        assert_eq!(
            (&header["typ"], &header["alg"]),
            (&json!("at+jwt"), &json!(algorithm))
        );
        let claims = part(&token, 1);
        for (name, value) in [
            ("iss", json!("https://as.example")),
            ("exp", json!(1_700_007_200)),
            ("aud", json!(SERVICE)),
            ("sub", json!("u5")),
            ("client_id", json!("web-client")),
            ("iat", json!(1_700_000_000)),
            ("scope", json!("write")),
        ] {
            assert_eq!(claims[name], value, "{name}");
        }
        // A node with another store.
        let elsewhere = Shop::new(signing(key, json!({})));
        let called = elsewhere.call(&token).await;
        let sent = called.sent();
        assert_eq!(sent.header("x-consumer-username"), Some("nora"));
        assert_eq!(sent.header("x-authenticated-userid"), Some("u5"));
        assert_eq!(sent.header("x-authenticated-scope"), Some("write"));
        elsewhere.advance(7200);
        assert_eq!(error(&elsewhere.call(&token).await), INVALID_TOKEN);
        let refreshed = shop.refresh(&text(&outcome, "refresh_token")).await;
        assert_eq!(shop.status(&text(&refreshed, "access_token")).await, 200);
    }
}

#[tokio::test]
async fn a_signed_token_does_not_outlive_its_row() {
    let shop = Shop::new(signing(
        &EC,
        json!({"token_expiration": 7200, "refresh_token_ttl": 60}),
    ));
    let outcome = shop.token(password("web")).await;
    assert_eq!(outcome.client.json()["expires_in"], 60);
    let claims = part(&text(&outcome, "access_token"), 1);
    assert_eq!(claims["exp"], 1_700_000_060);
}

#[tokio::test]
async fn a_token_of_a_client_itself_names_no_user_and_needs_no_row() {
    let shop = Shop::new(signing(&EC, json!({})));
    let token = shop.own_token().await;
    assert_eq!(part(&token, 1)["sub"], "web-client");
    assert_eq!(
        shop.call(&token)
            .await
            .sent()
            .header("x-authenticated-userid"),
        None
    );
    let rows = shop
        .store
        .list(tokens::Listed::All, None, 10, 1_700_000_000)
        .get()
        .await;
    assert_eq!(rows.expect("the store works").tokens, []);
}

#[tokio::test]
async fn what_was_not_signed_so_is_refused() {
    let shop = Shop::new(signing(&EC, json!({})));
    let token = shop.own_token().await;
    let parts: Vec<&str> = token.split('.').collect();
    let encoded = |json: &Value| BASE64URL_NOPAD.encode(json.to_string().as_bytes());
    let header = |change: Value| {
        let mut header = part(&token, 0);
        merge(&mut header, change);
        encoded(&header)
    };
    let mut claims = part(&token, 1);
    merge(&mut claims, json!({"sub": "root"}));
    let other = Shop::new(signing(&OTHER_EC, json!({}))).own_token().await;
    for forged in [
        format!("{}.{}.{}", parts[0], encoded(&claims), parts[2]),
        format!("{}.{}.", header(json!({"alg": "none"})), parts[1]),
        format!(
            "{}.{}.{}",
            header(json!({"alg": "HS256"})),
            parts[1],
            parts[2]
        ),
        format!(
            "{}.{}.{}",
            header(json!({"alg": "RS256"})),
            parts[1],
            parts[2]
        ),
        format!(
            "{}.{}.{}",
            header(json!({"typ": "JWT"})),
            parts[1],
            parts[2]
        ),
        format!(
            "{}.{}.{}",
            header(json!({"crit": ["exp"]})),
            parts[1],
            parts[2]
        ),
        format!("{}.{}.{}", header(json!({"kid": "x"})), parts[1], parts[2]),
        format!("{}.{}", parts[0], parts[1]),
        format!("{token}.x"),
        format!("{token}A"),
        ".".to_owned(),
        "..".to_owned(),
        other,
    ] {
        assert_eq!(error(&shop.call(&forged).await), INVALID_TOKEN, "{forged}");
    }
    assert_eq!(shop.status(&token).await, 200);
    // Without keys it is the text of a token that nobody has issued.
    let unsigned = shop.with(config(&json!({})));
    assert_eq!(error(&unsigned.call(&token).await), INVALID_TOKEN);
}

#[tokio::test]
async fn signed_tokens_count_for_their_issuer_service_and_client() {
    let shop = Shop::new(signing(&EC, json!({})));
    let token = shop.own_token().await;
    let renamed = shop.with(signing(&EC, json!({"issuer": "https://other.example"})));
    assert_eq!(error(&renamed.call(&token).await), INVALID_TOKEN);
    let other = shop
        .case
        .request("GET /echo")
        .service(Uuid::from_u128(1), None);
    let outcome = other
        .header("Authorization", format!("Bearer {token}"))
        .run()
        .await;
    assert_eq!(error(&outcome), INVALID_TOKEN);
    let global = shop.with(signing(&EC, json!({"global_credentials": true})));
    let of_all = global.own_token().await;
    assert_eq!(part(&of_all, 1)["aud"], "https://as.example");
    assert_eq!(global.status(&of_all).await, 200);
    assert!(error(&shop.call(&of_all).await).contains("The access token is global"));
    shop.entities.remove(OAUTH2_CREDENTIALS, WEB);
    assert_eq!(error(&shop.call(&token).await), INVALID_TOKEN);
}

#[tokio::test]
async fn keys_are_published_and_can_be_replaced() {
    let shop = Shop::new(signing(&EC, json!({})));
    let old = shop.own_token().await;
    let rotated = json!({"verification_keys": [EC.public, RSA.public]});
    let shop = shop.with(signing(&OTHER_EC, rotated));
    let new = shop.own_token().await;
    assert_eq!(
        (shop.status(&old).await, shop.status(&new).await),
        (200, 200)
    );
    let published = shop.case.request("GET /oauth2/jwks").run().await.client;
    assert_eq!(published.status, 200);
    let keys = published.json();
    let keys = keys["keys"].as_array().expect("a list");
    let kinds: Vec<&str> = keys.iter().filter_map(|key| key["alg"].as_str()).collect();
    assert_eq!(kinds, ["ES256", "ES256", "RS256"]);
    assert_eq!(keys[0]["kid"], part(&new, 0)["kid"]);
    assert_eq!(keys[1]["kid"], part(&old, 0)["kid"]);
    assert!(keys.iter().all(|key| key.get("d").is_none()), "{keys:?}");
    let without = shop.with(signing(&OTHER_EC, json!({})));
    assert_eq!(error(&without.call(&old).await), INVALID_TOKEN);
}

/// The example of RFC 7638 section 3.1.
#[test]
fn ids_of_keys_are_thumbprints() {
    const N: &str = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
    let modulus = BASE64URL_NOPAD.decode(N.as_bytes()).expect("base64url");
    // RSAPublicKey in an SPKI, with the exponent 65537.
    let key = [
        &[0x30, 0x82, 1, 10, 2, 0x82, 1, 1, 0][..],
        &modulus,
        &[2, 3, 1, 0, 1],
    ]
    .concat();
    let algorithm = [
        0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 1, 5, 0,
    ];
    let bits = [&[3, 0x82, 1, 15, 0][..], &key].concat();
    let spki = [&[0x30, 0x82, 1, 34][..], &algorithm, &bits].concat();
    let id = crate::oauth2::own::key_id(&pem("PUBLIC KEY", &spki));
    assert_eq!(
        id.as_deref(),
        Some("NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs")
    );
}

#[tokio::test]
async fn signed_tokens_can_be_introspected_and_their_grant_revoked() {
    let shop = Shop::new(signing(&EC, json!({})));
    let outcome = shop.token(password("web")).await;
    let (access, refresh) = (
        text(&outcome, "access_token"),
        text(&outcome, "refresh_token"),
    );
    let ask = async |path: &str, client: &str| {
        let parameters = json!({
            "token": access, "client_id": format!("{client}-client"), "client_secret": format!("{client}-secret"),
        });
        shop.post(path, parameters).await
    };
    let body = ask("/oauth2/introspect", "web").await.client.json();
    assert_eq!(
        (&body["active"], &body["username"]),
        (&json!(true), &json!("u5"))
    );
    let body = ask("/oauth2/introspect", "other").await.client.json();
    assert_eq!(body, json!({"active": false}));
    assert_eq!(ask("/oauth2/revoke", "other").await.client.status, 400);
    assert_eq!(ask("/oauth2/revoke", "web").await.client.status, 200);
    assert_eq!(error(&shop.refresh(&refresh).await), INVALID_REFRESH);
    let inactive = json!({"active": false});
    let body = ask("/oauth2/introspect", "web").await.client.json();
    assert_eq!(body, inactive);
    // Another node knows nothing of it.
    let elsewhere = Shop::new(signing(&EC, json!({})));
    let body = introspected(&elsewhere, &access).await;
    assert_eq!(body["active"], true);
}

#[tokio::test]
async fn signed_tokens_that_were_refreshed_or_lost_their_service_are_not_active() {
    let shop = Shop::new(signing(&EC, json!({})));
    let first = shop.token(password("web")).await;
    let second = shop.refresh(&text(&first, "refresh_token")).await;
    let inactive = json!({"active": false});
    assert_eq!(
        introspected(&shop, &text(&first, "access_token")).await,
        inactive
    );
    let second = text(&second, "access_token");
    assert_eq!(introspected(&shop, &second).await["active"], true);
    // Without a row, the signature decides.
    let own = shop.own_token().await;
    shop.entities.remove(EntityKind::Services, SERVICE);
    assert_eq!(introspected(&shop, &second).await, inactive);
    assert_eq!(introspected(&shop, &own).await["active"], true);
}

async fn introspected(shop: &Shop, token: &str) -> Value {
    let parameters = json!({
        "token": token, "client_id": "web-client", "client_secret": "web-secret",
    });
    let outcome = shop.post("/oauth2/introspect", parameters).await;
    outcome.client.json()
}

/// Tokens of other servers may have dots. They were opaque there, and are here.
#[tokio::test]
async fn imported_tokens_with_dots_are_found() {
    let shop = Shop::new(signing(&EC, json!({})));
    let owner = |id| tokens::Owner { id, created: 0 };
    for text in ["a.b", "a.b.c", "eyJhbGciOiJub25lIn0.e30."] {
        let imported = tokens::Imported {
            id: Uuid::new_v4(),
            access_token: tokens::Known::Text(text.to_owned()),
            refresh_token: None,
            credential: owner(WEB),
            service: Some(owner(SERVICE)),
            expires_in: 7200,
            created_at: 1_700_000_000,
            ends: None,
            scope: None,
            authenticated_userid: None,
        };
        assert_eq!(shop.status(text).await, 401);
        let done = shop.store.import(vec![imported], 1_700_000_000).get().await;
        assert_eq!(
            done.expect("the store works"),
            [tokens::ImportOutcome::Imported]
        );
        assert_eq!(shop.status(text).await, 200, "{text}");
    }
}
