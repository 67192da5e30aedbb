//! Introspection, revocation, metadata.

use super::*;

fn with_endpoints() -> Shop {
    shop(json!({
        "introspection": true, "revocation": true, "metadata": true, "issuer": "https://as.example/shop",
        "authorization_endpoint": "https://login.example/",
    }))
}

async fn ask(shop: &Shop, path: &str, client: &str, token: &str) -> Outcome {
    let request = shop.case.request(&format!("POST {path}")).https(None);
    let request = request.header("Content-Type", "application/x-www-form-urlencoded");
    let body = format!("token={token}&client_id={client}-client&client_secret={client}-secret");
    request.body(body).run().await
}

async fn introspect(shop: &Shop, client: &str, token: &str) -> Value {
    let outcome = ask(shop, "/oauth2/introspect", client, token).await;
    assert_eq!(outcome.client.status, 200, "{:?}", outcome.client);
    assert_eq!(outcome.client.header("cache-control"), Some("no-store"));
    outcome.client.json()
}

async fn revoke(shop: &Shop, client: &str, token: &str) -> Outcome {
    ask(shop, "/oauth2/revoke", client, token).await
}

#[tokio::test]
async fn nothing_of_it_is_there_unless_it_is_set() {
    let shop = shop(json!({}));
    for line in [
        "POST /oauth2/introspect",
        "POST /oauth2/revoke",
        "GET /oauth2/jwks",
        "GET /.well-known/oauth-authorization-server",
    ] {
        let outcome = shop.case.request(line).https(None).run().await;
        assert_eq!(
            error(&outcome),
            "401 invalid_request: The access token is missing",
            "{line}"
        );
    }
}

#[tokio::test]
async fn a_client_learns_about_its_own_tokens() {
    let shop = with_endpoints();
    let (access, refresh) = shop.pair().await;
    let common = json!({
        "active": true, "scope": "write", "client_id": "web-client", "username": "u5", "sub": "u5",
        "iat": 1_700_000_000, "aud": SERVICE.to_string(), "iss": "https://as.example/shop",
    });
    let mut wanted = common.clone();
    merge(
        &mut wanted,
        json!({"token_type": "bearer", "exp": 1_700_007_200}),
    );
    assert_eq!(introspect(&shop, "web", &access).await, wanted);
    let mut wanted = common;
    merge(&mut wanted, json!({"exp": 1_701_209_600}));
    assert_eq!(introspect(&shop, "web", &refresh).await, wanted);
    let own = introspect(&shop, "web", &shop.own_token().await).await;
    assert_eq!(
        (&own["sub"], own.get("username")),
        (&json!("web-client"), None)
    );
}

#[tokio::test]
async fn everything_else_is_not_active() {
    let shop = with_endpoints();
    let (access, refresh) = shop.pair().await;
    let inactive = json!({"active": false});
    assert_eq!(introspect(&shop, "other", &access).await, inactive);
    assert_eq!(introspect(&shop, "other", &refresh).await, inactive);
    assert_eq!(introspect(&shop, "web", "nope").await, inactive);
    shop.refresh(&refresh).await;
    assert_eq!(introspect(&shop, "web", &access).await, inactive);
    assert_eq!(introspect(&shop, "web", &refresh).await, inactive);
    let (access, refresh) = shop.pair().await;
    shop.advance(7200);
    assert_eq!(introspect(&shop, "web", &access).await, inactive);
    assert_eq!(introspect(&shop, "web", &refresh).await["active"], true);
    shop.entities.remove(EntityKind::Services, SERVICE);
    assert_eq!(introspect(&shop, "web", &refresh).await, inactive);
}

#[tokio::test]
async fn who_asks_must_prove_itself() {
    let shop = with_endpoints();
    let token = shop.own_token().await;
    for (path, parameters) in [
        ("/oauth2/introspect", json!({"token": token})),
        (
            "/oauth2/introspect",
            json!({"token": token, "client_id": "web-client"}),
        ),
        (
            "/oauth2/introspect",
            json!({"token": token, "client_id": "web-client", "client_secret": "x"}),
        ),
        (
            "/oauth2/introspect",
            json!({"token": token, "client_id": "spa-client"}),
        ),
        (
            "/oauth2/introspect",
            json!({"token": token, "client_id": "spa-client", "client_secret": "spa-secret"}),
        ),
        (
            "/oauth2/revoke",
            json!({"token": token, "client_id": "web-client"}),
        ),
        (
            "/oauth2/revoke",
            json!({"token": token, "client_id": "nobody", "client_secret": "x"}),
        ),
        (
            "/oauth2/revoke",
            json!({"token": token, "client_id": "spa-client", "client_secret": "spa-secret"}),
        ),
    ] {
        let outcome = shop.post(path, parameters.clone()).await;
        assert_eq!(
            error(&outcome),
            "401 invalid_client: Invalid client authentication",
            "{path} {parameters}"
        );
        assert_eq!(
            outcome.client.header("www-authenticate"),
            Some("Basic realm=\"OAuth2.0\"")
        );
    }
    assert_eq!(shop.status(&token).await, 200);
    for path in ["/oauth2/introspect", "/oauth2/revoke"] {
        let right = json!({"client_id": "web-client", "client_secret": "web-secret"});
        let outcome = shop.post(path, right).await;
        assert_eq!(
            error(&outcome),
            "400 invalid_request: Missing token parameter"
        );
        let line = format!("POST {path}");
        let plain = shop.case.request(&line).body("").run().await;
        assert_eq!(error(&plain), "400 access_denied: You must use HTTPS");
        let wrong = shop
            .case
            .request(&format!("GET {path}"))
            .https(None)
            .run()
            .await;
        assert_eq!(wrong.client.status, 405);
    }
    // Secrets in the query do not count here, whatever the profile is.
    let line = format!(
        "POST /oauth2/introspect?token={token}&client_id=web-client&client_secret=web-secret"
    );
    assert_eq!(
        shop.case
            .request(&line)
            .https(None)
            .body("")
            .run()
            .await
            .client
            .status,
        401
    );
}

#[tokio::test]
async fn a_revoked_token_ends_with_its_refresh_token() {
    let shop = with_endpoints();
    for by_refresh_token in [false, true] {
        let (access, refresh) = shop.pair().await;
        let other = revoke(&shop, "other", &access).await;
        assert_eq!(
            error(&other),
            "400 invalid_request: The token was not issued to this client"
        );
        assert_eq!(shop.status(&access).await, 200);
        let token = if by_refresh_token { &refresh } else { &access };
        for _ in 0..2 {
            let outcome = revoke(&shop, "web", token).await;
            assert_eq!((outcome.client.status, outcome.client.text()), (200, "{}"));
        }
        assert_eq!(shop.status(&access).await, 401);
        assert_eq!(error(&shop.refresh(&refresh).await), INVALID_REFRESH);
    }
    assert_eq!(revoke(&shop, "web", "nope").await.client.status, 200);
}

#[tokio::test]
async fn a_used_refresh_token_revokes_what_has_followed_it() {
    let shop = with_endpoints();
    let (_, refresh) = shop.pair().await;
    let next = text(&shop.refresh(&refresh).await, "access_token");
    assert_eq!(revoke(&shop, "web", &refresh).await.client.status, 200);
    assert_eq!(shop.status(&next).await, 401);
}

#[tokio::test]
async fn a_public_client_revokes_by_its_id() {
    let shop = with_endpoints();
    let mut parameters = password("spa");
    merge(&mut parameters, json!({"client_secret": null}));
    let access = text(&shop.token(parameters).await, "access_token");
    let outcome = shop
        .post(
            "/oauth2/revoke",
            json!({"token": access, "client_id": "spa-client"}),
        )
        .await;
    assert_eq!(outcome.client.status, 200);
    assert_eq!(shop.status(&access).await, 401);
}

#[tokio::test]
async fn the_metadata_are_at_the_path_of_the_issuer() {
    let shop = with_endpoints();
    let get = async |path: &str| shop.case.request(&format!("GET {path}")).run().await.client;
    let found = get("/.well-known/oauth-authorization-server/shop").await;
    assert_eq!(
        found.header("content-type"),
        Some("application/json; charset=utf-8")
    );
    assert_eq!(
        found.json(),
        json!({
            "issuer": "https://as.example/shop",
            "authorization_endpoint": "https://login.example/",
            "token_endpoint": "https://as.example/shop/oauth2/token",
            "scopes_supported": ["read", "write", "user.mail"],
            "response_types_supported": ["code", "token"],
            "grant_types_supported":
                ["authorization_code", "implicit", "client_credentials", "password", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
            "revocation_endpoint": "https://as.example/shop/oauth2/revoke",
            "revocation_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
            "introspection_endpoint": "https://as.example/shop/oauth2/introspect",
            "introspection_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": false,
        })
    );
    for path in [
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/other",
        "/x/.well-known/oauth-authorization-server/shop",
    ] {
        assert_eq!(get(path).await.status, 401, "{path}");
    }
    let strict = shop.with(strict(
        &json!({"metadata": true, "authorization_endpoint": "https://login.example/"}),
    ));
    let request = strict
        .case
        .request("GET /.well-known/oauth-authorization-server");
    let metadata = request.run().await.client.json();
    assert_eq!(metadata["authorization_endpoint"], "https://login.example/");
    assert_eq!(metadata["response_types_supported"], json!(["code"]));
    let grants = json!(["authorization_code", "client_credentials", "refresh_token"]);
    assert_eq!(metadata["grant_types_supported"], grants);
    assert_eq!(
        metadata["authorization_response_iss_parameter_supported"],
        true
    );
}
