use super::*;

fn decode(pieces: &[&[u8]]) -> Result<Vec<u8>, CodecError> {
    let mut decoder = Base64Decoder::default();
    let mut out = Vec::new();
    for piece in pieces {
        out.extend(decoder.decode(piece)?);
    }
    out.extend(decoder.finish()?);
    Ok(out)
}

#[test]
fn base64_is_decoded_with_padding_in_the_middle() {
    for (text, wanted) in [
        ("", ""),
        ("Zg==", "f"),
        ("Zm8=", "fo"),
        ("Zm9v", "foo"),
        ("Zg==Zm8=Zm9v", "ffofoo"),
        ("Zm9vZg==Zm9vZg==", "fooffoof"),
        ("Zm9vZg", "foof"),
        ("Zm9vZg=", "foof"),
        ("Zm9vZm8", "foofo"),
    ] {
        assert_eq!(
            decode(&[text.as_bytes()]).as_deref(),
            Ok(wanted.as_bytes()),
            "{text}"
        );
    }
}

#[test]
fn text_that_is_not_base64_is_refused() {
    for text in [
        "Z", "Zm9vZ", "Z===", "====", "Zm 9", "Zm9-", "=", "Zm=v", "Zm9vZm=v", "Zm9vZ=", "Zm9vZ=m",
        "Zm9v\n",
    ] {
        assert_eq!(
            decode(&[text.as_bytes()]),
            Err(CodecError::Base64),
            "{text}"
        );
    }
}

#[test]
fn pieces_of_any_length_give_the_same_bytes() {
    let mut random = fastrand::Rng::with_seed(0x5eed);
    for _ in 0..2000 {
        let mut bytes = vec![0; random.usize(..200)];
        random.fill(&mut bytes);
        let mut text = Vec::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(random.usize(1..=rest.len()));
            text.extend_from_slice(&encode_base64(piece));
            rest = after;
        }
        let mut pieces = Vec::new();
        let mut rest = text.as_slice();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(random.usize(..=rest.len().min(9)));
            pieces.push(piece);
            rest = after;
        }
        assert_eq!(decode(&pieces), Ok(bytes));
    }
}

#[test]
fn any_text_is_decoded_or_refused_without_a_panic() {
    let mut random = fastrand::Rng::with_seed(0x5eed);
    for _ in 0..20_000 {
        let length = random.usize(..24);
        let text: Vec<u8> = (0..length)
            .map(|_| random.choice(*b"AZaz09+/==\n-").unwrap_or(b'='))
            .collect();
        std::hint::black_box(decode(&[&text]).is_ok());
    }
}

#[test]
fn frames_are_found_in_pieces_of_any_length() {
    let mut body = frame(0, b"one");
    body.extend(frame(COMPRESSED, b""));
    body.extend(frame(TRAILERS, b"grpc-status:0\r\n"));
    for size in 1..body.len() {
        let mut frames = Frames::new(100);
        let mut found = Vec::new();
        for piece in body.chunks(size) {
            frames.push(piece);
            while let Some(frame) = frames.next().expect("small frames") {
                found.push((frame.flags, frame.content));
            }
        }
        assert_eq!(frames.finish(), Ok(()));
        let wanted = [
            (0, Bytes::from_static(b"one")),
            (COMPRESSED, Bytes::new()),
            (TRAILERS, Bytes::from_static(b"grpc-status:0\r\n")),
        ];
        assert_eq!(found, wanted, "{size}");
    }
}

#[test]
fn a_frame_that_is_too_large_or_unfinished_is_an_error() {
    let mut frames = Frames::new(3);
    frames.push(&frame(0, b"four"));
    assert_eq!(frames.next(), Err(CodecError::TooLarge(3)));
    let mut frames = Frames::new(3);
    frames.push(&[0, 0, 0, 0, 2, b'x']);
    assert_eq!(frames.next(), Ok(None));
    assert_eq!(frames.finish(), Err(CodecError::Unfinished));
}

#[test]
fn the_trailers_begin_with_status_and_message() {
    let lines = |trailers: &[(&'static str, &'static [u8])]| {
        let frame = trailer_frame(trailers.iter().copied());
        assert_eq!(frame[0], TRAILERS);
        assert_eq!(frame[1..5], u32::to_be_bytes(frame.len() as u32 - 5));
        String::from_utf8(frame[5..].to_vec()).expect("a text")
    };
    assert_eq!(lines(&[]), "grpc-status:0\r\ngrpc-message:\r\n");
    assert_eq!(
        lines(&[
            ("X-A", b"1"),
            ("Grpc-Message", b"m%20"),
            ("grpc-status", b"5"),
            ("X-A", b"2")
        ]),
        "grpc-status:5\r\ngrpc-message:m%20\r\nx-a:1\r\nx-a:2\r\n"
    );
}
