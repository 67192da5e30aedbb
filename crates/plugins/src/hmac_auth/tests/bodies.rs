//! Bodies that are hashed on another thread.

use super::*;
use aws_lc_rs::digest;
use body::LONG;
use std::future::poll_fn;
use std::task::Poll;

fn digest_of(body: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, body);
    format!("SHA-256={}", BASE64.encode(digest.as_ref()))
}

fn validating(more: Value) -> Case {
    let mut config = json!({"validate_request_body": true});
    let fields = config.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    hmac_auth(config)
}

fn post<'c>(case: &'c Case, body: &[u8], digest: &str) -> Call<'c> {
    let call = call(case, "POST /", &date_signature()).header("Digest", digest);
    call.body(body.to_vec())
}

#[tokio::test]
async fn bodies_of_all_lengths_are_compared() {
    let case = validating(json!({}));
    let or_guest = validating(json!({"anonymous": "guest"}));
    for length in [0, 1, LONG - 1, LONG, LONG + 1, 1 << 20] {
        let body = vec![b'x'; length];
        let right = digest_of(&body);
        let mut other = body.clone();
        other.push(b'y');
        for (case, wrong) in [(&case, NO_MATCH), (&or_guest, "guest")] {
            let outcome = post(case, &body, &right).run().await;
            assert_eq!(result(&outcome), "nora", "{length}");
            let outcome = post(case, &other, &right).run().await;
            assert_eq!(result(&outcome), wrong, "{length}");
        }
    }
}

#[test]
#[should_panic(expected = "a plugin waits")]
fn no_worker_hashes_a_long_body() {
    let case = validating(json!({}));
    let body = vec![b'x'; LONG];
    let hashing = hashing(&case);
    hashing.permits().forget_permits(usize::MAX);
    post(&case, &body, &digest_of(&body)).run_now();
}

#[test]
fn shorter_bodies_do_not_wait() {
    let case = validating(json!({}));
    let body = vec![b'x'; LONG - 1];
    let outcome = post(&case, &body, &digest_of(&body)).run_now();
    assert_eq!(result(&outcome), "nora");
}

/// A long body without the header needs no hash.
#[test]
fn a_long_body_without_a_digest_is_refused_at_once() {
    let case = validating(json!({}));
    let call = call(&case, "POST /", &date_signature());
    assert_eq!(run(call.body(vec![b'x'; LONG])), NO_MATCH);
}

/// The signature is used up after the body was compared, and only then.
#[tokio::test]
async fn a_wrong_body_does_not_use_up_the_signature() {
    let case = validating(json!({"refuse_replays": true}));
    let body = vec![b'x'; LONG];
    let outcome = post(&case, &body, "SHA-256=wrong").run().await;
    assert_eq!(result(&outcome), NO_MATCH);
    let right = digest_of(&body);
    assert_eq!(result(&post(&case, &body, &right).run().await), "nora");
    let again = post(&case, &body, &right).run().await;
    assert_eq!(result(&again), "401 HMAC signature was used before");
}

fn hashing(case: &Case) -> Arc<Hashing> {
    case.node()
        .shared
        .get_or_insert(NAME, "hashing", Hashing::new)
}

#[tokio::test]
async fn requests_wait_for_their_turn_and_may_leave_it() {
    let case = validating(json!({}));
    let body = vec![b'x'; LONG];
    let digest = digest_of(&body);
    let hashing = hashing(&case);
    let all = hashing.permits().available_permits();
    let taken = hashing
        .permits()
        .acquire_many(u32::try_from(all).expect("some"))
        .await;
    let run = || Box::pin(post(&case, &body, &digest).run());
    let (mut leaves, mut stays) = (run(), run());
    for one in [&mut leaves, &mut stays] {
        assert!(poll_fn(|cx| Poll::Ready(one.as_mut().poll(cx).is_pending())).await);
    }
    // It waits no longer, and takes nobody's turn.
    drop(leaves);
    drop(taken);
    assert_eq!(result(&stays.await), "nora");
    assert_eq!(hashing.permits().available_permits(), all);
}

#[tokio::test]
async fn a_credential_that_is_deleted_while_the_body_is_hashed_admits_nothing() {
    let credential =
        json!({"id": CREDENTIAL, "consumer": {"id": NORA}, "username": "nora-h", "secret": SECRET});
    let entities = Arc::new(people().with(HMACAUTH_CREDENTIALS, credential));
    let case = case(def(), json!({"validate_request_body": true})).entities(entities.clone());
    let body = vec![b'x'; LONG];
    let digest = digest_of(&body);
    let hashing = hashing(&case);
    let all = u32::try_from(hashing.permits().available_permits()).expect("some");
    let taken = hashing.permits().acquire_many(all).await;
    let mut request = Box::pin(post(&case, &body, &digest).run());
    assert!(poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx).is_pending())).await);
    entities.remove(HMACAUTH_CREDENTIALS, CREDENTIAL);
    drop(taken);
    assert_eq!(result(&request.await), NOT_VERIFIABLE);
}
