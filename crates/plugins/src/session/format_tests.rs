//! Tests of the encrypted form: a session that Kong made, changed ones, and bounds.

use super::super::jar;
use super::super::payload::{Login, MAX_PLAINTEXT, Payload};
use super::*;
use proptest::prelude::*;

/// A session that Kong 3.9 made with the secret `session-secret-dev` and the storage `kong`: its cookie and its data.
const KONGS_COOKIE: &str = "AQEANdjXr2uGcckHjg0QdNAKwC1pjPUwkD2GxdOBIkxSeTQUuQNrAAAAAACHAADZWt2r8TSoLTtTBfOC1W-WAAAATeEvCB1KVL5XmzDMdsFNMg";
const KONGS_DATA: &str = "CN5BDCkisEbBZrN_vZDHQMRygtu7SfKNnA_P8y6eYG-nCiC0I5yEa33u1n-EAyOHWCBHnAJrFRoN4HXBVvnE_WoW-h38jRerW142-uNeOsJwiKAzpxk8IOe4-EY38kMR1cE77JU";

fn secret() -> Secret {
    Secret::new("session-secret-dev")
}

const TIMES: Times = Times {
    created: 1_700_000_000,
    rolling: 7,
};

fn sealed(payload: &[u8], purpose: Purpose) -> (Header, String) {
    let sealed = secret().seal(0, TIMES, payload.to_vec(), purpose);
    sealed.expect("it can be sealed")
}

#[test]
fn a_session_of_kong_is_opened() {
    let secret = secret();
    let header = secret.open_header(KONGS_COOKIE.as_bytes());
    let header = header.expect("the header is authentic");
    assert_eq!(
        header.id_text(),
        "NdjXr2uGcckHjg0QdNAKwC1pjPUwkD2GxdOBIkxSeTQ"
    );
    assert_eq!(
        (header.flags, header.rolling, header.idling),
        (STORED, 0, 0)
    );
    let plaintext = secret.open_payload(&header, KONGS_DATA.as_bytes(), Purpose::Session);
    let payload = Payload::decode(&plaintext.expect("it is authentic"), header.flags);
    let login = payload.expect("it is well-formed").login("default");
    let login = login.expect("it has the audience");
    let alice = "54c31590-1d7d-4b51-873f-e2585b641930";
    assert_eq!(login.consumer.as_deref(), Some(alice));
    assert_eq!(login.subject.as_deref(), Some("alice"));
    assert!(login.credential.is_some());
    // It is written again exactly as Kong wrote it.
    assert_eq!(
        secret.header_text(&header).expect("it has a MAC"),
        KONGS_COOKIE
    );
}

#[test]
fn every_changed_byte_of_a_session_is_noticed() {
    let secret = secret();
    let header = BASE64URL_NOPAD.decode(KONGS_COOKIE.as_bytes());
    let header = header.expect("it is base64url");
    for at in 0..header.len() {
        let mut changed = header.clone();
        changed[at] ^= 1;
        let changed = BASE64URL_NOPAD.encode(&changed);
        assert!(secret.open_header(changed.as_bytes()).is_err(), "byte {at}");
    }
    let header = secret
        .open_header(KONGS_COOKIE.as_bytes())
        .expect("it is authentic");
    let data = BASE64URL_NOPAD
        .decode(KONGS_DATA.as_bytes())
        .expect("it is base64url");
    for at in 0..data.len() {
        let mut changed = data.clone();
        changed[at] ^= 1;
        let changed = BASE64URL_NOPAD.encode(&changed);
        let opened = secret.open_payload(&header, changed.as_bytes(), Purpose::Session);
        assert!(matches!(opened, Err(Invalid::Forged)), "byte {at}");
    }
}

#[test]
fn another_secret_and_another_purpose_open_nothing() {
    let other = Secret::new("session-secret-dew");
    let refused = other.open_header(KONGS_COOKIE.as_bytes());
    assert!(matches!(refused, Err(Invalid::Forged)));
    for purpose in [Purpose::Session, Purpose::Remember] {
        let (header, text) = sealed(b"[]", purpose);
        for with in [Purpose::Session, Purpose::Remember] {
            let opened = secret().open_payload(&header, text.as_bytes(), with);
            assert_eq!(opened.ok(), (purpose == with).then(|| b"[]".to_vec()));
        }
    }
}

#[test]
fn no_two_sessions_have_one_id() {
    let ids: std::collections::HashSet<_> = (0..100)
        .map(|_| sealed(b"[]", Purpose::Session).0.id)
        .collect();
    assert_eq!(ids.len(), 100);
}

#[test]
fn a_touched_session_keeps_its_payload() {
    let secret = secret();
    let (header, payload) = sealed(b"[1]", Purpose::Session);
    let touched = header.touched(90);
    let text = secret.header_text(&touched).expect("it has a MAC");
    let read = secret
        .open_header(text.as_bytes())
        .expect("it is authentic");
    assert_eq!(read, touched);
    assert_eq!(read.last_noted(), 1_700_000_097);
    let opened = secret.open_payload(&read, payload.as_bytes(), Purpose::Session);
    assert_eq!(opened.expect("it is authentic"), b"[1]");
    assert_eq!(header.touched(u64::MAX).idling, (1 << 24) - 1);
}

#[test]
fn too_much_data_is_neither_sealed_nor_inflated() {
    let large = vec![0; MAX_PLAINTEXT + 1];
    let refused = secret().seal(0, TIMES, large, Purpose::Session);
    assert!(matches!(refused, Err(Invalid::TooLarge)));

    let bomb = |length| {
        use std::io::Write;
        let mut encoder =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        let mut text = vec![b' '; length];
        text.extend_from_slice(b"[]");
        encoder.write_all(&text).expect("memory can be written");
        encoder.finish().expect("memory can be written")
    };
    assert!(Payload::decode(&bomb(MAX_PLAINTEXT - 2), DEFLATED).is_ok());
    let refused = Payload::decode(&bomb(MAX_PLAINTEXT), DEFLATED);
    assert!(matches!(refused, Err(Invalid::Payload)));
    let refused = Payload::decode(&bomb(30_000_000), DEFLATED);
    assert!(matches!(refused, Err(Invalid::Payload)));
}

proptest! {
    #[test]
    fn what_was_sealed_is_opened(
        payload in proptest::collection::vec(any::<u8>(), 0..3000),
        created in 0..=MAX_CREATED,
        rolling: u32,
        flags: u16,
    ) {
        let times = Times { created, rolling };
        let secret = secret();
        let sealed = secret.seal(flags, times, payload.clone(), Purpose::Session);
        let (header, text) = sealed.expect("it can be sealed");
        let head = secret.header_text(&header).expect("it has a MAC");
        prop_assert_eq!(head.len(), HEADER_TEXT);
        let read = secret.open_header(head.as_bytes()).expect("it is authentic");
        prop_assert_eq!(&read, &header);
        let opened = secret.open_payload(&read, text.as_bytes(), Purpose::Session);
        prop_assert_eq!(opened.expect("it is authentic"), payload);
    }

    #[test]
    fn any_text_is_refused_as_a_header(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(secret().open_header(&text).is_err());
    }

    #[test]
    fn data_is_read_as_it_was_written(
        consumer: String,
        groups in proptest::option::of(proptest::collection::vec(any::<String>(), 0..200)),
    ) {
        let login = Login {
            consumer: Some(consumer),
            credential: None,
            groups,
            subject: Some("nora".to_owned()),
        };
        let mut payload = Payload::default();
        payload.set("one", &login);
        payload.set("two", &Login::default());
        payload.set("one", &login);
        if let Ok((text, flags)) = payload.encode() {
            let read = Payload::decode(&text, flags).expect("it is well-formed");
            prop_assert_eq!(read.login("one"), Some(login));
            prop_assert_eq!(read.login("three"), None);
            prop_assert_eq!(read, payload);
        }
    }

    #[test]
    fn split_cookies_are_within_their_bounds(name in "[a-z]{1,40}", size in 0_usize..40_000) {
        let header = "h".repeat(HEADER_TEXT);
        let payload = "p".repeat(size);
        let Ok(cookies) = jar::split(&name, &header, &payload, "; Path=/") else {
            prop_assert!(size > 36_000);
            return Ok(());
        };
        prop_assert_eq!(cookies.len(), jar::pieces(&name, size).expect("it was split"));
        let mut joined = String::new();
        for cookie in &cookies {
            let pair = cookie.line.strip_suffix("; Path=/").expect("it has the attributes");
            prop_assert!(pair.len() <= 4096);
            let (own_name, value) = pair.split_once('=').expect("it has a value");
            prop_assert_eq!(own_name, &cookie.name);
            prop_assert_eq!(plugin::cookie_in(cookie.line.as_bytes(), own_name.as_bytes()), Some(value.as_bytes()));
            joined.push_str(value);
        }
        prop_assert_eq!(joined, format!("{header}{payload}"));
    }
}
