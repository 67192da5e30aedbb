//! Secrets of clients.

use super::super::credential::Oauth2Credential;
use super::super::secrets::{Overload, Secrets};
use super::super::turns::Asker;
use super::*;
use std::future::poll_fn;
use std::net::IpAddr;
use std::task::Poll;
use std::time::Instant;

fn credential(secret: &str, is_hashed: bool) -> Oauth2Credential {
    let value = client(
        WEB,
        NORA,
        "web",
        json!({"client_secret": secret, "hash_secret": is_hashed}),
    );
    serde_json::from_value(value).expect("a credential")
}

fn secrets() -> Secrets {
    Secrets::with_room(3, 1).expect("random numbers")
}

impl Secrets {
    /// Compares a secret for somebody at the first address.
    async fn is_it(
        &self,
        client: Option<&Oauth2Credential>,
        given: &str,
    ) -> Result<bool, Overload> {
        self.is_right(client, &[given], at(1, given)).await
    }
}

fn at(address: u8, client: &str) -> Asker {
    let client = client.bytes().map(u64::from).sum();
    Asker::new(IpAddr::from([192, 0, 2, address]), client)
}

#[tokio::test]
async fn plain_and_hashed_secrets_are_compared() {
    let secrets = secrets();
    let plain = credential("web-secret", false);
    let hash = credential(&hashed("web-secret", 10), true);
    for client in [&plain, &hash] {
        assert_eq!(secrets.is_it(Some(client), "web-secret").await, Ok(true));
        assert_eq!(secrets.is_it(Some(client), "web-secre").await, Ok(false));
        assert_eq!(secrets.is_it(Some(client), "").await, Ok(false));
    }
    assert_eq!(secrets.is_it(None, "web-secret").await, Ok(false));
    // A hash counts as one only if the credential says so.
    let text = hashed("web-secret", 10);
    let plain = credential(&text, false);
    assert_eq!(secrets.is_it(Some(&plain), &text).await, Ok(true));
    assert_eq!(secrets.is_it(Some(&plain), "web-secret").await, Ok(false));
}

#[tokio::test]
async fn a_secret_that_was_right_is_remembered_until_the_credential_changes() {
    let secrets = secrets();
    let client = credential(&hashed("web-secret", 50_000), true);
    let time = async |client: &Oauth2Credential, secret: &str| {
        let begin = Instant::now();
        let is_right = secrets.is_it(Some(client), secret).await;
        (is_right, begin.elapsed())
    };
    let (is_right, first) = time(&client, "web-secret").await;
    assert_eq!((is_right, secrets.known()), (Ok(true), 1));
    let (is_right, again) = time(&client, "web-secret").await;
    assert_eq!(is_right, Ok(true));
    assert!(again < first / 5, "{again:?} after {first:?}");
    let changed = credential(&hashed("another", 10), true);
    assert_eq!(secrets.is_it(Some(&changed), "web-secret").await, Ok(false));
    assert_eq!(secrets.known(), 1, "wrong secrets are not remembered");
}

#[tokio::test]
async fn only_so_many_are_remembered() {
    let secrets = secrets();
    for number in 0..10 {
        let secret = format!("secret-{number}");
        let client = credential(&hashed(&secret, 1), true);
        assert_eq!(secrets.is_it(Some(&client), &secret).await, Ok(true));
    }
    assert_eq!(secrets.known(), 3);
}

#[tokio::test]
async fn hashes_that_cost_too_much_or_are_too_short_are_refused() {
    let secrets = secrets();
    let right = hashed("web-secret", 10);
    for (stored, wanted) in [
        (right.clone(), true),
        (right.replace("i=10", "i=1000001"), false),
        (right.replace("i=10", "i=0"), false),
        (right.replace("i=10", "i=-1"), false),
        (right.replace("l=32", "l=31"), false),
        (right.replace("sha512", "md5"), false),
        (format!("{right}$x"), false),
        ("$pbkdf2-sha512$i=10,l=0$BwcHBw$".to_owned(), false),
        ("$pbkdf2-sha512$i=10,l=1$BwcHBw$AA".to_owned(), false),
        ("$pbkdf2-sha512".to_owned(), false),
        ("web-secret".to_owned(), false),
    ] {
        let client = credential(&stored, true);
        assert_eq!(
            secrets.is_it(Some(&client), "web-secret").await,
            Ok(wanted),
            "{stored}"
        );
    }
}

/// The time of a refusal must not tell whether the client exists. What is compared here is the number of hashes.
#[tokio::test]
async fn every_refusal_costs_a_hash() {
    let secrets = secrets();
    let clients = [
        None,
        Some(credential("web-secret", false)),
        Some(credential(&hashed("web-secret", 10_000), true)),
        Some(credential("damaged", true)),
    ];
    let mut times = Vec::new();
    for client in &clients {
        // The smallest of several is the one that nothing else has disturbed.
        let mut best = None;
        for _ in 0..5 {
            let begin = Instant::now();
            assert_eq!(secrets.is_it(client.as_ref(), "wrong").await, Ok(false));
            let took = begin.elapsed();
            best = Some(best.map_or(took, |best: Duration| best.min(took)));
        }
        times.extend(best);
    }
    let (least, most) = (times.iter().min(), times.iter().max());
    let (least, most) = (least.expect("times"), most.expect("times"));
    assert!(*most < *least * 4, "{times:?}");
}

#[tokio::test]
async fn not_more_than_a_thousand_requests_wait_for_a_hash() {
    let secrets = secrets();
    // One has the permit, and a thousand wait.
    let mut waiting: Vec<_> = (0..1_002)
        .map(|_| Box::pin(secrets.is_it(None, "x")))
        .collect();
    let mut last = None;
    for one in &mut waiting {
        last = Some(poll_fn(|cx| Poll::Ready(one.as_mut().poll(cx))).await);
    }
    assert_eq!(last, Some(Poll::Ready(Err(Overload))));
    // Clients that leave make room.
    waiting.clear();
    assert_eq!(secrets.is_it(None, "x").await, Ok(false));
}

/// Several readings of one secret count as one request, and the one that is remembered is enough.
#[tokio::test]
async fn of_several_readings_one_must_be_right() {
    let secrets = secrets();
    let client = credential(&hashed("a b", 10), true);
    let is_right = async |given: &[&str]| secrets.is_right(Some(&client), given, at(1, "x")).await;
    assert_eq!(is_right(&["a+b", "a b"]).await, Ok(true));
    assert_eq!(is_right(&["a+b", "a%20b"]).await, Ok(false));
    let _permit = secrets
        .turns()
        .permit(at(1, "x"))
        .await
        .expect("it is free");
    assert_eq!(
        is_right(&["a+b", "a b"]).await,
        Ok(true),
        "it does not wait"
    );
}
