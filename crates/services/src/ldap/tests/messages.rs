//! Tests of the messages' encoding and parsing.

use super::super::message::*;
use super::*;
use proptest::prelude::*;

#[test]
fn requests_are_encoded_as_rfc_4511_says() {
    let bind = Request::Bind {
        name: "cn=a",
        password: b"pw",
    };
    let encoded = [
        &[0x30, 0x12, 2, 1, 1, 0x60, 13, 2, 1, 3, 4, 4][..],
        b"cn=a",
        &[0x80, 2],
        b"pw",
    ];
    // The length of the whole is that of its parts.
    let mut expected = encoded.concat();
    expected[1] = u8::try_from(expected.len() - 2).unwrap();
    assert_eq!(bind.encode(1).unwrap(), expected);
    let unbind = [0x30, 5, 2, 1, 2, 0x42, 0];
    assert_eq!(Request::Unbind.encode(2).unwrap(), unbind);
    let name = b"1.3.6.1.4.1.1466.20037";
    let start_tls = [&[0x30, 29, 2, 1, 1, 0x77, 24, 0x80, 22], &name[..]].concat();
    assert_eq!(Request::StartTls.encode(1).unwrap(), start_tls);
}

#[test]
fn long_values_have_long_lengths() {
    let name = "x".repeat(300);
    let request = Request::Bind {
        name: &name,
        password: &[b'p'; 200],
    };
    let bytes = request.encode(1).unwrap();
    assert_eq!(framing(&bytes), Ok(Framing::Whole(bytes.len())));
    let at = bytes.windows(4).position(|part| part == [4, 0x82, 1, 44]);
    assert!(at.is_some(), "{bytes:?}");
    assert!(bytes.windows(3).any(|part| part == [0x80, 0x81, 200]));
}

#[test]
fn responses_are_parsed_with_what_may_follow() {
    let parsed = Response::parse(&response(7, BIND, 49, "data 52e")).unwrap();
    let expected = Response {
        id: 7,
        kind: ResponseKind::Bind,
        code: 49,
        diagnostic: "data 52e".into(),
    };
    assert_eq!(parsed, expected);
    // A referral, credentials of SASL, and controls.
    let parts = [
        element(0x0a, &[10]),
        element(0x04, b"dc=x"),
        element(0x04, b""),
        element(0xa3, &element(0x04, b"ldap://other.test")),
        element(0x87, b"x"),
    ];
    let message = [
        element(0x02, &[1]),
        element(0x61, &parts.concat()),
        element(0xa0, &element(0x30, &element(0x04, b"1.2.3"))),
    ];
    let parsed = Response::parse(&element(0x30, &message.concat())).unwrap();
    assert_eq!((parsed.code, &*parsed.diagnostic), (10, ""));
}

#[test]
fn what_is_no_response_is_refused() {
    let whole = response(1, BIND, 0, "");
    for cut in 0..whole.len() {
        assert!(Response::parse(&whole[..cut]).is_err(), "{cut}");
    }
    // An indefinite length, a negative number, one of 33 bits, a search result, a set, a constructed text.
    let wrong: [&[u8]; 6] = [
        &[0x30, 0x80, 2, 1, 1, 0x61, 7, 10, 1, 0, 4, 0, 4, 0, 0, 0],
        &[0x30, 12, 2, 1, 0xff, 0x61, 7, 10, 1, 0, 4, 0, 4, 0],
        &[0x30, 16, 2, 5, 1, 0, 0, 0, 0, 0x61, 7, 10, 1, 0, 4, 0, 4, 0],
        &[0x30, 12, 2, 1, 1, 0x65, 7, 10, 1, 0, 4, 0, 4, 0],
        &[0x31, 12, 2, 1, 1, 0x61, 7, 10, 1, 0, 4, 0, 4, 0],
        &[0x30, 12, 2, 1, 1, 0x61, 7, 10, 1, 0, 0x24, 0, 4, 0],
    ];
    for bytes in wrong {
        assert!(Response::parse(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn the_frame_is_known_from_the_first_bytes_and_limited() {
    for (bytes, expected) in [
        (&[][..], Ok(Framing::Unknown)),
        (&[0x30], Ok(Framing::Unknown)),
        (&[0x30, 0x82, 1], Ok(Framing::Unknown)),
        (&[0x30, 12], Ok(Framing::Whole(14))),
        (&[0x30, 0x82, 1, 0], Ok(Framing::Whole(260))),
        (&[0x30, 0x80], Err(FramingError::Malformed)),
        (&[0x30, 0xff], Err(FramingError::Malformed)),
        (b"HTTP/1.1 400", Err(FramingError::Malformed)),
        (&[0x30, 0x83, 1, 0, 0], Err(FramingError::TooLong)),
        (
            &[0x30, 0x88, 255, 255, 255, 255, 255, 255, 255, 255],
            Err(FramingError::TooLong),
        ),
        (
            &[0x30, 0x89, 1, 0, 0, 0, 0, 0, 0, 0, 0],
            Err(FramingError::Malformed),
        ),
    ] {
        assert_eq!(framing(bytes), expected, "{bytes:?}");
    }
}

#[test]
fn a_long_text_is_cut() {
    let wrap = |tag: u8, content: &[u8]| {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    };
    let mut parts = [element(0x0a, &[49]), element(0x04, b"")].concat();
    parts.extend(wrap(0x04, &[b'x'; 0x4000]));
    let mut message = element(0x02, &[1]);
    message.extend(wrap(0x61, &parts));
    let parsed = Response::parse(&wrap(0x30, &message)).unwrap();
    assert_eq!((parsed.code, parsed.diagnostic.len()), (49, 512));
}

#[test]
fn nesting_costs_nothing() {
    // Each level would take a stack frame in a parser that recurses.
    let mut nested = Vec::new();
    for _ in 0..MAX_MESSAGE / 4 - 1 {
        let length = u16::try_from(nested.len()).unwrap().to_be_bytes();
        nested.splice(0..0, [0x30, 0x82, length[0], length[1]]);
    }
    assert_eq!(framing(&nested), Ok(Framing::Whole(nested.len())));
    assert!(Response::parse(&nested).is_err());
    assert!(Response::parse(&[0x30, 0x80].repeat(30_000)).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = framing(&bytes);
        let _ = Response::parse(&bytes);
    }

    #[test]
    fn a_changed_response_is_parsed_without_a_panic(at in 0_usize..40, byte: u8, text in "[a-z]{0,20}") {
        let mut bytes = response(1, BIND, 49, &text);
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(Framing::Whole(length)) = framing(&bytes) {
            prop_assert!(length <= MAX_MESSAGE);
        }
        let _ = Response::parse(&bytes);
    }

    #[test]
    fn responses_come_back(id in 0_u8..128, code in 0_u8..128, text in "[ -~]{0,80}") {
        let parsed = Response::parse(&response(id, EXTENDED, code, &text)).unwrap();
        prop_assert_eq!(parsed.id, u32::from(id));
        prop_assert_eq!(parsed.code, u32::from(code));
        prop_assert_eq!(&*parsed.diagnostic, text.as_str());
        prop_assert_eq!(parsed.kind, ResponseKind::Extended);
    }
}
