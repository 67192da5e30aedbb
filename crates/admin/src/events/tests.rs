use super::wire::*;
use std::borrow::Cow;
use store::Effect;
use uuid::Uuid;

fn every_frame() -> Vec<Frame<'static>> {
    let change = |effect, kind: &'static str| Change {
        effect,
        kind: kind.into(),
        id: Uuid::from_u128(u128::MAX / 3),
    };
    let head = Head {
        revision: u64::MAX,
        at_ms: 7,
        source: "127.0.0.1".into(),
        actor: None,
        request_id: Some("".into()),
        message: Some("wär\n".into()),
        changes: 3,
    };
    vec![
        Frame::Welcome {
            version: VERSION,
            after: 3,
        },
        Frame::Revision(head),
        Frame::Changes(vec![
            change(Effect::Created, "routes"),
            change(Effect::Updated, "key_sets"),
            change(Effect::Deleted, "kind_of_tomorrow_2"),
        ]),
        Frame::Gap { from: 4, to: 4 },
        Frame::Heartbeat,
        Frame::End {
            reason: Reason::Unreadable,
            text: "too late".into(),
        },
    ]
}

#[test]
fn frames_decode_as_encoded_and_only_when_complete() {
    for frame in every_frame() {
        let mut bytes = Vec::new();
        encode(&frame, &mut bytes);
        let length = bytes.len();
        bytes.extend_from_slice(b"next");
        assert_eq!(decode(&bytes), Ok(Some((frame.clone(), length))));
        for cut in 0..length {
            assert_eq!(decode(&bytes[..cut]), Ok(None), "{frame:?} at {cut}");
        }
    }
}

#[test]
fn malformed_frames_are_refused() {
    for (bytes, expected) in [
        (&b"\0\0\0\0"[..], Malformed::Length),
        (b"\0\x01\0\x01", Malformed::Length),
        (b"\xff\xff\xff\xff", Malformed::Length),
        (b"\0\0\0\x01\0", Malformed::Kind),
        (b"\0\0\0\x01\x07", Malformed::Kind),
        (b"\0\0\0\x02\x05x", Malformed::Content),
        // These frames have no changes, an unknown effect, an invalid name, and a name that is too long for its frame.
        (b"\0\0\0\x01\x03", Malformed::Content),
        (
            b"\0\0\0\x14\x03\x04\x01a0123456789abcdef",
            Malformed::Content,
        ),
        (
            b"\0\0\0\x14\x03\x01\x01A0123456789abcdef",
            Malformed::Content,
        ),
        (
            b"\0\0\0\x14\x03\x01\x02a0123456789abcdef",
            Malformed::Content,
        ),
        // These frames have `from` after `to`, an unknown reason, and a text that is not UTF-8.
        (
            b"\0\0\0\x11\x04\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01",
            Malformed::Content,
        ),
        (b"\0\0\0\x04\x06\x08\0\0", Malformed::Content),
        (b"\0\0\0\x05\x06\x01\0\x01\xff", Malformed::Content),
    ] {
        assert_eq!(decode(bytes), Err(expected), "{bytes:?}");
    }
}

#[test]
fn texts_are_cut_between_characters_so_that_every_revision_fits() {
    // The texts are cut at an even number of bytes, which would be in the middle of a character.
    let long: Cow<'_, str> = format!("x{}", "ä".repeat(MAX_TEXT)).into();
    let head = Head {
        revision: 1,
        at_ms: 1,
        source: long.clone(),
        actor: Some(long.clone()),
        request_id: Some(long.clone()),
        message: Some(long.clone()),
        changes: 0,
    };
    let mut bytes = Vec::new();
    encode(&Frame::Revision(head), &mut bytes);
    let Ok(Some((Frame::Revision(head), _))) = decode(&bytes) else {
        panic!("{:?}", decode(&bytes));
    };
    assert_eq!(head.source.len(), MAX_TEXT - 1);
    assert!(long.starts_with(&*head.source));
}

#[test]
fn a_page_of_changes_always_fits() {
    let change = Change {
        effect: Effect::Created,
        kind: "k".repeat(64).into(),
        id: Uuid::nil(),
    };
    let mut bytes = Vec::new();
    encode(&Frame::Changes(vec![change; CHANGES_AT_ONCE]), &mut bytes);
    assert!(bytes.len() <= 4 + MAX_FRAME);
    assert!(matches!(decode(&bytes), Ok(Some(_))));
}

#[test]
fn openings_have_a_start_and_nothing_else() {
    for start in [Start::Now, Start::After(0), Start::After(u64::MAX)] {
        assert_eq!(decode_opening(&encode_opening(start)), Ok(start));
    }
    let changed = |at: usize, byte: u8| {
        let mut opening = encode_opening(Start::Now);
        opening[at] = byte;
        decode_opening(&opening)
    };
    assert_eq!(changed(0, b'G'), Err(Malformed::Magic));
    assert_eq!(changed(8, 1), Err(Malformed::Version(257)));
    assert_eq!(changed(10, 2), Err(Malformed::Content));
    assert_eq!(
        changed(18, 1),
        Err(Malformed::Content),
        "`Now` has no revision number"
    );
}

#[test]
fn frames_cost_as_much_as_they_are_long() {
    let change = |kind: &'static str| Change {
        effect: Effect::Updated,
        kind: kind.into(),
        id: Uuid::nil(),
    };
    testkit::cost::assert_linear(
        400,
        |size| {
            let frames = ["routes", ""].map(|kind| Frame::Changes(vec![change(kind); size]));
            let encoded = |frame: &Frame<'_>| {
                let mut bytes = Vec::new();
                encode(frame, &mut bytes);
                bytes
            };
            let mut sent = frames.map(|frame| encoded(&frame)).to_vec();
            sent.push(encoded(&Frame::Heartbeat).repeat(10 * size));
            sent.push([&(20 * size as u32).to_be_bytes()[..], &vec![3; 20 * size]].concat());
            sent
        },
        |sent| {
            for bytes in &sent {
                let mut rest = &bytes[..];
                while let Ok(Some((_, length))) = decode(rest) {
                    rest = &rest[length..];
                }
            }
        },
    );
}
