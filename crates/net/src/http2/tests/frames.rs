//! Tests of RFC 9113 sections 3 to 7: connections, frames, streams and flow control.

use super::client::*;
use crate::http2::{PREFACE, ServerSettings};

const GONE: Want = Want::Connection(&[PROTOCOL_ERROR]);
const FRAME_SIZE: Want = Want::Connection(&[FRAME_SIZE_ERROR]);

fn headers(flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(HEADERS, flags, stream, payload)
}

/// Creates a HEADERS frame of a POST request whose body is still to come.
fn begun(stream: u32) -> Vec<u8> {
    headers(END_HEADERS, stream, &post())
}

fn data(flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(DATA, flags, stream, payload)
}

/// Builds the priority fields of a frame: the stream that it depends on, and the weight.
fn dependency(on: u32, weight: u8) -> Vec<u8> {
    [&on.to_be_bytes()[..], &[weight]].concat()
}

fn priority(stream: u32, on: u32) -> Vec<u8> {
    frame(PRIORITY, 0, stream, &dependency(on, 15))
}

fn padded(length: u8, block: &[u8]) -> Vec<u8> {
    [&[length][..], block, &vec![0; length.into()]].concat()
}

#[tokio::test]
async fn section_3_4_preface() {
    let mut client = Client::connect(ServerSettings::default()).await;
    client.send(&[PREFACE, &settings(&[])].concat()).await;
    let first = client.next().await.unwrap();
    assert_eq!((first.kind, first.flags, first.stream), (SETTINGS, 0, 0));
    for wrong in [
        &b"INVALID CONNECTION PREFACE\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\x0b",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client = Client::connect(ServerSettings::default()).await;
        client.send(wrong).await;
        while let Some(frame) = client.next().await {
            assert!(matches!(frame.kind, SETTINGS | GOAWAY), "{frame:?}");
        }
    }
}

#[tokio::test]
async fn section_4_1_frame_format() {
    check(vec![
        case(
            "unknown type",
            Want::Alive,
            &[frame(0x16, 0, 0, b"12345678")],
        ),
        case(
            "unknown type on a stream",
            Want::Alive,
            &[frame(0xff, 0xff, 7, b"")],
        ),
        case(
            "undefined flags of PING",
            Want::Alive,
            &[frame(PING, 0x16, 0, b"12345678")],
        ),
        case(
            "reserved bit of the stream",
            Want::Alive,
            &[frame(PING, 0, 0x8000_0000, b"12345678")],
        ),
        case(
            "undefined flags of HEADERS",
            Want::Answer(1),
            &[headers(WHOLE | 0xd2, 1, &get())],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_4_2_frame_size() {
    let large = vec![0; 16_385];
    check(vec![
        case(
            "2^14 bytes of data",
            Want::Answer(1),
            &[begun(1), data(END_STREAM, 1, &vec![0; 16_384])],
        ),
        case(
            "more data",
            FRAME_SIZE,
            &[begun(1), data(END_STREAM, 1, &large)],
        ),
        case("more headers", FRAME_SIZE, &[headers(WHOLE, 1, &large)]),
        case(
            "more settings",
            FRAME_SIZE,
            &[frame(SETTINGS, 0, 0, &vec![0; 16_386])],
        ),
        case(
            "more of an unknown type",
            FRAME_SIZE,
            &[frame(0x20, 0, 0, &large)],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_4_3_field_blocks() {
    let half = headers(0, 1, &get());
    check(vec![
        case(
            "no field block",
            Want::Connection(&[COMPRESSION_ERROR]),
            &[headers(WHOLE, 1, &[0x40])],
        ),
        case("PRIORITY between", GONE, &[half.clone(), priority(1, 0)]),
        case(
            "HEADERS of another between",
            GONE,
            &[half.clone(), whole(3, &get())],
        ),
        case("DATA between", GONE, &[half.clone(), data(0, 1, b"x")]),
        case(
            "PING between",
            GONE,
            &[half.clone(), frame(PING, 0, 0, &[0; 8])],
        ),
        case("SETTINGS between", GONE, &[half.clone(), settings(&[])]),
        case(
            "WINDOW_UPDATE between",
            GONE,
            &[half.clone(), window_update(0, 1)],
        ),
        case("RST_STREAM between", GONE, &[half.clone(), reset(1, 0)]),
        case("unknown between", GONE, &[half, frame(0x30, 0, 0, b"")]),
    ])
    .await;
}

#[tokio::test]
async fn section_5_1_idle_streams() {
    check(vec![
        case("DATA", GONE, &[data(END_STREAM, 1, b"x")]),
        case("RST_STREAM", GONE, &[reset(1, 8)]),
        case("WINDOW_UPDATE", GONE, &[window_update(1, 100)]),
        case(
            "CONTINUATION",
            GONE,
            &[frame(CONTINUATION, END_HEADERS, 1, &get())],
        ),
        case(
            "PRIORITY",
            Want::Answer(3),
            &[priority(1, 0), whole(3, &get())],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_5_1_half_closed_streams() {
    const CLOSED: Want = Want::Stream(&[STREAM_CLOSED]);
    // A window of zero holds the response back, so that the stream stays half-closed.
    let shut = || settings(&[(4, 0)]);
    let one = || whole(1, &get());
    check(vec![
        case("DATA", CLOSED, &[shut(), one(), data(END_STREAM, 1, b"x")]),
        case("HEADERS", CLOSED, &[shut(), one(), one()]),
        case(
            "CONTINUATION",
            Want::Stream(&[STREAM_CLOSED, PROTOCOL_ERROR]),
            &[shut(), one(), frame(CONTINUATION, END_HEADERS, 1, &get())],
        ),
        case(
            "WINDOW_UPDATE",
            Want::Answer(1),
            &[shut(), one(), window_update(1, 9)],
        ),
        case(
            "PRIORITY",
            Want::Answer(1),
            &[shut(), one(), priority(1, 0)],
        ),
        case("RST_STREAM", Want::Alive, &[shut(), one(), reset(1, 8)]),
    ])
    .await;
}

#[tokio::test]
async fn section_5_1_closed_streams() {
    const CLOSED: Want = Want::Stream(&[STREAM_CLOSED]);
    const EITHER: Want = Want::Stream(&[STREAM_CLOSED, PROTOCOL_ERROR]);
    check(vec![
        case(
            "DATA after RST_STREAM",
            CLOSED,
            &[begun(1), reset(1, 8), data(END_STREAM, 1, b"x")],
        ),
        case(
            "HEADERS after RST_STREAM",
            CLOSED,
            &[begun(1), reset(1, 8), whole(1, &get())],
        ),
        case(
            "CONTINUATION after RST_STREAM",
            EITHER,
            &[
                begun(1),
                reset(1, 8),
                frame(CONTINUATION, END_HEADERS, 1, &get()),
            ],
        ),
        after_answer("DATA", CLOSED, &[data(END_STREAM, 1, b"x")]),
        after_answer("HEADERS", CLOSED, &[whole(1, &get())]),
        after_answer(
            "CONTINUATION",
            EITHER,
            &[frame(CONTINUATION, END_HEADERS, 1, &get())],
        ),
        after_answer(
            "PRIORITY",
            Want::Answer(3),
            &[priority(1, 0), whole(3, &get())],
        ),
        after_answer("WINDOW_UPDATE", Want::Alive, &[window_update(1, 5)]),
        after_answer("RST_STREAM", Want::Alive, &[reset(1, 8)]),
    ])
    .await;
}

#[tokio::test]
async fn section_5_1_1_stream_identifiers() {
    check(vec![
        case("even", GONE, &[whole(2, &get())]),
        case("smaller", GONE, &[whole(5, &get()), whole(3, &get())]),
        case("skipping", Want::Answer(9), &[whole(9, &get())]),
        case(
            "the last",
            Want::Answer(0x7fff_ffff),
            &[whole(0x7fff_ffff, &get())],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_5_1_2_concurrency() {
    let many: Vec<_> = (0..129).map(|number| begun(number * 2 + 1)).collect();
    let refused = Want::Stream(&[PROTOCOL_ERROR, REFUSED_STREAM]);
    check(vec![
        case("one more than allowed", refused, &many),
        case("as many as allowed", Want::Alive, &many[..128]),
    ])
    .await;
}

#[tokio::test]
async fn section_5_3_priorities() {
    let with = |on: u32, weight| [&dependency(on, weight)[..], &get()].concat();
    let all = WHOLE | PRIORITISED;
    const ITSELF: Want = Want::Stream(&[PROTOCOL_ERROR]);
    check(vec![
        case(
            "HEADERS on itself",
            ITSELF,
            &[headers(all, 1, &with(1, 15))],
        ),
        case("PRIORITY on itself", ITSELF, &[begun(1), priority(1, 1)]),
        case("HEADERS", Want::Answer(1), &[headers(all, 1, &with(0, 15))]),
        case(
            "on a later stream",
            Want::Answer(1),
            &[headers(all, 1, &with(9, 0))],
        ),
        case(
            "exclusive",
            Want::Answer(3),
            &[headers(all, 3, &with(0x8000_0001, 255))],
        ),
        case(
            "no weight",
            Want::Answer(3),
            &[priority(3, 0x8000_0000), whole(3, &get())],
        ),
        case(
            "later, then lower",
            Want::Answer(3),
            &[priority(5, 0), whole(3, &get())],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_5_5_extensions() {
    check(vec![
        case(
            "unknown on the connection",
            Want::Alive,
            &[frame(0x66, 0x55, 0, &[7; 300])],
        ),
        case(
            "unknown on an open stream",
            Want::Answer(1),
            &[
                begun(1),
                frame(0x66, 0x5, 1, b"x"),
                data(END_STREAM, 1, b"x"),
            ],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_6_1_data() {
    check(vec![
        case(
            "one",
            Want::Answer(1),
            &[begun(1), data(END_STREAM, 1, b"test")],
        ),
        case(
            "several",
            Want::Answer(1),
            &[
                begun(1),
                data(0, 1, b"te"),
                data(0, 1, b""),
                data(END_STREAM, 1, b"st"),
            ],
        ),
        case(
            "padded",
            Want::Answer(1),
            &[begun(1), data(END_STREAM | PADDED, 1, &padded(6, b"test"))],
        ),
        case(
            "padding only",
            Want::Answer(1),
            &[begun(1), data(END_STREAM | PADDED, 1, &padded(255, b""))],
        ),
        case("stream 0", GONE, &[begun(1), data(END_STREAM, 0, b"x")]),
        case(
            "more padding than payload",
            GONE,
            &[begun(1), data(END_STREAM | PADDED, 1, b"\x06test")],
        ),
        case(
            "no room for the padding",
            GONE,
            &[begun(1), data(PADDED, 1, b"")],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_6_2_headers() {
    check(vec![
        case("plain", Want::Answer(1), &[whole(1, &get())]),
        case(
            "padded",
            Want::Answer(1),
            &[headers(WHOLE | PADDED, 1, &padded(9, &get()))],
        ),
        case(
            "padded with a priority",
            Want::Answer(1),
            &[headers(
                WHOLE | PADDED | PRIORITISED,
                1,
                &padded(4, &[&dependency(0, 1)[..], &get()].concat()),
            )],
        ),
        case("stream 0", GONE, &[whole(0, &get())]),
        case(
            "more padding than payload",
            GONE,
            &[headers(WHOLE | PADDED, 1, &[&[200], &get()[..]].concat())],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_6_3_priority() {
    let short = Want::Stream(&[FRAME_SIZE_ERROR]);
    check(vec![
        case("stream 0", GONE, &[priority(0, 1)]),
        case(
            "four bytes",
            short,
            &[begun(1), frame(PRIORITY, 0, 1, &[0; 4])],
        ),
        case(
            "six bytes",
            short,
            &[begun(1), frame(PRIORITY, 0, 1, &[0; 6])],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_6_4_rst_stream() {
    check(vec![
        case("stream 0", GONE, &[reset(0, 8)]),
        case("idle", GONE, &[reset(1, 8)]),
        case(
            "three bytes",
            FRAME_SIZE,
            &[begun(1), frame(RST_STREAM, 0, 1, &[0; 3])],
        ),
        case(
            "five bytes",
            FRAME_SIZE,
            &[begun(1), frame(RST_STREAM, 0, 1, &[0; 5])],
        ),
        case("open", Want::Alive, &[begun(1), reset(1, 8)]),
        case("unknown code", Want::Alive, &[begun(1), reset(1, 0xff)]),
    ])
    .await;
}

#[tokio::test]
async fn section_6_5_settings() {
    let gone_by_window = Want::Connection(&[FLOW_CONTROL_ERROR]);
    check(vec![
        case(
            "ACK with payload",
            FRAME_SIZE,
            &[frame(SETTINGS, ACK, 0, &[0; 6])],
        ),
        case(
            "on a stream",
            GONE,
            &[frame(SETTINGS, 0, 1, &[0, 3, 0, 0, 0, 100])],
        ),
        case(
            "five bytes",
            FRAME_SIZE,
            &[frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0])],
        ),
        case("seven bytes", FRAME_SIZE, &[frame(SETTINGS, 0, 0, &[0; 7])]),
        case("push neither on nor off", GONE, &[settings(&[(2, 2)])]),
        case(
            "window too large",
            gone_by_window,
            &[settings(&[(4, 1 << 31)])],
        ),
        case("frames too small", GONE, &[settings(&[(5, 16_383)])]),
        case("frames too large", GONE, &[settings(&[(5, 1 << 24)])]),
        case(
            "extended CONNECT neither on nor off",
            GONE,
            &[settings(&[(8, 2)])],
        ),
        case("unknown", Want::Alive, &[settings(&[(0xff, 1)])]),
        case(
            "all",
            Want::Answer(1),
            &[
                settings(&[
                    (1, 100),
                    (2, 0),
                    (3, 100),
                    (4, 65_536),
                    (5, 16_384),
                    (6, 100),
                ]),
                whole(1, &get()),
            ],
        ),
        case(
            "push off and on",
            Want::Alive,
            &[settings(&[(2, 0)]), settings(&[(2, 1)])],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_6_5_3_settings_are_applied_in_order_and_acknowledged() {
    let mut client = Client::open(ServerSettings::default()).await;
    client.send(&settings(&[(4, 100), (4, 1)])).await;
    client
        .until(|frame| (frame.kind, frame.flags) == (SETTINGS, ACK))
        .await;
    client.send(&whole(1, &get())).await;
    let frames = client.until(|frame| frame.kind == DATA).await;
    assert_eq!(
        frames.last().unwrap().payload,
        b"h",
        "the last value counts"
    );
}

#[tokio::test]
async fn section_6_6_push_promise() {
    let promise = [&2u32.to_be_bytes()[..], &get()].concat();
    check(vec![
        case(
            "from a client",
            GONE,
            &[
                whole(1, &get()),
                frame(PUSH_PROMISE, END_HEADERS, 1, &promise),
            ],
        ),
        case(
            "on an idle stream",
            GONE,
            &[frame(PUSH_PROMISE, END_HEADERS, 1, &promise)],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_6_7_ping() {
    let mut client = Client::open(ServerSettings::default()).await;
    client.send(&frame(PING, 0, 0, b"12345678")).await;
    let frames = client.until(|frame| frame.kind == PING).await;
    let pong = frames.last().unwrap();
    assert_eq!((pong.flags, &pong.payload[..]), (ACK, &b"12345678"[..]));
    check(vec![
        case(
            "an answer to none",
            Want::Alive,
            &[frame(PING, ACK, 0, b"invalid!")],
        ),
        case("on a stream", GONE, &[frame(PING, 0, 1, &[0; 8])]),
        case("six bytes", FRAME_SIZE, &[frame(PING, 0, 0, &[0; 6])]),
        case("nine bytes", FRAME_SIZE, &[frame(PING, 0, 0, &[0; 9])]),
    ])
    .await;
}

#[tokio::test]
async fn section_6_8_goaway() {
    let goaway = |stream, code: u32| {
        frame(
            GOAWAY,
            0,
            stream,
            &[&0u32.to_be_bytes()[..], &code.to_be_bytes()].concat(),
        )
    };
    check(vec![
        case("on a stream", GONE, &[goaway(1, 0)]),
        case("none", Want::Connection(&[NO_ERROR]), &[goaway(0, 0)]),
        case(
            "unknown code",
            Want::Connection(&[NO_ERROR, 0xff]),
            &[goaway(0, 0xff)],
        ),
        case(
            "with a stream to finish",
            Want::Answer(1),
            &[whole(1, &get()), goaway(0, 0)],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_6_9_window_update() {
    let overflow = Want::Stream(&[FLOW_CONTROL_ERROR]);
    let most = 0x7fff_ffff;
    check(vec![
        case("by nothing", GONE, &[window_update(0, 0)]),
        case(
            "by nothing on a stream",
            Want::Stream(&[PROTOCOL_ERROR]),
            &[begun(1), window_update(1, 0)],
        ),
        case(
            "three bytes",
            FRAME_SIZE,
            &[frame(WINDOW_UPDATE, 0, 0, &[0; 3])],
        ),
        case(
            "five bytes",
            FRAME_SIZE,
            &[frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 0, 1])],
        ),
        case("of the connection", Want::Alive, &[window_update(0, 1)]),
        case(
            "of a stream",
            Want::Answer(1),
            &[begun(1), window_update(1, 1), data(END_STREAM, 1, b"")],
        ),
        case(
            "beyond 2^31-1",
            Want::Connection(&[FLOW_CONTROL_ERROR]),
            &[window_update(0, most), window_update(0, most)],
        ),
        case(
            "beyond 2^31-1 on a stream",
            overflow,
            &[begun(1), window_update(1, most), window_update(1, most)],
        ),
        case(
            "settings beyond 2^31-1",
            Want::Connection(&[FLOW_CONTROL_ERROR]),
            &[begun(1), window_update(1, 65_536), settings(&[(4, most)])],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_6_9_1_windows_are_respected() {
    let mut client = Client::open(ServerSettings::default()).await;
    client
        .send(&[settings(&[(4, 1)]), whole(1, &get())].concat())
        .await;
    let mut received = Vec::new();
    while received.len() < 5 {
        let frames = client.until(|frame| frame.kind == DATA).await;
        let payload = &frames.last().unwrap().payload;
        assert_eq!(payload.len(), 1);
        received.extend_from_slice(payload);
        client.send(&window_update(1, 1)).await;
    }
    assert_eq!(received, b"hello");
}

#[tokio::test]
async fn section_6_9_2_a_window_may_become_negative() {
    let mut client = Client::open(ServerSettings::default()).await;
    client
        .send(&[settings(&[(4, 3)]), whole(1, &get())].concat())
        .await;
    let frames = client.until(|frame| frame.kind == DATA).await;
    assert_eq!(frames.last().unwrap().payload, b"hel");
    // The settings lower the window from 0 to -3 bytes; then the update raises it to 1 byte.
    client
        .send(&[settings(&[(4, 0)]), window_update(1, 4)].concat())
        .await;
    let frames = client.until(|frame| frame.kind == DATA).await;
    assert_eq!(frames.last().unwrap().payload, b"l");
    client.send(&settings(&[(4, 100)])).await;
    client.until(|frame| frame.ends(1)).await;
}

#[tokio::test]
async fn section_6_10_continuation() {
    let (first, second) = (get()[..3].to_vec(), get()[3..].to_vec());
    let more = |flags, stream, block: &[u8]| frame(CONTINUATION, flags, stream, block);
    let half = headers(END_STREAM, 1, &first);
    check(vec![
        case(
            "one",
            Want::Answer(1),
            &[half.clone(), more(END_HEADERS, 1, &second)],
        ),
        case(
            "several",
            Want::Answer(1),
            &[
                half.clone(),
                more(0, 1, &second[..1]),
                more(0, 1, b""),
                more(END_HEADERS, 1, &second[1..]),
            ],
        ),
        case(
            "then another frame",
            GONE,
            &[half.clone(), more(0, 1, &second), data(0, 1, b"x")],
        ),
        case(
            "stream 0",
            GONE,
            &[half.clone(), more(END_HEADERS, 0, &second)],
        ),
        case(
            "another stream",
            GONE,
            &[half.clone(), more(END_HEADERS, 3, &second)],
        ),
        case(
            "after the end",
            GONE,
            &[begun(1), more(END_HEADERS, 1, &second)],
        ),
        case(
            "after the end of one",
            GONE,
            &[
                half,
                more(END_HEADERS, 1, &second),
                more(END_HEADERS, 1, &second),
            ],
        ),
        case(
            "after DATA",
            GONE,
            &[begun(1), data(0, 1, b"x"), more(END_HEADERS, 1, &second)],
        ),
    ])
    .await;
}
