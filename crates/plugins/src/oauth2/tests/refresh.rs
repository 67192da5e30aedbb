//! Refresh tokens.

use super::*;

#[tokio::test]
async fn a_refresh_token_is_replaced() {
    let shop = shop(json!({}));
    let (access, refresh) = shop.pair().await;
    let outcome = shop.refresh(&refresh).await;
    assert_eq!(outcome.client.status, 200);
    let (next, next_refresh) = (
        text(&outcome, "access_token"),
        text(&outcome, "refresh_token"),
    );
    assert!(next != access && next_refresh != refresh);
    // The old ones end at once.
    assert_eq!(shop.status(&access).await, 401);
    assert_eq!(error(&shop.refresh(&refresh).await), INVALID_REFRESH);
    let called = shop.call(&next).await;
    assert_eq!(called.sent().header("x-authenticated-userid"), Some("u5"));
    assert_eq!(called.sent().header("x-authenticated-scope"), Some("write"));
    assert_eq!(shop.refresh(&next_refresh).await.client.status, 200);
}

#[tokio::test]
async fn reuse_refresh_token_keeps_it() {
    let shop = shop(json!({"reuse_refresh_token": true}));
    let (access, refresh) = shop.pair().await;
    let mut last = access;
    for _ in 0..3 {
        let outcome = shop.refresh(&refresh).await;
        assert_eq!(text(&outcome, "refresh_token"), refresh);
        assert_eq!(shop.status(&last).await, 401);
        last = text(&outcome, "access_token");
        assert_eq!(shop.status(&last).await, 200);
    }
}

#[tokio::test]
async fn refresh_tokens_count_for_their_client_their_service_and_allowed_scopes() {
    let shop = shop(json!({}));
    let (_, refresh) = shop.pair().await;
    assert_eq!(
        error(&shop.refresh_of("other", &refresh).await),
        INVALID_CLIENT
    );
    assert_eq!(error(&shop.refresh("zz").await), INVALID_REFRESH);
    let missing = json!({"grant_type": "refresh_token", "client_id": "web-client", "client_secret": "web-secret"});
    assert_eq!(error(&shop.token(missing).await), INVALID_REFRESH);
    let fewer = shop.with(config(&json!({"scopes": ["read"]})));
    assert_eq!(
        error(&fewer.refresh(&refresh).await),
        "400 invalid_scope: Scope mismatch"
    );
    let other = Uuid::from_u128(0x5e42);
    shop.entities
        .put(EntityKind::Services, json!({"id": other}));
    let body = json!({
        "grant_type": "refresh_token", "refresh_token": refresh,
        "client_id": "web-client", "client_secret": "web-secret",
    });
    let request = shop
        .case
        .request("POST /oauth2/token")
        .https(None)
        .service(other, None);
    let request = request.header("Content-Type", "application/json");
    let outcome = request.body(body.to_string()).run().await;
    assert_eq!(error(&outcome), INVALID_REFRESH);
    assert_eq!(shop.refresh(&refresh).await.client.status, 200);
}

#[tokio::test]
async fn an_expired_access_token_refreshes_until_its_row_ends() {
    let shop = shop(json!({"token_expiration": 10, "refresh_token_ttl": 100}));
    let (access, refresh) = shop.pair().await;
    shop.advance(99);
    assert_eq!(shop.status(&access).await, 401);
    let (_, second) = (0, text(&shop.refresh(&refresh).await, "refresh_token"));
    shop.advance(100);
    assert_eq!(error(&shop.refresh(&second).await), INVALID_REFRESH);
}

#[tokio::test]
async fn tokens_that_do_not_expire_have_no_refresh_token() {
    let shop = shop(json!({"token_expiration": 0}));
    let outcome = shop.token(password("web")).await;
    let body = outcome.client.json();
    assert!(
        body.get("expires_in").is_none() && body.get("refresh_token").is_none(),
        "{body}"
    );
    shop.advance(1_000_000_000);
    assert_eq!(shop.status(&text(&outcome, "access_token")).await, 200);
}

#[tokio::test]
async fn the_end_of_a_client_ends_its_refresh_tokens() {
    let shop = shop(json!({}));
    let (_, refresh) = shop.pair().await;
    // An entity that was made again with the same id has another revision of its creation.
    let token = tokens::NewToken {
        credential: tokens::Owner {
            id: WEB,
            created: 7,
        },
        service: Some(tokens::Owner {
            id: SERVICE,
            created: 0,
        }),
        expires_in: 60,
        with_refresh_token: true,
        ttl: None,
        scope: None,
        authenticated_userid: None,
    };
    let issued = shop
        .store
        .issue(token, 1_700_000_000)
        .get()
        .await
        .expect("the store works");
    let of_former = issued.refresh_token.expect("it was asked for").0;
    assert_eq!(error(&shop.refresh(&of_former).await), INVALID_REFRESH);
    assert_eq!(shop.status(&issued.access_token.0).await, 401);
    shop.entities.remove(OAUTH2_CREDENTIALS, WEB);
    assert_eq!(error(&shop.refresh(&refresh).await), INVALID_CLIENT);
}

#[tokio::test]
async fn a_replay_ends_the_family_if_that_is_wanted() {
    for (on_replay, still_valid) in [("refuse", 200), ("revoke_family", 401)] {
        let shop = shop(json!({"on_refresh_replay": on_replay}));
        let (_, first) = shop.pair().await;
        let second = text(&shop.refresh(&first).await, "refresh_token");
        let third = text(&shop.refresh(&second).await, "access_token");
        // Another client cannot end it.
        assert_eq!(
            error(&shop.refresh_of("other", &first).await),
            INVALID_REFRESH
        );
        assert_eq!(shop.status(&third).await, 200);
        assert_eq!(error(&shop.refresh(&first).await), INVALID_REFRESH);
        assert_eq!(shop.status(&third).await, still_valid, "{on_replay}");
    }
}

#[tokio::test]
async fn a_lost_answer_can_be_asked_for_again_within_the_grace() {
    let shop = shop(json!({"on_refresh_replay": "revoke_family", "refresh_grace": 10}));
    let (_, first) = shop.pair().await;
    let lost = shop.refresh(&first).await;
    shop.advance(9);
    let again = shop.refresh(&first).await;
    assert_eq!(again.client.status, 200);
    // What was lost is of no use to others, and what came again works.
    assert_eq!(shop.status(&text(&lost, "access_token")).await, 401);
    let access = text(&again, "access_token");
    assert_eq!(shop.status(&access).await, 200);
    // A third time is a replay.
    assert_eq!(error(&shop.refresh(&first).await), INVALID_REFRESH);
    assert_eq!(shop.status(&access).await, 401);
}

#[tokio::test]
async fn after_the_grace_or_after_the_next_refresh_it_is_a_replay() {
    let shop = shop(json!({"on_refresh_replay": "revoke_family", "refresh_grace": 10}));
    let (_, first) = shop.pair().await;
    shop.refresh(&first).await;
    shop.advance(10);
    assert_eq!(error(&shop.refresh(&first).await), INVALID_REFRESH);
    let (_, first) = shop.pair().await;
    let second = text(&shop.refresh(&first).await, "refresh_token");
    let third = text(&shop.refresh(&second).await, "access_token");
    assert_eq!(error(&shop.refresh(&first).await), INVALID_REFRESH);
    assert_eq!(shop.status(&third).await, 401);
}

#[tokio::test]
async fn a_scope_that_is_named_twice_counts_once() {
    let shop = shop(json!({}));
    let mut parameters = password("web");
    parameters["scope"] = "write read write write read".into();
    let outcome = shop.token(parameters).await;
    let called = shop.call(&text(&outcome, "access_token")).await;
    let scope = called.sent().header("x-authenticated-scope");
    assert_eq!(scope, Some("write read"));
}

#[tokio::test]
async fn a_replay_ends_the_grant_also_if_its_scope_is_not_allowed_any_more() {
    let revoking = json!({"on_refresh_replay": "revoke_family"});
    let shop = shop(revoking.clone());
    let (_, refresh) = shop.pair().await;
    let next = text(&shop.refresh(&refresh).await, "access_token");
    let mut narrowed = config(&revoking);
    narrowed["scopes"] = json!(["read"]);
    let shop = shop.with(narrowed);
    assert_eq!(shop.status(&next).await, 200);
    // What another client says about it does not count.
    assert_ne!(shop.refresh_of("other", &refresh).await.client.status, 200);
    assert_eq!(shop.status(&next).await, 200);
    assert_eq!(error(&shop.refresh(&refresh).await), INVALID_REFRESH);
    assert_eq!(shop.status(&next).await, 401);
}

#[tokio::test]
async fn rfc9700_does_not_widen_a_token_of_a_service_to_all_services() {
    let shop = Shop::new(strict(&json!({})));
    let asking = json!({"code_challenge": CHALLENGE, "redirect_uri": BACK});
    let code = shop.code(asking).await;
    let proof = json!({"code_verifier": VERIFIER, "redirect_uri": BACK});
    let refresh = text(&shop.exchange(&code, proof).await, "refresh_token");
    let global = shop.with(strict(&json!({"global_credentials": true})));
    let refused = error(&global.refresh(&refresh).await);
    assert!(refused.starts_with("400 invalid_grant"), "{refused}");
    assert_eq!(shop.refresh(&refresh).await.client.status, 200);
}
