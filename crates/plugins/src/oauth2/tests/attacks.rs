//! The attacks of RFC 9700, in both profiles: what `kong` lets through because Kong does, and that `rfc9700` does not.

use super::*;

fn both() -> [(bool, Shop); 2] {
    [
        (false, Shop::new(config(&json!({})))),
        (true, Shop::new(strict(&json!({})))),
    ]
}

/// The refusal of a code or refresh token. Kong does not use the error of RFC 6749 section 5.2.
fn unusable(is_strict: bool, what: &str) -> String {
    let error = if is_strict {
        "invalid_grant"
    } else {
        "invalid_request"
    };
    format!("400 {error}: Invalid {what}")
}

/// What an authorization request needs in the strict profile.
fn pkce(more: Value) -> Value {
    with(more, "code_challenge", CHALLENGE)
}

fn verifier(more: Value) -> Value {
    with(more, "code_verifier", VERIFIER)
}

fn with(mut more: Value, name: &str, value: &str) -> Value {
    if more.get(name).is_none() {
        more[name] = value.into();
    }
    more
}

/// Section 2.1.1: clients must use PKCE.
#[tokio::test]
async fn a_code_without_pkce() {
    for (is_strict, shop) in both() {
        let uri = redirect_uri(&shop.authorize(json!({})).await);
        assert_eq!(uri.contains("error=invalid_request"), is_strict, "{uri}");
    }
}

/// Sections 2.1.1 and 4.8: an attacker removes the challenge from the request, so that a stolen code can be used.
#[tokio::test]
async fn pkce_downgrade() {
    let kong = Shop::new(config(&json!({})));
    let code = kong.code(json!({})).await;
    assert_eq!(
        kong.exchange(&code, verifier(json!({})))
            .await
            .client
            .status,
        200
    );
    // A code that the other profile has issued, or one from before a change.
    let code = kong.code(json!({})).await;
    let rfc9700 = kong.with(strict(&json!({})));
    let outcome = rfc9700.exchange(&code, verifier(json!({}))).await;
    assert_eq!(error(&outcome), "400 invalid_grant: Invalid code");
}

/// Section 4.2.4 and RFC 6749 section 4.1.2: a code that is used twice.
#[tokio::test]
async fn code_replay() {
    for (is_strict, shop) in both() {
        let code = shop.code(pkce(json!({}))).await;
        let first = shop.exchange(&code, verifier(json!({}))).await;
        let refreshed = shop.refresh(&text(&first, "refresh_token")).await;
        let access = text(&refreshed, "access_token");
        assert_eq!(shop.status(&access).await, 200);
        assert_eq!(
            error(&shop.exchange(&code, verifier(json!({}))).await),
            unusable(is_strict, "code")
        );
        // Kong leaves the tokens of the code alone.
        assert_eq!(
            shop.status(&access).await,
            if is_strict { 401 } else { 200 }
        );
    }
}

/// Only the client of a code can end its tokens: neither one that has not proved itself nor another one.
#[tokio::test]
async fn code_replay_by_somebody_else() {
    let shop = Shop::new(strict(&json!({})));
    let code = shop.code(pkce(json!({}))).await;
    let first = shop.exchange(&code, verifier(json!({}))).await;
    let access = text(&first, "access_token");
    let outcome = shop
        .exchange(&code, verifier(json!({"client_secret": "wrong"})))
        .await;
    assert_eq!(error(&outcome), INVALID_CLIENT);
    assert_eq!(shop.status(&access).await, 200);
    let other = json!({"client_id": "other-client", "client_secret": "other-secret"});
    let outcome = shop.exchange(&code, verifier(other)).await;
    assert_eq!(error(&outcome), unusable(true, "code"));
    assert_eq!(shop.status(&access).await, 200);
    shop.exchange(&code, verifier(json!({}))).await;
    assert_eq!(shop.status(&access).await, 401);
}

/// Section 4.5: a stolen code is put into the session of another client. Kong refuses that, too.
#[tokio::test]
async fn code_of_another_client() {
    for (is_strict, shop) in both() {
        let code = shop.code(pkce(json!({}))).await;
        let other = json!({"client_id": "other-client", "client_secret": "other-secret"});
        assert_eq!(
            error(&shop.exchange(&code, verifier(other)).await),
            unusable(is_strict, "code")
        );
    }
}

/// Section 4.5 again, within one client: without its own verifier, the stolen code is of no use.
#[tokio::test]
async fn code_of_another_session() {
    for (_, shop) in both() {
        let code = shop.code(pkce(json!({}))).await;
        let other = json!({"code_verifier": "y".repeat(43)});
        assert_eq!(
            error(&shop.exchange(&code, other).await),
            "400 invalid_grant: Invalid code"
        );
    }
}

/// Section 4.1: redirect URIs are compared exactly. Kong does so, too.
#[tokio::test]
async fn redirect_uri_that_only_looks_alike() {
    for (_, shop) in both() {
        for foreign in [
            "http://app.example/back/",
            "http://app.example/back/../x",
            "http://app.example/back?x",
            "HTTP://app.example/back",
        ] {
            let uri = redirect_uri(&shop.authorize(pkce(json!({"redirect_uri": foreign}))).await);
            assert!(
                uri.starts_with(&format!("{BACK}?error=invalid_request")),
                "{uri}"
            );
        }
    }
}

/// RFC 6749 section 4.1.3: the code counts with its own redirect URI only. Kong accepts any of the client's.
#[tokio::test]
async fn redirect_uri_mismatch() {
    let (one, two) = ("http://one.example/1", "http://two.example/2");
    for (is_strict, shop) in both() {
        let multi = json!({"client_id": "multi-client", "client_secret": "multi-secret"});
        let authorized = json!({"client_id": "multi-client", "redirect_uri": one});
        let code = shop.code(pkce(authorized)).await;
        for (uri, is_right) in [
            (json!(two), false),
            (json!(null), false),
            (json!(one), true),
        ] {
            let mut parameters = verifier(multi.clone());
            merge(&mut parameters, json!({"redirect_uri": uri}));
            let outcome = shop.exchange(&code, parameters).await;
            if is_strict && !is_right {
                assert_eq!(error(&outcome), "400 invalid_grant: Invalid redirect_uri");
                continue;
            }
            assert_eq!(outcome.client.status, 200);
            break;
        }
    }
}

/// RFC 6749 section 3.1.2.3: a client with several redirect URIs must say which.
#[tokio::test]
async fn redirect_uri_left_out() {
    for (is_strict, shop) in both() {
        let uri = redirect_uri(
            &shop
                .authorize(pkce(json!({"client_id": "multi-client"})))
                .await,
        );
        assert_eq!(uri.contains("error=invalid_request"), is_strict, "{uri}");
    }
}

/// Section 4.4: an authorization server cannot be taken for another one (RFC 9207).
#[tokio::test]
async fn mix_up() {
    for (is_strict, shop) in both() {
        for more in [json!({}), json!({"response_type": "x"})] {
            let uri = redirect_uri(&shop.authorize(pkce(more)).await);
            assert_eq!(
                uri.contains("iss=https%3a%2f%2fas%2eexample"),
                is_strict,
                "{uri}"
            );
        }
    }
}

/// Section 2.1.2: no implicit grant.
#[tokio::test]
async fn implicit_grant() {
    for (is_strict, shop) in both() {
        let uri = redirect_uri(
            &shop
                .authorize(pkce(json!({"response_type": "token"})))
                .await,
        );
        assert_eq!(
            uri.contains("error=unsupported_response_type"),
            is_strict,
            "{uri}"
        );
    }
}

/// Section 2.4: no password grant.
#[tokio::test]
async fn password_grant() {
    for (is_strict, shop) in both() {
        let status = shop.token(password("web")).await.client.status;
        assert_eq!(status, if is_strict { 400 } else { 200 });
    }
}

/// Section 4.3.2: tokens in the query, which end up in logs and histories.
#[tokio::test]
async fn token_in_the_query() {
    for (is_strict, shop) in both() {
        let token = shop.own_token().await;
        let line = format!("GET /echo?access_token={token}");
        let status = shop.case.request(&line).run().await.client.status;
        assert_eq!(status, if is_strict { 401 } else { 200 });
        let request = shop.case.request("POST /echo");
        let request = request.header("Content-Type", "application/x-www-form-urlencoded");
        let form = request.body(format!("access_token={token}")).run().await;
        assert_eq!(form.client.status, 200);
        let json = json!({"access_token": token}).to_string();
        let request = shop
            .case
            .request("POST /echo")
            .header("Content-Type", "application/json");
        let status = request.body(json).run().await.client.status;
        assert_eq!(status, if is_strict { 401 } else { 200 });
        let request = shop
            .case
            .request("GET /echo")
            .header("Authorization", &token);
        let status = request.run().await.client.status;
        assert_eq!(status, if is_strict { 401 } else { 200 });
    }
}

/// RFC 6749 section 2.3.1: secrets in the query.
#[tokio::test]
async fn secret_in_the_query() {
    for (is_strict, shop) in both() {
        let line = "POST /oauth2/token?grant_type=client_credentials&client_id=web-client&client_secret=web-secret";
        let status = shop
            .case
            .request(line)
            .https(None)
            .body("")
            .run()
            .await
            .client
            .status;
        assert_eq!(status, if is_strict { 400 } else { 200 });
    }
}

/// Section 4.14: a refresh token that is used twice.
#[tokio::test]
async fn refresh_replay() {
    for (is_strict, shop) in both() {
        let code = shop.code(pkce(json!({}))).await;
        let first = shop.exchange(&code, verifier(json!({}))).await;
        let refresh = text(&first, "refresh_token");
        let access = text(&shop.refresh(&refresh).await, "access_token");
        assert_eq!(
            error(&shop.refresh(&refresh).await),
            unusable(is_strict, "refresh_token")
        );
        assert_eq!(
            shop.status(&access).await,
            if is_strict { 401 } else { 200 }
        );
    }
}

/// Section 2.2.2: refresh tokens of public clients are rotated, whatever `reuse_refresh_token` says.
#[tokio::test]
async fn refresh_token_of_a_public_client_that_stays() {
    for is_strict in [false, true] {
        let more = json!({"reuse_refresh_token": true});
        let shop = Shop::new(if is_strict {
            strict(&more)
        } else {
            config(&more)
        });
        let spa = json!({"client_id": "spa-client", "client_secret": null});
        let code = shop.code(pkce(spa.clone())).await;
        let first = shop.exchange(&code, verifier(spa)).await;
        let refresh = text(&first, "refresh_token");
        let parameters = json!({"grant_type": "refresh_token", "refresh_token": refresh, "client_id": "spa-client"});
        let second = text(&shop.token(parameters).await, "refresh_token");
        assert_eq!(second != refresh, is_strict);
    }
}

/// RFC 6749 section 4.4: client credentials of a client that has none. Kong issues a token for the bare id.
#[tokio::test]
async fn client_credentials_of_a_public_client() {
    for (is_strict, shop) in both() {
        let outcome = shop
            .token(credentials("spa", json!({"client_secret": null})))
            .await;
        match is_strict {
            true => assert!(error(&outcome).starts_with("400 unauthorized_client")),
            false => assert_eq!(outcome.client.status, 200),
        }
    }
}
