//! Stores whose look-ups wait, as one on another machine, and stores with too much to do.

use super::*;
use std::sync::atomic::Ordering::Relaxed;
use tokens::testing::SlowTokens;
use tokens::{Listed, StoreError};

fn slow(more: Value) -> (Shop, Arc<SlowTokens>) {
    let mut shop = shop(more.clone());
    let slow = Arc::new(SlowTokens::new(shop.store.clone()));
    shop.case = Case::new(def(), config(&more))
        .entities(shop.entities.clone())
        .tokens(slow.clone());
    shop.store = slow.clone();
    (shop, slow)
}

#[tokio::test]
async fn look_ups_may_wait() {
    let (shop, _) = slow(json!({"hide_credentials": true, "anonymous": "guest"}));
    let code = shop.code(json!({})).await;
    let exchanged = shop.exchange(&code, json!({})).await;
    let refreshed = shop.refresh(&text(&exchanged, "refresh_token")).await;
    let called = shop.call(&text(&refreshed, "access_token")).await;
    assert_eq!(called.sent().header("x-consumer-username"), Some("nora"));
    assert_eq!(called.sent().header("authorization"), None);
    let unknown = shop.call("nope").await;
    assert_eq!(unknown.sent().header("x-consumer-username"), Some("guest"));
}

#[tokio::test]
async fn a_store_that_is_busy_or_full_is_no_refusal() {
    let (shop, slow) =
        slow(json!({"introspection": true, "revocation": true, "anonymous": "guest"}));
    let (access, refresh) = shop.pair().await;
    let asking = json!({"token": access, "client_id": "web-client", "client_secret": "web-secret"});
    for (failure, description) in [
        (StoreError::Busy, "Too many requests wait"),
        (StoreError::Full, "There is no room for more tokens"),
    ] {
        slow.fail(Some(failure));
        let unavailable = format!("503 temporarily_unavailable: {description}");
        for outcome in [
            shop.token(credentials("web", json!({}))).await,
            shop.authorize(json!({})).await,
            shop.refresh(&refresh).await,
            shop.post("/oauth2/introspect", asking.clone()).await,
            shop.post("/oauth2/revoke", asking.clone()).await,
        ] {
            assert_eq!(error(&outcome), unavailable);
            assert_eq!(outcome.client.header("cache-control"), Some("no-store"));
        }
    }
    // Not even for the anonymous consumer: the client may have the right token.
    assert_eq!(shop.status(&access).await, 500);
    slow.fail(Some(StoreError::Busy));
    assert_eq!(shop.status(&access).await, 503);
    slow.fail(None);
    assert_eq!(shop.status(&access).await, 200);
    assert_eq!(shop.refresh(&refresh).await.client.status, 200);
}

#[tokio::test]
async fn a_revocation_ends_what_a_refresh_at_the_same_time_has_issued() {
    let (shop, slow) = slow(json!({"revocation": true}));
    let (access, refresh) = shop.pair().await;
    slow.is_raced.store(true, Relaxed);
    let asking =
        json!({"token": refresh, "client_id": "web-client", "client_secret": "web-secret"});
    let revoked = shop.post("/oauth2/revoke", asking).await;
    assert_eq!(revoked.client.status, 200);
    slow.is_raced.store(false, Relaxed);
    assert_eq!(shop.status(&access).await, 401);
    let page = shop.store.list(Listed::All, None, 10, 1_700_000_000);
    let page = page.get().await.expect("the store works");
    assert_eq!(page.tokens, [], "nothing of the grant is live");
}
