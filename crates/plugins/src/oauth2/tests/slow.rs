//! Stores whose look-ups wait, as one on another machine, and stores with too much to do.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokens::{
    Code, Counts, Cursor, ImportOutcome, Imported, Issued, Listed, Made, NewCode, NewToken, Page,
    RefreshOutcome, Reply, StoreError, Token, Write, WriteOutcome,
};

/// A store that gives its replies later, or none.
struct Slow {
    store: Arc<dyn TokenStore>,
    is_busy: AtomicBool,
    /// Whether somebody else refreshes with each refresh token that is looked for, just after that.
    is_raced: AtomicBool,
}

impl Slow {
    fn later<'a, T: Send + 'a>(&self, reply: Reply<'a, T>) -> Reply<'a, T> {
        let is_busy = self.is_busy.load(Relaxed);
        Reply::Wait(Box::pin(async move {
            tokio::task::yield_now().await;
            match is_busy {
                true => Err(StoreError::Busy),
                false => reply.get().await,
            }
        }))
    }
}

impl TokenStore for Slow {
    fn find_by_access_token(&self, token: &str, now: i64) -> Reply<'_, Option<Token>> {
        self.later(self.store.find_by_access_token(token, now))
    }

    fn find_by_refresh_token(&self, token: &str, now: i64) -> Reply<'_, Option<Token>> {
        let found = self.store.find_by_refresh_token(token, now);
        if !self.is_raced.load(Relaxed) {
            return self.later(found);
        }
        let token = token.to_owned();
        Reply::Wait(Box::pin(async move {
            let found = found.get().await?;
            if let Some(found) = &found {
                let next = NewToken {
                    credential: found.credential,
                    service: found.service,
                    expires_in: found.expires_in,
                    with_refresh_token: true,
                    ttl: None,
                    scope: None,
                    authenticated_userid: None,
                };
                self.store.refresh(&token, next, now).get().await?;
            }
            Ok(found)
        }))
    }

    fn find_by_id(&self, id: Uuid, now: i64) -> Reply<'_, Option<Token>> {
        self.later(self.store.find_by_id(id, now))
    }

    fn find_known(&self, id: Uuid, now: i64) -> Reply<'_, Option<Token>> {
        self.later(self.store.find_known(id, now))
    }

    fn issue(&self, token: NewToken, now: i64) -> Reply<'_, Issued> {
        self.later(self.store.issue(token, now))
    }

    fn issue_code(&self, code: NewCode, now: i64) -> Reply<'_, Made> {
        self.later(self.store.issue_code(code, now))
    }

    fn find_code(&self, code: &str, now: i64) -> Reply<'_, Option<Code>> {
        self.later(self.store.find_code(code, now))
    }

    fn take_code(
        &self,
        code: &str,
        token: NewToken,
        revoke_on_replay: bool,
        now: i64,
    ) -> Reply<'_, Option<Issued>> {
        self.later(self.store.take_code(code, token, revoke_on_replay, now))
    }

    fn refresh(&self, refresh_token: &str, token: NewToken, now: i64) -> Reply<'_, RefreshOutcome> {
        self.later(self.store.refresh(refresh_token, token, now))
    }

    fn refresh_again(
        &self,
        id: Uuid,
        token: NewToken,
        within: i64,
        now: i64,
    ) -> Reply<'_, Option<Issued>> {
        self.later(self.store.refresh_again(id, token, within, now))
    }

    fn renew(
        &self,
        refresh_token: &str,
        expires_in: i64,
        ttl: Option<i64>,
        now: i64,
    ) -> Reply<'_, Option<Issued>> {
        self.later(self.store.renew(refresh_token, expires_in, ttl, now))
    }

    fn revoke(&self, id: Uuid, now: i64) -> Reply<'_, bool> {
        self.later(self.store.revoke(id, now))
    }

    fn revoke_successor(&self, id: Uuid, now: i64) -> Reply<'_, bool> {
        self.later(self.store.revoke_successor(id, now))
    }

    fn write(&self, row: Imported, how: Write, now: i64) -> Reply<'_, WriteOutcome> {
        self.later(self.store.write(row, how, now))
    }

    fn counts(&self) -> Reply<'_, Counts> {
        self.later(self.store.counts())
    }

    fn list(&self, of: Listed, after: Option<Cursor>, most: usize, now: i64) -> Reply<'_, Page> {
        self.later(self.store.list(of, after, most, now))
    }

    fn import(&self, rows: Vec<Imported>, now: i64) -> Reply<'_, Vec<ImportOutcome>> {
        self.later(self.store.import(rows, now))
    }

    fn expire(&self, now: i64) -> Reply<'_, bool> {
        self.later(self.store.expire(now))
    }
}

fn slow(more: Value) -> (Shop, Arc<Slow>) {
    let mut shop = shop(more.clone());
    let slow = Arc::new(Slow {
        store: shop.store.clone(),
        is_busy: AtomicBool::new(false),
        is_raced: AtomicBool::new(false),
    });
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
async fn a_store_with_too_much_to_do_is_no_refusal() {
    let (shop, slow) =
        slow(json!({"introspection": true, "revocation": true, "anonymous": "guest"}));
    let (access, refresh) = shop.pair().await;
    slow.is_busy.store(true, Relaxed);
    let busy = "503 temporarily_unavailable: Too many requests wait";
    let asking = json!({"token": access, "client_id": "web-client", "client_secret": "web-secret"});
    for outcome in [
        shop.token(credentials("web", json!({}))).await,
        shop.authorize(json!({})).await,
        shop.refresh(&refresh).await,
        shop.post("/oauth2/introspect", asking.clone()).await,
        shop.post("/oauth2/revoke", asking).await,
    ] {
        assert_eq!(error(&outcome), busy);
        assert_eq!(outcome.client.header("cache-control"), Some("no-store"));
    }
    // Not even for the anonymous consumer: the client may have the right token.
    assert_eq!(shop.status(&access).await, 500);
    slow.is_busy.store(false, Relaxed);
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
