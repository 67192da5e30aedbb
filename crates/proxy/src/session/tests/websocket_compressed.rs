//! Compressed messages (RFC 7692) and alternating messages, as in sections 9.7, 9.8, 12 and 13 of the Autobahn suite.
//! The gateway forwards the negotiated extensions and the compressed bytes unchanged.

use super::websocket::{ASK, SWITCH};
use super::websocket_frames::{BINARY, CONTINUATION, FIN, Frame, TEXT, play, write_all};
use super::*;
use std::cell::Cell;

/// Bit that marks the first frame of a compressed message (RFC 7692 section 6).
const RSV1: u8 = 0x40;

/// The extensions that a client offers, and the server's choice (RFC 7692 section 7.1).
const AGREEMENTS: [(&str, &str); 12] = [
    ("permessage-deflate", "permessage-deflate"),
    (
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate",
    ),
    (
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate; client_max_window_bits=9",
    ),
    (
        "permessage-deflate; client_max_window_bits=15",
        "permessage-deflate; client_max_window_bits=15",
    ),
    (
        "permessage-deflate; server_max_window_bits=9",
        "permessage-deflate; server_max_window_bits=9",
    ),
    (
        "permessage-deflate; server_max_window_bits=15",
        "permessage-deflate; server_max_window_bits=15",
    ),
    (
        "permessage-deflate; server_no_context_takeover",
        "permessage-deflate; server_no_context_takeover",
    ),
    (
        "permessage-deflate; client_no_context_takeover",
        "permessage-deflate; client_no_context_takeover",
    ),
    (
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=9; client_max_window_bits",
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=9; client_max_window_bits=9",
    ),
    // Two offers, of which the server accepts the second. The next entry has quoted values.
    (
        "permessage-deflate; server_max_window_bits=10, permessage-deflate; client_max_window_bits",
        "permessage-deflate; client_max_window_bits=10",
    ),
    (
        "permessage-deflate; server_max_window_bits=\"10\"",
        "permessage-deflate; server_max_window_bits=\"10\"",
    ),
    // An unknown extension.
    (
        "x-webkit-deflate-frame, permessage-bzip2; client_max_compress_level",
        "permessage-bzip2; client_max_compress_level=3",
    ),
];

/// Lengths of messages, and the number of frames of each.
const SHAPES: [(usize, usize); 18] = [
    (16, 1),
    (64, 1),
    (256, 1),
    (1024, 1),
    (4096, 1),
    (8192, 1),
    (16384, 1),
    (32768, 1),
    (65536, 1),
    (131_072, 1),
    (8192, 32),
    (16384, 64),
    (32768, 128),
    (65536, 256),
    (131_072, 512),
    (131_072, 128),
    (131_072, 16),
    (131_072, 2),
];

/// Random bytes, which look like a compressor's output.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// A message in frames. Only the first one has the bit for compression.
fn message(seed: u64, length: usize, frames: usize) -> Vec<Frame> {
    let payload = noise(seed, length);
    let mut message: Vec<Frame> = payload
        .chunks(length / frames)
        .map(|part| Frame::new(CONTINUATION, part))
        .collect();
    let opcode = if seed.is_multiple_of(2) { BINARY } else { TEXT };
    message.first_mut().unwrap().first = RSV1 | opcode;
    message.last_mut().unwrap().first |= FIN;
    message
}

fn messages(agreement: usize, shape: usize) -> Vec<Frame> {
    let (length, frames) = SHAPES[shape];
    (0..3)
        .flat_map(|number| {
            message(
                (agreement * 100 + shape * 4 + number) as u64,
                length,
                frames,
            )
        })
        .collect()
}

#[test]
fn extensions_and_compressed_messages_pass_unchanged() {
    run(async {
        let arrived = Rc::new(Cell::new(0));
        let mut scripts = Vec::new();
        for (agreement, (offer, taken)) in AGREEMENTS.into_iter().enumerate() {
            for shape in 0..SHAPES.len() {
                let frames = messages(agreement, shape);
                let (up, down) = (write_all(&frames, true), write_all(&frames, false));
                let arrived = arrived.clone();
                scripts.push(script(move |mut peer: Peer| async move {
                    let head = peer.head().await;
                    assert_eq!(header(&head, "sec-websocket-extensions"), Some(offer));
                    peer.send(with_extensions(SWITCH, taken)).await;
                    let before = std::mem::take(&mut peer.read);
                    let got = play(&mut peer.stream, &before, &down, usize::MAX, up.len()).await;
                    assert!(got == up, "{offer}, {shape}: changed on the way up");
                    arrived.set(arrived.get() + 1);
                    peer.stream.shutdown().await.unwrap();
                    peer.rest().await;
                }));
            }
        }
        assert_eq!(scripts.len(), 216);
        let gateway = Setup::new(upstream(scripts).await).start();
        for (agreement, (offer, taken)) in AGREEMENTS.into_iter().enumerate() {
            for shape in 0..SHAPES.len() {
                let frames = messages(agreement, shape);
                let (up, down) = (write_all(&frames, true), write_all(&frames, false));
                let mut client = gateway.client().await;
                client.send(with_extensions(ASK, offer)).await;
                let head = client.head().await;
                assert_eq!(status(&head), "101");
                assert_eq!(header(&head, "sec-websocket-extensions"), Some(taken));
                let before = std::mem::take(&mut client.read);
                let got = play(&mut client.stream, &before, &up, usize::MAX, down.len()).await;
                assert!(got == down, "{offer}, {shape}: changed on the way down");
                assert_eq!(client.rest().await, "");
            }
        }
        assert_eq!(arrived.get(), 216);
    });
}

fn with_extensions(head: &str, extensions: &str) -> String {
    let end = format!("\r\nSec-WebSocket-Extensions: {extensions}\r\n\r\n");
    head.replace("\r\n\r\n", &end)
}

/// Each side waits for the other's message before it sends its next one, so the gateway must not hold any back.
#[test]
fn alternating_messages_are_forwarded_at_once() {
    const TURNS: usize = 100;
    let shapes: Vec<(u8, usize)> = [TEXT, BINARY]
        .into_iter()
        .flat_map(|opcode| [0, 16, 64, 256, 1024, 4096].map(|length| (opcode, length)))
        .collect();
    run(async move {
        let scripts = shapes.iter().map(|&(opcode, length)| {
            let [up, down] = turn(opcode, length);
            script(move |mut peer: Peer| async move {
                peer.head().await;
                peer.send(SWITCH).await;
                for _ in 0..TURNS {
                    assert_eq!(peer.take(up.len()).await, up);
                    peer.send(&down).await;
                }
                peer.rest().await;
            })
        });
        let gateway = Setup::new(upstream(scripts.collect()).await).start();
        for (opcode, length) in shapes {
            let [up, down] = turn(opcode, length);
            let mut client = gateway.client().await;
            client.send(ASK).await;
            assert_eq!(status(&client.head().await), "101");
            for _ in 0..TURNS {
                client.send(&up).await;
                assert_eq!(client.take(down.len()).await, down, "{opcode} of {length}");
            }
        }
    });
}

/// The bytes of a message from the client and of one from the server.
fn turn(opcode: u8, length: usize) -> [Vec<u8>; 2] {
    let frame = [Frame::whole(opcode, vec![b'*'; length])];
    [write_all(&frame, true), write_all(&frame, false)]
}
