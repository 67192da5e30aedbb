//! What client libraries rely on, where Kong does something else: the profile `rfc9700` does as the RFCs say.

use super::*;
use data_encoding::BASE64;

fn both(more: &Value) -> [(bool, Shop); 2] {
    [
        (false, Shop::new(config(more))),
        (true, Shop::new(strict(more))),
    ]
}

/// Posts a form with HTTP Basic.
async fn with_basic(shop: &Shop, path: &str, credentials: &str, form: &str) -> Outcome {
    let header = format!("Basic {}", BASE64.encode(credentials.as_bytes()));
    let request = shop.case.request(&format!("POST {path}")).https(None);
    let request = request.header("Content-Type", "application/x-www-form-urlencoded");
    let request = request.header("Authorization", header);
    request.body(form.to_owned()).run().await
}

/// RFC 6749 section 2.3.1: id and secret are encoded as a form. Many clients leave that out.
#[tokio::test]
async fn encoded_credentials_in_the_header() {
    for (is_strict, shop) in both(&json!({"introspection": true})) {
        for (id, name, hash) in [(1, "my-app", false), (2, "my app", true)] {
            let secret = "a+b%41:/=!";
            let stored = if hash {
                hashed(secret, 1000)
            } else {
                secret.to_owned()
            };
            let more = json!({"client_id": name, "client_secret": stored, "hash_secret": hash});
            let made = client(Uuid::from_u128(id), NORA, "made", more);
            shop.entities.put(OAUTH2_CREDENTIALS, made);
        }
        let cases = [
            // This is how openid-client, simple-oauth2 and Go send it.
            ("my%2Dapp:a%2Bb%2541%3A%2F%3D%21", is_strict),
            ("my+app:a%2Bb%2541%3A%2F%3D%21", is_strict),
            // This is how Authlib, requests and curl send it. Kong ends the secret at its colon.
            ("my-app:a+b%41:/=!", is_strict),
            ("my app:a+b%41:/=!", is_strict),
            ("my-app:a b%41:/=!", false),
            ("my-app:a+bA:/=!", false),
            ("web-client:web-secret", true),
            ("web%2Dclient:web-secret", is_strict),
            ("web%2Dclient:web%2Dsecret", is_strict),
            ("nobody:web-secret", false),
        ];
        for (credentials, is_right) in cases {
            let form = "grant_type=client_credentials";
            let outcome = with_basic(&shop, "/oauth2/token", credentials, form).await;
            let is_accepted = outcome.client.status == 200;
            assert_eq!(is_accepted, is_right, "{credentials} {is_strict}");
            let outcome = with_basic(&shop, "/oauth2/introspect", credentials, "token=x").await;
            let is_accepted = outcome.client.status == 200;
            assert_eq!(is_accepted, is_right, "{credentials} {is_strict}");
        }
    }
}

/// RFC 6749 section 5.2: wrong credentials in the header are answered with 401 and a challenge.
#[tokio::test]
async fn unknown_client_in_the_header() {
    for (is_strict, shop) in both(&json!({})) {
        let form = "grant_type=client_credentials";
        let outcome = with_basic(&shop, "/oauth2/token", "nobody:x", form).await;
        let status = if is_strict { 401 } else { 400 };
        let wanted = format!("{status} invalid_client: Invalid client authentication");
        assert_eq!(error(&outcome), wanted);
        let challenge = outcome.client.header("www-authenticate");
        assert_eq!(challenge.is_some(), is_strict);
    }
}

/// RFC 6749 section 5.2: what cannot be exchanged is `invalid_grant`, but a missing parameter is `invalid_request`.
#[tokio::test]
async fn errors_of_grants() {
    let shop = Shop::new(strict(&json!({})));
    let pkce = json!({"code_challenge": CHALLENGE});
    let verifier = json!({"code_verifier": VERIFIER});
    let code = shop.code(pkce).await;
    let first = shop.exchange(&code, verifier).await;
    let refresh = text(&first, "refresh_token");
    let of_other = shop.refresh_of("other", &refresh).await;
    let wanted = "400 invalid_grant: Invalid refresh_token";
    assert_eq!(error(&of_other), wanted);
    assert_eq!(error(&shop.refresh("unknown").await), wanted);
    let unknown = shop.exchange("unknown", json!({})).await;
    assert_eq!(error(&unknown), "400 invalid_grant: Invalid code");
    let missing = shop.exchange("x", json!({"code": null})).await;
    assert_eq!(error(&missing), INVALID_CODE);
    let parameters = json!({
        "grant_type": "refresh_token", "client_id": "web-client", "client_secret": "web-secret",
    });
    assert_eq!(error(&shop.token(parameters).await), INVALID_REFRESH);
    // The client that has the token can still use it.
    assert_eq!(shop.refresh(&refresh).await.client.status, 200);
}

/// RFC 6749 section 4.1.2.1: a response type that is off is called so, even if the request lacks a challenge.
#[tokio::test]
async fn a_response_type_that_is_off() {
    let shop = Shop::new(strict(&json!({})));
    for kind in ["token", "magic"] {
        let outcome = shop.authorize(json!({"response_type": kind})).await;
        let uri = redirect_uri(&outcome);
        assert!(
            uri.contains("error=unsupported_response_type&") && uri.contains("&iss="),
            "{uri}"
        );
    }
}

/// RFC 6749 section 3.1.2: the query of a redirect URI is kept. Kong sorts and encodes it anew.
#[tokio::test]
async fn the_query_of_a_redirect_uri() {
    for (is_strict, shop) in both(&json!({})) {
        let uris = json!(["https://a.example/cb?z=1&a=b-c%20d&&code=old&e#end"]);
        let more = json!({"client_id": "q", "redirect_uris": uris});
        let made = client(Uuid::from_u128(1), NORA, "made", more);
        shop.entities.put(OAUTH2_CREDENTIALS, made);
        let wanted = json!({"client_id": "q", "code_challenge": CHALLENGE, "state": "x-y"});
        let uri = redirect_uri(&shop.authorize(wanted).await);
        let (before, after) = match is_strict {
            true => (
                "https://a.example/cb?z=1&a=b-c%20d&e&code=",
                "&state=x%2dy&iss=https%3a%2f%2fas%2eexample#end",
            ),
            false => (
                "https://a.example/cb?a=b%2dc%20d&code=",
                "&e=true&state=x%2dy&z=1#end",
            ),
        };
        assert!(uri.starts_with(before) && uri.ends_with(after), "{uri}");
    }
}

/// RFC 6749 section 5.1: a client that gets another scope than it has asked for must learn it.
#[tokio::test]
async fn the_scope_of_a_token() {
    for (is_strict, shop) in both(&json!({})) {
        let wanted = json!({"code_challenge": CHALLENGE, "scope": "read write"});
        let code = shop.code(wanted).await;
        let first = shop
            .exchange(&code, json!({"code_verifier": VERIFIER}))
            .await;
        let parameters = json!({
            "grant_type": "refresh_token", "refresh_token": text(&first, "refresh_token"), "scope": "read",
            "client_id": "web-client", "client_secret": "web-secret",
        });
        for outcome in [first, shop.token(parameters).await] {
            let told = outcome.client.json()["scope"].clone();
            let scope = if is_strict {
                json!("read write")
            } else {
                Value::Null
            };
            assert_eq!(told, scope);
        }
    }
}

/// RFC 9110 section 11.6.1: the parts of a challenge are separated by commas.
#[tokio::test]
async fn the_form_of_challenges() {
    for (is_strict, shop) in both(&json!({"realm": "shop"})) {
        let comma = if is_strict { "," } else { "" };
        let outcome = shop.call("unknown").await;
        let challenge = outcome.client.header("www-authenticate");
        let wanted = format!(
            "Bearer realm=\"shop\"{comma} error=\"invalid_token\"{comma} \
             error_description=\"The access token is invalid or has expired\""
        );
        assert_eq!(challenge, Some(wanted.as_str()));
        let outcome = shop.case.request("GET /echo").run().await;
        let challenge = outcome.client.header("www-authenticate");
        assert_eq!(challenge, Some("Bearer realm=\"shop\""));
    }
    let outcome = shop(json!({})).case.request("GET /echo").run().await;
    assert_eq!(outcome.client.header("www-authenticate"), Some("Bearer"));
}

/// RFC 7009 section 2.1: a public client revokes by its id. Libraries send its empty secret along.
#[tokio::test]
async fn a_public_client_with_an_empty_secret_revokes() {
    for (_, shop) in both(&json!({"revocation": true, "introspection": true})) {
        let asked = json!({"client_id": "spa-client", "code_challenge": CHALLENGE});
        let code = shop.code(asked).await;
        // A null removes the parameter of the other client.
        let proof =
            json!({"client_id": "spa-client", "client_secret": null, "code_verifier": VERIFIER});
        let access = text(&shop.exchange(&code, proof).await, "access_token");
        let form = format!("token={access}&client_id=spa-client&client_secret=");
        let with_secret = format!("{form}x");
        let post = async |path: &str, form: &str| {
            let request = shop.case.request(&format!("POST {path}")).https(None);
            let request = request.header("Content-Type", "application/x-www-form-urlencoded");
            request.body(form.to_owned()).run().await.client.status
        };
        assert_eq!(post("/oauth2/introspect", &form).await, 401);
        assert_eq!(post("/oauth2/revoke", &with_secret).await, 401);
        assert_eq!(shop.status(&access).await, 200);
        assert_eq!(post("/oauth2/revoke", &form).await, 200);
        assert_eq!(shop.status(&access).await, 401);
    }
}
