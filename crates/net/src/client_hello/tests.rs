use super::*;
use proptest::prelude::*;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::sync::Arc;

/// Returns the first bytes that a real client sends.
pub(crate) fn real_hello(name: &'static str, sni: bool) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.enable_sni = sni;
    let name = ServerName::try_from(name).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

fn named(name: &str) -> Opening {
    Opening::Hello {
        server_name: Some(name.into()),
    }
}

/// Builds a hello with these extensions, in one record.
fn made_hello(extensions: &[u8]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend(extensions);
    message_of(&body)
}

fn message_of(body: &[u8]) -> Vec<u8> {
    let mut message = vec![CLIENT_HELLO];
    message.extend(&u32::try_from(body.len()).unwrap().to_be_bytes()[1..]);
    message.extend(body);
    records(&message, MAX_RECORD)
}

/// Splits the message into records with at most `size` bytes each.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&[HANDSHAKE, 3, 1], &length[..], part].concat()
    };
    message.chunks(size).flat_map(record).collect()
}

fn sni(entries: &[u8]) -> Vec<u8> {
    let inner = u16::try_from(entries.len()).unwrap();
    let mut extension = vec![0, 0];
    extension.extend((inner + 2).to_be_bytes());
    extension.extend(inner.to_be_bytes());
    extension.extend(entries);
    extension
}

fn host(name: &str) -> Vec<u8> {
    let mut entry = vec![HOST_NAME];
    entry.extend(u16::try_from(name.len()).unwrap().to_be_bytes());
    entry.extend(name.as_bytes());
    entry
}

#[test]
fn the_name_of_a_real_client_is_found() {
    let hello = real_hello("db.example.com", true);
    assert_eq!(parse(&hello), Ok(Some(named("db.example.com"))));
    let nameless = Opening::Hello { server_name: None };
    assert_eq!(parse(&real_hello("a.test", false)), Ok(Some(nameless)));
}

#[test]
fn the_name_is_found_however_the_hello_is_split() {
    let hello = real_hello("db.example.com", true);
    for size in [1, 2, 3, 4, 5, 7, 100, 400] {
        let cut = records(&hello[RECORD_HEADER..], size);
        if cut.len() > MAX_HELLO {
            continue;
        }
        assert_eq!(parse(&cut), Ok(Some(named("db.example.com"))), "{size}");
        for end in 0..cut.len() {
            assert_eq!(parse(&cut[..end]), Ok(None), "{size}: {end}");
        }
    }
}

#[test]
fn names_are_compared_in_lower_case() {
    let hello = made_hello(&sni(&host("DB.Example.com")));
    assert_eq!(parse(&hello), Ok(Some(named("db.example.com"))));
}

#[test]
fn other_protocols_are_told_apart() {
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"\0\0\0\x08\x04\xd2\x16\x2f"] {
        assert_eq!(parse(bytes), Ok(Some(Opening::NotTls)));
    }
    assert_eq!(parse(b""), Ok(None));
}

#[test]
fn an_ambiguous_name_is_no_name() {
    let twice = [sni(&host("a.test")), sni(&host("b.test"))].concat();
    let two_names = sni(&[host("a.test"), host("b.test")].concat());
    let trailing = sni(&[host("a.test"), vec![0]].concat());
    let other_kind = sni(&[1, 0, 1, b'a']);
    for extensions in [
        twice,
        two_names,
        trailing,
        other_kind,
        sni(&host("")),
        sni(&host("a\0b.test")),
        sni(&host("a b")),
        sni(&host(&"a".repeat(256))),
        vec![0, 0, 0, 0],
        vec![0, 0, 0, 1, 0],
    ] {
        let found = parse(&made_hello(&extensions));
        assert_eq!(found, Err(BadHello::ServerName), "{extensions:?}");
    }
}

#[test]
fn malformed_messages_are_refused() {
    let cut = |extensions: &[u8]| parse(&made_hello(extensions));
    assert_eq!(cut(&[0]), Err(BadHello::Hello));
    assert_eq!(cut(&[0, 5, 0, 9, 1]), Err(BadHello::Hello));
    assert_eq!(parse(&message_of(&[3, 3, 0])), Err(BadHello::Hello));
    assert_eq!(parse(&[22, 3, 1, 0, 4, 2, 0, 0, 0]), Err(BadHello::Hello));
    assert_eq!(parse(&[22, 3, 1, 0, 0]), Err(BadHello::Record));
    assert_eq!(parse(&[22, 3, 1, 0x40, 1]), Err(BadHello::Record));
    assert_eq!(parse(&[22, 2]), Err(BadHello::Record));
    // The second record has another content type.
    let mut hello = records(&real_hello("a.test", true)[RECORD_HEADER..], 20);
    hello[25] = 23;
    assert_eq!(parse(&hello), Err(BadHello::Record));
}

#[test]
fn an_endless_hello_ends() {
    let message = [&[CLIENT_HELLO, 0, 0x3f, 0xf0][..], &vec![0; 17_000]].concat();
    let hello = records(&message, 1_000);
    assert_eq!(parse(&hello), Err(BadHello::TooLarge));
    assert_eq!(
        parse(&[22, 3, 1, 0, 4, CLIENT_HELLO, 1, 0, 0]),
        Err(BadHello::TooLarge),
        "refused before the message is complete"
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse(&bytes);
        let _ = parse(&message_of(&bytes));
        let _ = parse(&made_hello(&bytes));
    }

    /// A decision on the first bytes of a hello must stay the same when more bytes arrive.
    #[test]
    fn a_decision_does_not_depend_on_later_bytes(
        name in "[a-z]{1,20}(\\.[a-z]{1,9}){0,3}",
        after in prop::collection::vec(any::<u8>(), 0..50),
        size in 40usize..300,
    ) {
        let hello = made_hello(&sni(&host(&name)));
        let mut sent = records(&hello[RECORD_HEADER..], size);
        sent.extend(after);
        prop_assert_eq!(parse(&sent), Ok(Some(named(&name))));
    }
}
