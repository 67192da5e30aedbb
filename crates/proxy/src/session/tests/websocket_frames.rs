//! Tests that WebSocket frames of every kind are forwarded unchanged, in pieces of various sizes and in both directions
//! at once. The cases follow the Autobahn suite and RFC 6455 (sections 5 to 8). Some frames are invalid, because the
//! gateway does not validate frames.

use super::websocket::{ASK, SWITCH};
use super::*;
use std::cell::Cell;

pub(super) const CONTINUATION: u8 = 0;
pub(super) const TEXT: u8 = 1;
pub(super) const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
pub(super) const FIN: u8 = 0x80;

/// A frame (RFC 6455 section 5.2).
#[derive(Clone)]
pub(super) struct Frame {
    /// FIN, the reserved bits and the opcode.
    pub(super) first: u8,
    payload: Vec<u8>,
}

impl Frame {
    pub(super) fn new(first: u8, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            first,
            payload: payload.into(),
        }
    }

    pub(super) fn whole(opcode: u8, payload: impl Into<Vec<u8>>) -> Self {
        Self::new(FIN | opcode, payload)
    }

    /// Writes the frame. Frames of a client have a mask, frames of a server have none.
    fn write(&self, mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
        let masked = if mask.is_some() { 0x80 } else { 0 };
        out.push(self.first);
        match self.payload.len() {
            length @ 0..=125 => out.push(masked | length as u8),
            length @ 126..=65535 => {
                out.push(masked | 126);
                out.extend((length as u16).to_be_bytes());
            }
            length => {
                out.push(masked | 127);
                out.extend((length as u64).to_be_bytes());
            }
        }
        let mask = mask.inspect(|mask| out.extend(mask)).unwrap_or_default();
        let masked = self.payload.iter().zip(mask.iter().cycle());
        out.extend(masked.map(|(byte, key)| byte ^ key));
    }
}

/// Encodes consecutive frames of a client or a server.
pub(super) fn write_all(frames: &[Frame], masked: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        let mask = (number as u32).wrapping_mul(0x9e37_79b9).to_be_bytes();
        frame.write(masked.then_some(mask), &mut bytes);
    }
    bytes
}

pub(super) struct Case {
    pub(super) name: String,
    frames: Vec<Frame>,
    /// Number of bytes written at once.
    pub(super) piece: usize,
}

fn case(name: impl Into<String>, frames: Vec<Frame>) -> Case {
    Case {
        name: name.into(),
        frames,
        piece: usize::MAX,
    }
}

/// Section 5.6: text and binary messages of the sizes at which the header changes, whole and in pieces.
pub(super) fn messages() -> Vec<Case> {
    let sizes = [0, 1, 124, 125, 126, 127, 128, 65535, 65536, 65537];
    let mut cases = Vec::new();
    for (opcode, name) in [(TEXT, "text"), (BINARY, "binary")] {
        for size in sizes {
            for piece in [usize::MAX, 997, 1] {
                if piece == 1 && size > 128 {
                    continue;
                }
                cases.push(Case {
                    piece,
                    ..case(
                        format!("{name} of {size} in pieces of {piece}"),
                        vec![Frame::whole(opcode, vec![b'*'; size])],
                    )
                });
            }
        }
    }
    cases
}

/// Sections 5.5.2 and 5.5.3: pings and pongs.
pub(super) fn pings() -> Vec<Case> {
    let mut cases = Vec::new();
    for (opcode, name) in [(PING, "ping"), (PONG, "pong")] {
        for payload in [
            vec![],
            b"Hello".to_vec(),
            vec![0, 0xff, 0xfe, 0xfd, 0xfc, 0xfb],
            vec![0xfe; 125],
            // Longer than allowed. The gateway leaves this check to the endpoints.
            vec![0xfe; 126],
        ] {
            for count in [1, 2, 10] {
                cases.push(case(
                    format!("{count} times {name} of {}", payload.len()),
                    vec![Frame::whole(opcode, payload.clone()); count],
                ));
            }
        }
        cases.push(Case {
            piece: 1,
            ..case(
                format!("{name} byte by byte"),
                vec![Frame::whole(opcode, vec![7; 125]); 2],
            )
        });
    }
    cases
}

/// Section 5.2: reserved bits and opcodes, between valid messages. The gateway forwards them like others.
pub(super) fn reserved() -> Vec<Case> {
    let mut cases = Vec::new();
    let hello = || Frame::whole(TEXT, "Hello");
    for bits in 1..8 {
        for opcode in [TEXT, BINARY, CLOSE, PING, PONG] {
            cases.push(case(
                format!("reserved bits {bits} with opcode {opcode}"),
                vec![
                    hello(),
                    Frame::new(FIN | bits << 4 | opcode, "x"),
                    Frame::whole(PING, ""),
                ],
            ));
        }
    }
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        for payload in ["", "reserved opcode payload"] {
            for fin in [0, FIN] {
                cases.push(case(
                    format!("opcode {opcode} of {} with {fin}", payload.len()),
                    vec![
                        hello(),
                        Frame::new(fin | opcode, payload),
                        Frame::whole(PING, ""),
                    ],
                ));
            }
        }
    }
    cases
}

/// Section 5.4: fragments, control frames between them, and frames that are not allowed between them.
pub(super) fn fragments() -> Vec<Case> {
    let mut cases = Vec::new();
    for count in [1, 2, 3, 10, 100] {
        for (control, name) in [
            (None, "nothing"),
            (Some(PING), "pings"),
            (Some(PONG), "pongs"),
            (Some(TEXT), "texts"),
        ] {
            for piece in [usize::MAX, 5] {
                let mut frames = vec![Frame::new(TEXT, "begin")];
                for number in 0..count {
                    frames.extend(control.map(|opcode| Frame::whole(opcode, "between")));
                    let last = if number + 1 == count { FIN } else { 0 };
                    frames.push(Frame::new(
                        last | CONTINUATION,
                        format!("fragment {number}"),
                    ));
                }
                cases.push(Case {
                    piece,
                    ..case(
                        format!("{count} fragments with {name} in pieces of {piece}"),
                        frames,
                    )
                });
            }
        }
    }
    for fin in [0, FIN] {
        cases.push(case(
            format!("continuation of nothing with {fin}"),
            vec![
                Frame::new(fin | CONTINUATION, "non-continuation"),
                Frame::whole(TEXT, "Hello"),
            ],
        ));
        cases.push(case(
            format!("fragmented ping with {fin}"),
            vec![
                Frame::new(PING, "frag"),
                Frame::new(fin | CONTINUATION, "ment"),
            ],
        ));
    }
    cases
}

/// Section 8.1: valid and invalid UTF-8. Each text is sent in one frame, in frames of one byte, and byte by byte.
pub(super) fn texts() -> Vec<Case> {
    let texts: &[&[u8]] = &[
        b"Hello-\xc2\xb5@\xc3\x9f\xc3\xb6\xc3\xa4\xc3\xbc\xc3\xa0\xc3\xa1-UTF-8!!",
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5",
        // The first and last code point of each length, the neighbours of the surrogates, and a code point above the
        // maximum.
        b"\x00",
        b"\x7f",
        b"\xc2\x80",
        b"\xdf\xbf",
        b"\xe0\xa0\x80",
        b"\xef\xbf\xbf",
        b"\xf0\x90\x80\x80",
        b"\xf4\x8f\xbf\xbf",
        b"\xed\x9f\xbf",
        b"\xee\x80\x80",
        b"\xef\xbf\xbd",
        b"\xf4\x90\x80\x80",
        // Sequences of five and six bytes, which UTF-8 no longer allows, and invalid first bytes.
        b"\xf8\x88\x80\x80\x80",
        b"\xfc\x84\x80\x80\x80\x80",
        b"\xf7\xbf\xbf\xbf",
        b"\xfb\xbf\xbf\xbf\xbf",
        b"\xfd\xbf\xbf\xbf\xbf\xbf",
        b"\xfe",
        b"\xff",
        b"\xfe\xfe\xff\xff",
        // Continuation bytes alone, and sequences with too few continuation bytes.
        b"\x80",
        b"\xbf",
        b"\x80\xbf",
        b"\x80\xbf\x80\xbf\x80\xbf",
        b"\xc0",
        b"\xe0\x80",
        b"\xf0\x80\x80",
        b"\xdf",
        b"\xef\xbf",
        b"\xf7\xbf\xbf",
        b"\xc0 \xc1 \xc2 \xc3 ",
        b"\xe0 \xe1 \xe2 ",
        b"\xf0 \xf1 \xf2 ",
        // Overlong encodings.
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\xaf",
        b"\xf8\x80\x80\x80\xaf",
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",
        b"\xf0\x8f\xbf\xbf",
        b"\xc0\x80",
        b"\xe0\x80\x80",
        b"\xf0\x80\x80\x80",
        // Surrogates, alone and in pairs.
        b"\xed\xa0\x80",
        b"\xed\xad\xbf",
        b"\xed\xae\x80",
        b"\xed\xaf\xbf",
        b"\xed\xb0\x80",
        b"\xed\xbe\x80",
        b"\xed\xbf\xbf",
        b"\xed\xa0\x80\xed\xb0\x80",
        b"\xed\xaf\xbf\xed\xbf\xbf",
        // Noncharacters, which are valid.
        b"\xef\xbf\xbe",
        b"\xf0\x9f\xbf\xbe",
        b"\xf0\xaf\xbf\xbf",
        b"\xf3\xbf\xbf\xbf",
        b"\xf4\x8f\xbf\xbe",
    ];
    let mut cases = Vec::new();
    for text in texts {
        cases.push(case(
            format!("text {text:02x?}"),
            vec![Frame::whole(TEXT, *text)],
        ));
        let mut frames: Vec<Frame> = text
            .iter()
            .map(|byte| Frame::new(CONTINUATION, [*byte]))
            .collect();
        frames[0].first = TEXT;
        frames.push(Frame::whole(CONTINUATION, ""));
        cases.push(case(
            format!("text {text:02x?} in frames of one byte"),
            frames.clone(),
        ));
        cases.push(Case {
            piece: 1,
            ..case(
                format!("text {text:02x?} in frames of one byte, byte by byte"),
                frames,
            )
        });
    }
    cases
}

/// Section 7.4: valid and invalid close codes, with and without a reason, and frames after a close.
pub(super) fn closes() -> Vec<Case> {
    let codes = [
        0u16, 999, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011, 1012,
        1013, 1014, 1015, 1016, 1100, 2000, 2999, 3000, 3999, 4000, 4999, 5000, 65535,
    ];
    let mut cases = Vec::new();
    for code in codes {
        for reason in ["", "Hello World!"] {
            let payload = [&code.to_be_bytes(), reason.as_bytes()].concat();
            cases.push(case(
                format!("close {code} {reason:?}"),
                vec![Frame::whole(CLOSE, payload)],
            ));
        }
    }
    for payload in [
        vec![],
        vec![3],
        vec![3; 125],
        vec![3; 126],
        b"\x03\xe8\xce\xba\xf4\x90".to_vec(),
    ] {
        let close = Frame::whole(CLOSE, payload);
        let length = close.payload.len();
        for (name, after) in [
            ("nothing", vec![]),
            ("a ping", vec![Frame::whole(PING, "")]),
            ("a text", vec![Frame::whole(TEXT, "x")]),
            ("another close", vec![close.clone()]),
        ] {
            let frames = [vec![close.clone()], after].concat();
            cases.push(case(format!("close of {length}, then {name}"), frames));
        }
    }
    cases.push(case(
        "a close in the middle of a message",
        vec![
            Frame::new(TEXT, "fragment"),
            Frame::whole(CLOSE, 1000u16.to_be_bytes()),
            Frame::whole(CONTINUATION, "late"),
        ],
    ));
    cases
}

/// Large messages: whole, in fragments, and in pieces.
pub(super) fn sizes() -> Vec<Case> {
    let mut cases = Vec::new();
    for (opcode, name) in [(TEXT, "text"), (BINARY, "binary")] {
        for power in [18, 20, 22, 24] {
            let size = 1usize << power;
            cases.push(case(
                format!("{name} of {size}"),
                vec![Frame::whole(opcode, vec![b'*'; size])],
            ));
        }
        for power in [6, 8, 10, 12, 14, 16, 18] {
            let fragment = vec![b'*'; 1 << power];
            let mut frames = vec![Frame::new(opcode, fragment.clone())];
            frames.resize(
                (1 << 20) >> power,
                Frame::new(CONTINUATION, fragment.clone()),
            );
            frames.push(Frame::whole(CONTINUATION, ""));
            cases.push(case(
                format!("{name} of a MiB in fragments of {}", fragment.len()),
                frames,
            ));
            cases.push(Case {
                piece: fragment.len(),
                ..case(
                    format!("{name} of a MiB in pieces of {}", fragment.len()),
                    vec![Frame::whole(opcode, vec![b'*'; 1 << 20])],
                )
            });
        }
    }
    for size in [0, 16, 64, 256, 1024, 4096, 16384] {
        cases.push(case(
            format!("a hundred messages of {size}"),
            vec![Frame::whole(BINARY, vec![1; size]); 100],
        ));
    }
    cases
}

/// Sends `send` in pieces while reading, until `expected` bytes have arrived. Returns the bytes read, which begin with
/// `before`.
pub(super) async fn play(
    stream: &mut TcpStream,
    before: &[u8],
    send: &[u8],
    piece: usize,
    expected: usize,
) -> Vec<u8> {
    let (mut reading, mut writing) = stream.split();
    let mut got = before.to_vec();
    let write = async {
        for piece in send.chunks(piece.max(1)) {
            writing.write_all(piece).await.unwrap();
            if piece.len() < 1024 {
                // Lets the gateway read this piece alone.
                tokio::task::yield_now().await;
            }
        }
    };
    let read = async {
        while got.len() < expected {
            assert!(
                reading.read_buf(&mut got).await.unwrap() > 0,
                "closed early"
            );
        }
    };
    tokio::join!(write, read);
    got
}

pub(super) fn all<const N: usize>(groups: [Vec<Case>; N]) -> Vec<Case> {
    groups.into_iter().flatten().collect()
}

/// The bytes that client and upstream send in each case, and the scripts of the upstreams.
pub(super) struct Play {
    /// Bytes from the client and from the server.
    pub(super) bytes: Vec<[Rc<Vec<u8>>; 2]>,
    pub(super) scripts: Vec<Script>,
    /// Number of upstreams that have read the expected bytes. Tests must check it, because a panic in a script does not
    /// fail a test.
    pub(super) arrived: Rc<Cell<usize>>,
}

impl Play {
    pub(super) fn of(cases: &[Case]) -> Self {
        let arrived = Rc::new(Cell::new(0));
        let mut play = Self {
            bytes: Vec::new(),
            scripts: Vec::new(),
            arrived: arrived.clone(),
        };
        for case in cases {
            let up = Rc::new(write_all(&case.frames, true));
            let down = Rc::new(write_all(&case.frames, false));
            play.bytes.push([up.clone(), down.clone()]);
            play.scripts
                .push(upstream_end(case, up, down, arrived.clone()));
        }
        play
    }
}

fn upstream_end(
    case: &Case,
    up: Rc<Vec<u8>>,
    down: Rc<Vec<u8>>,
    arrived: Rc<Cell<usize>>,
) -> Script {
    let (name, piece) = (case.name.clone(), case.piece);
    script(move |mut peer: Peer| async move {
        peer.head().await;
        peer.send(SWITCH).await;
        let before = std::mem::take(&mut peer.read);
        let got = play(&mut peer.stream, &before, &down, piece, up.len()).await;
        assert!(got == *up, "{name}: changed on the way up");
        arrived.set(arrived.get() + 1);
        peer.stream.shutdown().await.unwrap();
        peer.rest().await;
    })
}

async fn check(cases: Vec<Case>, least: usize) {
    assert!(cases.len() >= least, "only {} cases", cases.len());
    let Play {
        bytes,
        scripts,
        arrived,
    } = Play::of(&cases);
    let gateway = Setup::new(upstream(scripts).await).start();
    for (case, [up, down]) in cases.iter().zip(bytes) {
        let mut client = gateway.client().await;
        client.send(ASK).await;
        assert_eq!(status(&client.head().await), "101", "{}", case.name);
        let before = std::mem::take(&mut client.read);
        let got = play(&mut client.stream, &before, &up, case.piece, down.len()).await;
        assert!(got == *down, "{}: changed on the way down", case.name);
        assert_eq!(client.rest().await, "", "{}", case.name);
    }
    assert_eq!(arrived.get(), cases.len());
}

#[test]
fn frames_of_every_kind_pass_untouched() {
    run(check(
        all([messages(), pings(), reserved(), fragments()]),
        200,
    ));
}

#[test]
fn texts_and_closes_pass_untouched() {
    run(check(all([texts(), closes()]), 240));
}

#[test]
fn messages_up_to_16_mib_pass_untouched() {
    run(check(sizes(), 40));
}
