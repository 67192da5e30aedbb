//! Requests with access tokens.

use super::*;
use crate::key_auth;
use crate::testing::GUEST;
use plugin::testing::refusal;

async fn run(shop: &Shop, line: &str, headers: &[&str]) -> Outcome {
    shop.case.request(line).lines(headers).run().await
}

#[tokio::test]
async fn requests_without_a_token_are_told_so() {
    for (realm, challenge) in [
        (json!(null), "Bearer"),
        (json!("shop"), "Bearer realm=\"shop\""),
    ] {
        let shop = shop(json!({"realm": realm}));
        for headers in [&[][..], &["Authorization:"][..]] {
            let outcome = run(&shop, "GET /echo", headers).await;
            assert_eq!(
                error(&outcome),
                "401 invalid_request: The access token is missing"
            );
            assert_eq!(outcome.client.header("www-authenticate"), Some(challenge));
        }
        let unknown = run(&shop, "GET /echo", &["Authorization: Bearer nope"]).await;
        assert_eq!(error(&unknown), INVALID_TOKEN);
        let more = "error=\"invalid_token\" error_description=\"The access token is invalid or has expired\"";
        let challenge = format!("{challenge} {more}");
        assert_eq!(unknown.client.header("www-authenticate"), Some(&*challenge));
    }
}

#[tokio::test]
async fn the_token_is_in_the_header_the_query_or_the_body() {
    let shop = shop(json!({}));
    let token = shop.own_token().await;
    for header in ["Bearer", "bearer", "TOKEN", ""] {
        let header = format!("Authorization: {header} {token}");
        assert_eq!(
            run(&shop, "GET /echo", &[&header]).await.client.status,
            200,
            "{header}"
        );
    }
    let line = format!("GET /echo?access_token={token}");
    assert_eq!(run(&shop, &line, &[]).await.client.status, 200);
    // If there is the header, nothing else counts.
    for header in ["Authorization: Basic abc", "Authorization: Bearer x y"] {
        assert_eq!(error(&run(&shop, &line, &[header]).await), INVALID_TOKEN);
    }
    let post = async |line: &str, content_type: &str, body: String| {
        let request = shop.case.request(line).header("Content-Type", content_type);
        request.body(body).run().await
    };
    let form = "application/x-www-form-urlencoded";
    let posted = post("POST /echo", form, format!("access_token={token}&a=1")).await;
    assert_eq!(posted.sent().text(), format!("access_token={token}&a=1"));
    let json = json!({"access_token": token}).to_string();
    assert_eq!(
        post("PUT /echo", "application/json", json)
            .await
            .client
            .status,
        200
    );
    // The body comes first.
    let posted = post(
        &format!("POST /echo?access_token={token}"),
        form,
        "access_token=x".to_owned(),
    )
    .await;
    assert_eq!(error(&posted), INVALID_TOKEN);
    // A body that has no parameters is not read.
    let posted = post("POST /echo", "text/plain", format!("access_token={token}")).await;
    assert_eq!(
        error(&posted),
        "401 invalid_request: The access token is missing"
    );
    let twice = format!("GET /echo?access_token={token}&access_token={token}");
    assert_eq!(run(&shop, &twice, &[]).await.client.status, 401);
}

#[tokio::test]
async fn another_header_can_have_the_token() {
    let shop = shop(json!({"auth_header_name": "x-shop-auth"}));
    let token = shop.own_token().await;
    let own = format!("X-Shop-Auth: bearer {token}");
    assert_eq!(run(&shop, "GET /echo", &[&own]).await.client.status, 200);
    let usual = format!("Authorization: bearer {token}");
    assert_eq!(run(&shop, "GET /echo", &[&usual]).await.client.status, 401);
}

#[tokio::test]
async fn hide_credentials_removes_the_token() {
    let shop = shop(json!({"hide_credentials": true}));
    let token = shop.own_token().await;
    let header = run(
        &shop,
        "GET /echo?z=1",
        &[&format!("Authorization: Bearer {token}")],
    )
    .await;
    assert_eq!(header.sent().header("authorization"), None);
    assert_eq!(header.sent().query.as_deref(), Some("z=1"));
    let query = run(
        &shop,
        &format!("GET /echo?b=2&access_token={token}&a=1"),
        &[],
    )
    .await;
    assert_eq!(query.sent().query.as_deref(), Some("a=1&b=2"));
    let request = shop.case.request("POST /echo");
    let request = request.header("Content-Type", "application/x-www-form-urlencoded");
    let form = request
        .body(format!("b=2&access_token={token}&a=1"))
        .run()
        .await;
    assert_eq!(form.sent().text(), "a=1&b=2");
    // Kong does not hide a header that is the token as a whole.
    let whole = run(&shop, "GET /echo", &[&format!("Authorization: {token}")]).await;
    assert_eq!(whole.sent().header("authorization"), Some(&*token));
}

#[tokio::test]
async fn tokens_count_for_their_service_or_for_all() {
    let local = shop(json!({}));
    let global = local.with(config(&json!({"global_credentials": true})));
    let other = Uuid::from_u128(0x5e42);
    local
        .entities
        .put(EntityKind::Services, json!({"id": other}));
    let call = async |shop: &Shop, token: &str, service: Uuid| {
        let request = shop.case.request("GET /echo").service(service, None);
        let header = format!("Bearer {token}");
        let outcome = request.header("Authorization", header).run().await;
        (outcome.client.status == 200)
            .then_some(())
            .ok_or_else(|| error(&outcome))
    };
    let (of_service, of_all) = (local.own_token().await, global.own_token().await);
    assert_eq!(call(&local, &of_service, SERVICE).await, Ok(()));
    assert_eq!(
        call(&local, &of_service, other).await,
        Err(INVALID_TOKEN.to_owned())
    );
    assert_eq!(call(&global, &of_service, SERVICE).await, Ok(()));
    assert_eq!(
        call(&global, &of_service, other).await,
        Err(INVALID_TOKEN.to_owned())
    );
    assert_eq!(call(&global, &of_all, other).await, Ok(()));
    let description = "The access token is global, but the current plugin is configured without 'global_credentials'";
    let wanted = format!("401 invalid_token: {description}");
    assert_eq!(call(&local, &of_all, SERVICE).await, Err(wanted.clone()));
    // This refusal ends the request even if there is an anonymous consumer.
    let anonymous = local.with(config(&json!({"anonymous": "guest"})));
    assert_eq!(call(&anonymous, &of_all, SERVICE).await, Err(wanted));
}

#[tokio::test]
async fn tokens_expire() {
    let shop = shop(json!({"token_expiration": 60}));
    let (access, _) = shop.pair().await;
    let own = shop.own_token().await;
    shop.advance(59);
    assert_eq!(
        (shop.status(&access).await, shop.status(&own).await),
        (200, 200)
    );
    shop.advance(1);
    assert_eq!(error(&shop.call(&access).await), INVALID_TOKEN);
    assert_eq!(error(&shop.call(&own).await), INVALID_TOKEN);
}

#[tokio::test]
async fn the_end_of_a_client_a_consumer_or_a_service_ends_tokens() {
    for removed in [
        &[(OAUTH2_CREDENTIALS, WEB)][..],
        // The store deletes the credentials of a consumer with it.
        &[(EntityKind::Consumers, NORA), (OAUTH2_CREDENTIALS, WEB)],
        &[(EntityKind::Services, SERVICE)],
    ] {
        let shop = shop(json!({}));
        let token = shop.own_token().await;
        assert_eq!(shop.status(&token).await, 200);
        for (kind, id) in removed {
            shop.entities.remove(*kind, *id);
        }
        assert_eq!(error(&shop.call(&token).await), INVALID_TOKEN);
    }
}

#[tokio::test]
async fn a_request_that_is_refused_becomes_anonymous_if_there_is_such_a_consumer() {
    let shop = shop(json!({"anonymous": GUEST}));
    let forged = [
        "X-Authenticated-Scope: all",
        "X-Authenticated-UserId: root",
        "Authorization: Bearer nope",
    ];
    for headers in [&forged[..2], &forged[..]] {
        let outcome = run(&shop, "GET /echo", headers).await;
        let sent = outcome.sent();
        assert_eq!(sent.header("x-consumer-username"), Some("guest"));
        assert_eq!(sent.header("x-anonymous-consumer"), Some("true"));
        assert_eq!(sent.header("x-authenticated-scope"), None);
        assert_eq!(sent.header("x-authenticated-userid"), None);
        assert_eq!(sent.header("x-credential-identifier"), None);
    }
    // The endpoints do not depend on it.
    assert_eq!(
        shop.token(credentials("web", json!({})))
            .await
            .client
            .status,
        200
    );
    let nobody = shop.with(config(&json!({"anonymous": "nobody"})));
    assert_eq!(run(&nobody, "GET /echo", &[]).await.client.status, 500);
}

#[tokio::test]
async fn another_plugin_may_have_authenticated_the_request() {
    let shop = shop(json!({}));
    let with_key = |anonymous: Value| {
        let key = json!({"anonymous": anonymous});
        let case = Case::new(def(), config(&key)).and(key_auth::def(), key);
        case.on(shop.case.node().clone())
    };
    let token = format!("Authorization: Bearer {}", shop.own_token().await);
    let user = async |case: &Case, headers: &[&str]| {
        let outcome = case.request("GET /echo").lines(headers).run().await;
        match &outcome.upstream {
            Some(sent) => sent.header("x-consumer-username").unwrap_or("-").to_owned(),
            None => outcome.client.status.to_string(),
        }
    };
    let both = with_key(json!(null));
    assert_eq!(user(&both, &[&token, "apikey: good"]).await, "nora");
    assert_eq!(user(&both, &[&token]).await, "401");
    assert_eq!(user(&both, &["apikey: good"]).await, "401");
    let either = with_key(json!(GUEST));
    assert_eq!(user(&either, &[&token]).await, "nora");
    assert_eq!(user(&either, &["apikey: good"]).await, "nora");
    assert_eq!(user(&either, &[]).await, "guest");
    // A session, for instance, that has found the credential already.
    let shop = shop.with(config(&json!({"anonymous": GUEST})));
    let request = shop.case.request("GET /echo").consumer(OTTO, "otto");
    let outcome = request.lines(&["X-Authenticated-UserId: root"]).run().await;
    assert_eq!(outcome.consumer(), Some("otto"));
    assert_eq!(outcome.sent().header("x-authenticated-userid"), None);
}

#[tokio::test]
async fn imported_tokens_work_as_they_are() {
    let shop = shop(json!({"global_credentials": true}));
    let row = tokens::Imported {
        id: Uuid::from_u128(9),
        access_token: tokens::Known::Text("legacy-token-1".to_owned()),
        refresh_token: Some(tokens::Known::Text("legacy-refresh-1".to_owned())),
        credential: tokens::Owner {
            id: WEB,
            created: 0,
        },
        service: None,
        expires_in: 3600,
        created_at: 1_700_000_000,
        ends: None,
        scope: Some("read".to_owned()),
        authenticated_userid: Some("old-7".to_owned()),
    };
    let imported = shop.store.import(vec![row], 1_700_000_000).get().await;
    assert_eq!(
        imported.expect("the store works"),
        [tokens::ImportOutcome::Imported]
    );
    let called = shop.call("legacy-token-1").await;
    assert_eq!(
        called.sent().header("x-authenticated-userid"),
        Some("old-7")
    );
    let refreshed = shop.refresh("legacy-refresh-1").await;
    assert_eq!(shop.status(&text(&refreshed, "access_token")).await, 200);
    assert_eq!(shop.status("legacy-token-1").await, 401);
}

#[tokio::test]
async fn a_failing_look_up_or_a_missing_store_is_an_error_and_no_refusal() {
    crate::install();
    let case = Case::new(def(), config(&json!({"anonymous": GUEST}))).entities(people());
    let outcome = case
        .request("GET /echo")
        .lines(&["Authorization: Bearer x"])
        .run()
        .await;
    assert_eq!(outcome.client.status, 500);
    let shop = shop(json!({}));
    let token = shop.own_token().await;
    let entities = people()
        .with(EntityKind::Services, json!({"id": SERVICE}))
        .failing(WEB);
    let case = Case::new(def(), config(&json!({})))
        .entities(entities)
        .tokens(shop.store.clone());
    let outcome = case
        .request("GET /echo")
        .lines(&[&format!("Authorization: Bearer {token}")])
        .run()
        .await;
    assert_eq!(outcome.client.status, 500);
}

#[test]
fn configurations_that_cannot_work_are_refused() {
    crate::install();
    let refused = |more: Value| refusal(&def(), config(&more));
    for (more, wanted) in [
        (json!({"oauth2_profile": "rfc9700"}), "issuer"),
        (json!({"metadata": true}), "issuer"),
        (
            json!({"metadata": true, "issuer": "https://a"}),
            "authorization_endpoint",
        ),
        (
            json!({"metadata": true, "issuer": "https://a", "enable_authorization_code": false}),
            "authorization_endpoint",
        ),
        (json!({"signing_key": "x"}), "issuer"),
        (
            json!({"signing_key": "x", "issuer": "https://a"}),
            "private key in PEM",
        ),
        (
            json!({"signing_key": "x", "issuer": "https://a", "token_expiration": 0}),
            "must expire",
        ),
        (json!({"verification_keys": ["x"]}), "signing_key"),
        (json!({"issuer": "http://a.example"}), "https URL"),
        (json!({"issuer": "https://a.example/?x"}), "https URL"),
        (json!({"issuer": "https://"}), "https URL"),
        (json!({"oauth2_profile": "other"}), "expected one of"),
        (json!({"refresh_grace": 601}), "between"),
    ] {
        let reason = refused(more.clone());
        assert!(reason.contains(wanted), "{more}: {reason}");
    }
}

#[test]
fn metadata_without_users_need_no_login_page() {
    crate::install();
    let more = json!({
        "metadata": true, "issuer": "https://a", "enable_authorization_code": false, "enable_implicit_grant": false,
    });
    Case::new(def(), config(&more));
    // The profile refuses the implicit grant, whatever is enabled.
    let more = json!({"metadata": true, "issuer": "https://a", "enable_authorization_code": false});
    Case::new(def(), strict(&more));
}
