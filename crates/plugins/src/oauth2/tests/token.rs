//! The token endpoint.

use super::*;
use data_encoding::BASE64;
use std::future::poll_fn;
use std::task::Poll;

fn is_token(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[tokio::test]
async fn client_credentials_give_a_token_without_a_refresh_token() {
    let shop = shop(json!({}));
    let outcome = shop.token(credentials("web", json!({"state": "s"}))).await;
    let client = &outcome.client;
    assert_eq!(client.status, 200);
    assert_eq!(client.header("cache-control"), Some("no-store"));
    assert_eq!(client.header("pragma"), Some("no-cache"));
    let token = text(&outcome, "access_token");
    assert!(is_token(&token), "{token}");
    let wanted =
        json!({"access_token": token, "token_type": "bearer", "expires_in": 7200, "state": "s"});
    assert_eq!(client.json(), wanted);
    let sent = shop.call(&token).await;
    let sent = sent.sent();
    for (name, value) in [
        ("x-consumer-username", Some("nora")),
        ("x-consumer-custom-id", Some("ext-77")),
        ("x-credential-identifier", Some("web-client")),
        ("x-authenticated-scope", Some("read")),
        ("x-authenticated-userid", None),
        ("x-anonymous-consumer", None),
    ] {
        assert_eq!(sent.header(name), value, "{name}");
    }
}

#[tokio::test]
async fn clients_that_cannot_prove_themselves_are_refused() {
    let shop = shop(json!({}));
    for parameters in [
        json!({"client_secret": null}),
        json!({"client_id": "", "client_secret": ""}),
        json!({"client_id": null, "client_secret": null}),
        json!({"client_secret": "wrong"}),
        json!({"client_secret": ["web-secret"]}),
        json!({"client_id": "nobody"}),
        json!({"client_id": "hash-client", "client_secret": "wrong"}),
        // The stored hash is not the secret.
        json!({"client_id": "hash-client", "client_secret": hashed("hash-secret", 1000)}),
    ] {
        let outcome = shop.token(credentials("web", parameters.clone())).await;
        assert_eq!(error(&outcome), INVALID_CLIENT, "{parameters}");
        assert_eq!(outcome.client.header("www-authenticate"), None);
    }
    let hashed = shop.token(credentials("hash", json!({}))).await;
    assert_eq!(hashed.client.status, 200);
}

#[tokio::test]
async fn credentials_in_the_header_decide_about_the_status() {
    let shop = shop(json!({"mandatory_scope": false}));
    let post = async |header: &str, body: Value| {
        let request = shop.case.request("POST /oauth2/token").https(None);
        let request = request.header("Authorization", header);
        let request = request.header("Content-Type", "application/json");
        request.body(body.to_string()).run().await
    };
    let basic = |text: &str| format!("Basic {}", BASE64.encode(text.as_bytes()));
    let body = |grant: &str| json!({"grant_type": grant});
    let right = post(&basic("web-client:web-secret"), body("client_credentials")).await;
    assert_eq!(right.client.status, 200);
    // The secret ends at a second colon, as in Kong.
    let colon = post(
        &basic("web-client:web-secret:x"),
        body("client_credentials"),
    )
    .await;
    assert_eq!(colon.client.status, 200);
    for (header, body, status) in [
        (basic("web-client:nope"), body("client_credentials"), 401),
        (basic("nobody:web-secret"), body("password"), 401),
        // An unknown client with this grant is told so without a challenge, as in Kong.
        (basic("nobody:web-secret"), body("client_credentials"), 400),
        (
            "Bearer x".to_owned(),
            json!({"grant_type": "client_credentials", "client_id": "web-client"}),
            400,
        ),
    ] {
        let outcome = post(&header, body).await;
        assert_eq!(
            error(&outcome),
            format!("{status} invalid_client: Invalid client authentication")
        );
        let challenge = (status == 401).then_some("Basic realm=\"OAuth2.0\"");
        assert_eq!(outcome.client.header("www-authenticate"), challenge);
    }
}

#[tokio::test]
async fn grants_that_are_off_or_unknown_are_refused() {
    let shop = shop(json!({"enable_client_credentials": false, "enable_password_grant": false}));
    let unsupported = "400 unsupported_grant_type: Invalid grant_type";
    for grant in [
        json!("client_credentials"),
        json!("password"),
        json!("magic"),
        json!(null),
        json!(5),
    ] {
        let outcome = shop
            .token(credentials("web", json!({"grant_type": grant})))
            .await;
        assert_eq!(error(&outcome), unsupported, "{grant}");
    }
    // A later check decides.
    let outcome = shop
        .token(credentials(
            "web",
            json!({"grant_type": "magic", "client_id": "nobody"}),
        ))
        .await;
    assert_eq!(error(&outcome), INVALID_CLIENT);
}

#[tokio::test]
async fn scopes_are_checked_and_written_with_one_blank() {
    let shop = shop(json!({"mandatory_scope": true}));
    for (scope, description) in [
        (json!(null), "You must specify a scope"),
        (json!("read fly"), "\"fly\" is an invalid scope"),
        (json!(["read"]), "scope must be a string"),
        (json!(5), "scope must be a string"),
    ] {
        let outcome = shop
            .token(credentials("web", json!({"scope": scope})))
            .await;
        assert_eq!(error(&outcome), format!("400 invalid_scope: {description}"));
    }
    let outcome = shop
        .token(credentials("web", json!({"scope": "  read   user.mail "})))
        .await;
    let called = shop.call(&text(&outcome, "access_token")).await;
    assert_eq!(
        called.sent().header("x-authenticated-scope"),
        Some("read user.mail")
    );
}

#[tokio::test]
async fn a_client_that_names_a_user_needs_the_provision_key() {
    let shop = shop(json!({}));
    let named = |more: Value| {
        let mut parameters = credentials("web", json!({"authenticated_userid": "u7"}));
        merge(&mut parameters, more);
        parameters
    };
    for more in [
        json!({}),
        json!({"provision_key": "zz"}),
        json!({"client_id": "nobody"}),
    ] {
        let outcome = shop.token(named(more)).await;
        assert_eq!(
            error(&outcome),
            "400 invalid_provision_key: Invalid provision_key"
        );
    }
    let outcome = shop.token(named(json!({"provision_key": "pk"}))).await;
    let called = shop.call(&text(&outcome, "access_token")).await;
    assert_eq!(called.sent().header("x-authenticated-userid"), Some("u7"));
}

#[tokio::test]
async fn the_password_grant_needs_the_provision_key_and_a_user() {
    let shop = shop(json!({}));
    let with = |more: Value| {
        let mut parameters = password("web");
        merge(&mut parameters, more);
        parameters
    };
    for (more, wanted) in [
        (
            json!({"provision_key": null}),
            "400 invalid_provision_key: Invalid provision_key",
        ),
        (
            json!({"authenticated_userid": " "}),
            "400 invalid_authenticated_userid: Missing authenticated_userid parameter",
        ),
        (
            json!({"redirect_uri": "http://evil.example/"}),
            "400 invalid_request: Invalid redirect_uri that does not match with any redirect_uri created with the \
             application",
        ),
        (
            json!({"scope": "fly"}),
            "400 invalid_scope: \"fly\" is an invalid scope",
        ),
    ] {
        assert_eq!(error(&shop.token(with(more)).await), wanted);
    }
    let nouri = shop.token(password("nouri")).await;
    assert_eq!(error(&nouri), INVALID_CLIENT);
    let outcome = shop.token(password("web")).await;
    assert!(is_token(&text(&outcome, "refresh_token")));
    let called = shop.call(&text(&outcome, "access_token")).await;
    assert_eq!(called.sent().header("x-authenticated-userid"), Some("u5"));
    assert_eq!(called.sent().header("x-authenticated-scope"), Some("write"));
}

#[tokio::test]
async fn public_clients_must_not_send_a_secret() {
    let shop = shop(json!({}));
    let outcome = shop.token(password("spa")).await;
    assert_eq!(
        error(&outcome),
        "400 invalid_request: client_secret is disallowed for public clients"
    );
    let mut blank = password("spa");
    merge(&mut blank, json!({"client_secret": " "}));
    assert_eq!(shop.token(blank).await.client.status, 200);
}

#[tokio::test]
async fn a_code_gives_one_token() {
    let shop = shop(json!({}));
    let code = shop.code(json!({})).await;
    // What fails does not use the code up.
    let other = json!({"client_id": "other-client", "client_secret": "other-secret"});
    assert_eq!(error(&shop.exchange(&code, other).await), INVALID_CODE);
    let unproved = json!({"client_secret": null});
    assert_eq!(error(&shop.exchange(&code, unproved).await), INVALID_CLIENT);
    let outcome = shop.exchange(&code, json!({"state": "q"})).await;
    assert_eq!(outcome.client.json()["state"], "q");
    let called = shop.call(&text(&outcome, "access_token")).await;
    assert_eq!(called.sent().header("x-authenticated-userid"), Some("u9"));
    assert_eq!(error(&shop.exchange(&code, json!({})).await), INVALID_CODE);
    for code in [json!("nope"), json!(null), json!(7)] {
        assert_eq!(
            error(&shop.exchange("", json!({"code": code})).await),
            INVALID_CODE
        );
    }
}

#[tokio::test]
async fn of_a_hundred_exchanges_one_gets_a_token() {
    let shop = shop(json!({}));
    let code = shop.code(json!({})).await;
    let all = (0..100).map(|_| shop.exchange(&code, json!({})));
    let mut pending: Vec<_> = all.map(Box::pin).collect();
    let mut outcomes = Vec::new();
    // All are under way before the first one is finished.
    while !pending.is_empty() {
        let mut left = Vec::new();
        for mut exchange in pending {
            let polled = poll_fn(|cx| Poll::Ready(exchange.as_mut().poll(cx))).await;
            match polled {
                Poll::Ready(outcome) => outcomes.push(outcome.client.status),
                Poll::Pending => left.push(exchange),
            }
        }
        pending = left;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let granted = outcomes.iter().filter(|status| **status == 200).count();
    assert_eq!(outcomes.len(), 100);
    assert_eq!(granted, 1);
}

#[tokio::test]
async fn a_code_ends_after_five_minutes() {
    let shop = shop(json!({}));
    let code = shop.code(json!({})).await;
    shop.advance(300);
    assert_eq!(error(&shop.exchange(&code, json!({})).await), INVALID_CODE);
}

#[tokio::test]
async fn a_code_counts_for_its_service() {
    let shop = shop(json!({}));
    let code = shop.code(json!({})).await;
    let other = Uuid::from_u128(0x5e42);
    shop.entities
        .put(EntityKind::Services, json!({"id": other}));
    let body = json!({
        "grant_type": "authorization_code", "code": code,
        "client_id": "web-client", "client_secret": "web-secret",
    });
    let request = shop
        .case
        .request("POST /oauth2/token")
        .https(None)
        .service(other, None);
    let request = request.header("Content-Type", "application/json");
    let outcome = request.body(body.to_string()).run().await;
    assert_eq!(error(&outcome), INVALID_CODE);
    assert_eq!(shop.exchange(&code, json!({})).await.client.status, 200);
}

#[tokio::test]
async fn without_a_service_no_token_is_issued_unless_it_is_global() {
    let shop = shop(json!({}));
    let post = async |shop: &Shop| {
        let request = shop
            .case
            .request("POST /oauth2/token")
            .https(None)
            .without_service();
        let request = request.header("Content-Type", "application/json");
        let body = credentials("web", json!({})).to_string();
        request.body(body).run().await.client.status
    };
    assert_eq!(post(&shop).await, 500);
    let global = shop.with(config(&json!({"global_credentials": true})));
    assert_eq!(post(&global).await, 200);
}

#[tokio::test]
async fn parameters_come_from_forms_and_the_query_too_and_the_body_wins() {
    let shop = shop(json!({}));
    let form =
        "grant_type=client_credentials&client_id=web-client&client_secret=web-secret&state=a";
    let send = async |line: &str, body: &'static str| {
        let request = shop.case.request(line).https(None);
        let request = request.header("Content-Type", "application/x-www-form-urlencoded");
        request.body(body).run().await.client
    };
    let line = "POST /oauth2/token?grant_type=magic&state=b";
    let in_body = send(line, form).await;
    assert_eq!(
        (in_body.status, &in_body.json()["state"]),
        (200, &json!("a"))
    );
    let in_query = send(&format!("POST /shop/oauth2/token/?{form}"), "").await;
    assert_eq!(
        (in_query.status, &in_query.json()["state"]),
        (200, &json!("a"))
    );
}

#[tokio::test]
async fn the_endpoints_need_post_and_https() {
    let shop = shop(json!({"realm": "shop"}));
    for (line, name) in [
        ("GET /oauth2/token", "GET"),
        ("OPTIONS /x/oauth2/token", "OPTIONS"),
    ] {
        let outcome = shop.case.request(line).https(None).run().await;
        let description = format!("The HTTP method {name} is invalid for the token endpoint");
        assert_eq!(
            error(&outcome),
            format!("405 invalid_method: {description}")
        );
        let challenge = format!(
            "Bearer realm=\"shop\" error=\"invalid_method\" error_description=\"{description}\""
        );
        assert_eq!(outcome.client.header("www-authenticate"), Some(&*challenge));
        assert_eq!(outcome.client.header("cache-control"), None);
    }
    let plain = shop.case.request("POST /oauth2/token").body("").run().await;
    assert_eq!(error(&plain), "400 access_denied: You must use HTTPS");
}

#[tokio::test]
async fn a_trusted_peer_may_say_that_the_client_used_https() {
    let shop = shop(json!({}));
    let block = "127.0.0.0/8".parse().expect("a block");
    let trusting = Case::new(
        def(),
        config(&json!({"accept_http_if_already_terminated": true})),
    )
    .entities(shop.entities.clone())
    .tokens(shop.store.clone())
    .trusted_ips(vec![block]);
    let told = async |case: &Case, headers: &[&str], client: &str| {
        let request = case
            .request("POST /oauth2/token")
            .lines(headers)
            .client(client);
        let request = request.header("Content-Type", "application/json");
        let outcome = request
            .body(credentials("web", json!({})).to_string())
            .run()
            .await;
        match outcome.client.status {
            200 => "token".to_owned(),
            _ => text(&outcome, "error_description"),
        }
    };
    let (near, far) = ("127.0.0.1:9", "10.0.0.1:9");
    let one = &["X-Forwarded-Proto: HTTPS"][..];
    assert_eq!(told(&trusting, one, near).await, "token");
    assert_eq!(told(&trusting, one, far).await, "You must use HTTPS");
    assert_eq!(told(&shop.case, one, near).await, "You must use HTTPS");
    let http = &["X-Forwarded-Proto: http"][..];
    assert_eq!(told(&trusting, http, near).await, "You must use HTTPS");
    let two = &["X-Forwarded-Proto: https, http"][..];
    assert_eq!(
        told(&trusting, two, near).await,
        "Only one X-Forwarded-Proto header allowed"
    );
}

#[tokio::test]
async fn what_is_issued_and_refused_is_counted() {
    let shop = shop(json!({}));
    shop.own_token().await;
    let token = shop.own_token().await;
    shop.call(&token).await;
    shop.call("nope").await;
    shop.token(credentials("nobody", json!({}))).await;
    let metrics = shop.case.node().metrics.render();
    for line in [
        "silverback_oauth2_tokens_issued_total{grant=\"client_credentials\"} 2",
        "silverback_oauth2_tokens_found_total 1",
        "silverback_oauth2_tokens_refused_total{reason=\"unknown\"} 1",
        "silverback_oauth2_requests_refused_total{endpoint=\"token\",error=\"invalid_client\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn nothing_in_an_answer_or_an_error_has_a_secret() {
    let shop = shop(json!({}));
    for parameters in [
        credentials("web", json!({"client_secret": "s3cr3t"})),
        password("nobody"),
    ] {
        let outcome = shop.token(parameters).await;
        let shown = format!("{:?}", outcome.client);
        assert!(
            !shown.contains("s3cr3t") && !shown.contains("web-secret"),
            "{shown}"
        );
    }
}
