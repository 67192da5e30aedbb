//! The authorization endpoint.

use super::*;

fn in_redirect(description: &str) -> String {
    format!("{BACK}?error={description}")
}

#[tokio::test]
async fn a_code_is_added_to_the_redirect_uri() {
    let shop = shop(json!({}));
    let outcome = shop.authorize(json!({"state": "st =1"})).await;
    assert_eq!(outcome.client.status, 200);
    assert_eq!(outcome.client.header("cache-control"), Some("no-store"));
    let uri = redirect_uri(&outcome);
    let rest = uri
        .strip_prefix("http://app.example/back?code=")
        .expect("the code comes first");
    assert_eq!(rest.get(32..), Some("&state=st%20%3d1"));
    let query = redirect_uri(&shop.authorize(json!({"client_id": "query-client"})).await);
    assert!(
        query.starts_with("http://app.example/back?code=") && query.ends_with("&foo=bar"),
        "{query}"
    );
    assert!(!query.contains("old"), "{query}");
}

#[tokio::test]
async fn the_operators_back_end_must_prove_itself_and_name_a_user() {
    let shop = shop(json!({}));
    for (more, wanted) in [
        (
            json!({"provision_key": "x"}),
            "400 invalid_provision_key: Invalid provision_key",
        ),
        (
            json!({"provision_key": null}),
            "400 invalid_provision_key: Invalid provision_key",
        ),
        (
            json!({"authenticated_userid": " "}),
            "400 invalid_authenticated_userid: Missing authenticated_userid parameter",
        ),
        (json!({"client_id": "nobody"}), INVALID_CLIENT),
        (json!({"client_id": "nouri-client"}), INVALID_CLIENT),
        (
            json!({"client_id": null, "response_type": null}),
            INVALID_CLIENT,
        ),
    ] {
        let outcome = shop.authorize(more).await;
        assert_eq!(error(&outcome), wanted);
        assert!(outcome.client.json().get("redirect_uri").is_none());
    }
}

#[tokio::test]
async fn later_errors_go_to_the_redirect_uri() {
    let shop = shop(json!({"mandatory_scope": true}));
    let type_error = "unsupported_response_type&error_description=Invalid%20response_type";
    for (more, wanted) in [
        (
            json!({"scope": null}),
            "invalid_scope&error_description=You%20must%20specify%20a%20scope".to_owned(),
        ),
        (
            json!({"scope": "wild"}),
            "invalid_scope&error_description=%22wild%22%20is%20an%20invalid%20scope".to_owned(),
        ),
        (json!({"response_type": null}), type_error.to_owned()),
        (
            json!({"response_type": "id_token", "state": "abc"}),
            format!("{type_error}&state=abc"),
        ),
    ] {
        let outcome = shop.authorize(more).await;
        assert_eq!(outcome.client.status, 400);
        assert_eq!(redirect_uri(&outcome), in_redirect(&wanted));
    }
}

#[tokio::test]
async fn the_redirect_uri_is_one_of_the_registered_ones() {
    let shop = shop(json!({}));
    let uri = async |more: Value| redirect_uri(&shop.authorize(more).await);
    let first = uri(json!({"client_id": "multi-client"})).await;
    assert!(first.starts_with("http://one.example/1?code="), "{first}");
    let second =
        uri(json!({"client_id": "multi-client", "redirect_uri": "http://two.example/2"})).await;
    assert!(second.starts_with("http://two.example/2?code="), "{second}");
    for foreign in [
        json!("http://two.example/2/"),
        json!("http://evil.example/"),
        json!(["http://two.example/2"]),
    ] {
        let refused = uri(json!({"client_id": "multi-client", "redirect_uri": foreign})).await;
        assert!(
            refused.starts_with("http://one.example/1?error=invalid_request"),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn the_implicit_grant_puts_the_token_into_the_fragment() {
    let shop = shop(json!({}));
    let outcome = shop
        .authorize(json!({"response_type": "token", "state": "w"}))
        .await;
    let uri = redirect_uri(&outcome);
    let rest = uri
        .strip_prefix("http://app.example/back#access_token=")
        .expect("the token comes first");
    let (token, rest) = rest.split_at(32);
    assert_eq!(rest, "&expires_in=7200&state=w&token_type=bearer");
    let called = shop.call(token).await;
    assert_eq!(called.sent().header("x-authenticated-userid"), Some("u9"));
    let off = shop.with(config(&json!({"enable_implicit_grant": false})));
    let refused = redirect_uri(&off.authorize(json!({"response_type": "token"})).await);
    assert!(
        refused.contains("error=unsupported_response_type"),
        "{refused}"
    );
}

#[tokio::test]
async fn challenges_are_checked() {
    let shop = shop(json!({"pkce": "strict"}));
    let spa = "spa-client";
    for (more, wanted) in [
        (
            json!({}),
            "code_challenge is required for confidential clients",
        ),
        (
            json!({"client_id": spa}),
            "code_challenge is required for public clients",
        ),
        (
            json!({"code_challenge_method": "S256"}),
            "code_challenge is required when code_method is present",
        ),
        (
            json!({"code_challenge": CHALLENGE, "code_challenge_method": "plain"}),
            "code_challenge_method is not supported, must be S256",
        ),
        (
            json!({"code_challenge": 5}),
            "code_challenge is not a string",
        ),
    ] {
        let uri = redirect_uri(&shop.authorize(more).await);
        let uri = uri.replace("%20", " ").replace("%2c", ",");
        assert!(
            uri.contains("error=invalid_request") && uri.contains(wanted),
            "{uri}"
        );
    }
    let lax = shop.with(config(&json!({"pkce": null})));
    let refused = redirect_uri(&lax.authorize(json!({"client_id": spa})).await);
    assert!(refused.contains("error=invalid_request"), "{refused}");
    lax.code(json!({})).await;
    let none = shop.with(config(&json!({"pkce": "none"})));
    none.code(json!({"client_id": spa})).await;
}

#[tokio::test]
async fn verifiers_are_checked_and_errors_do_not_use_the_code_up() {
    let shop = shop(json!({}));
    let padded = format!("{CHALLENGE}=").replace('-', "+");
    for challenge in [
        json!({"code_challenge": CHALLENGE}),
        json!({"code_challenge": padded, "code_challenge_method": "s256"}),
    ] {
        let code = shop.code(challenge).await;
        for (verifier, wanted) in [
            (
                json!(null),
                "400 invalid_request: code_verifier is required for PKCE authorization requests",
            ),
            (
                json!("short"),
                "400 invalid_request: code_verifier must be between 43 and 128 characters",
            ),
            (
                json!("y".repeat(129)),
                "400 invalid_request: code_verifier must be between 43 and 128 characters",
            ),
            (
                json!(12),
                "400 invalid_request: code_verifier is not a string",
            ),
            (json!("y".repeat(50)), "400 invalid_grant: Invalid code"),
        ] {
            let outcome = shop
                .exchange(&code, json!({"code_verifier": verifier}))
                .await;
            assert_eq!(error(&outcome), wanted);
        }
        let right = shop
            .exchange(&code, json!({"code_verifier": VERIFIER}))
            .await;
        assert_eq!(right.client.status, 200);
    }
}

#[tokio::test]
async fn codes_of_another_plugin_with_global_credentials_are_refused() {
    let shop = shop(json!({"global_credentials": true}));
    let code = shop.code(json!({})).await;
    // The harness numbers the configured plugins, so the second one has another id.
    let more = config(&json!({"global_credentials": true}));
    let other = Shop {
        case: Case::new(def(), more.clone())
            .for_route(Uuid::from_u128(1))
            .and(def(), more)
            .on(shop.case.node().clone()),
        entities: shop.entities.clone(),
        store: shop.store.clone(),
        directory: shop.directory.clone(),
    };
    assert_eq!(error(&other.exchange(&code, json!({})).await), INVALID_CODE);
    assert_eq!(shop.exchange(&code, json!({})).await.client.status, 200);
}

/// Each element of a list repeats the names of what it is in. So a body of some kilobytes could ask for gigabytes.
#[tokio::test]
async fn a_state_that_is_too_long_is_refused() {
    let shop = shop(json!({}));
    let long = "n".repeat(100_000);
    for state in [
        json!("x".repeat(300_000)),
        json!({long.clone(): [1, 2, 3]}),
        json!({long.clone(): vec![json!([]); 10_000]}),
        json!({long: [[[1, 2]], 3]}),
        json!(vec![json!(null); 50_000]),
    ] {
        let outcome = shop.authorize(json!({"state": state})).await;
        let refused = "400 invalid_request: state is too long";
        assert_eq!(error(&outcome), refused);
    }
    let outcome = shop.authorize(json!({"state": "x".repeat(200_000)})).await;
    assert!(redirect_uri(&outcome).ends_with("xxx"));
    let outcome = shop.authorize(json!({"state": {"a": [1, {"b": 2}]}})).await;
    let uri = redirect_uri(&outcome);
    assert!(
        uri.contains("state%2ea%5b1%5d=1&state%2ea%5b2%5d%2eb=2"),
        "{uri}"
    );
}
