//! A test client that writes raw frames to a server. The engine of this server gives every request the same response.

use crate::http1::{Body, Limits, RequestHead};
use crate::http2::{Ended, PREFACE, Server, ServerSettings};
use crate::outgoing::Outgoing;
use crate::stream::Stream;
use std::future::poll_fn;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;
pub(super) const PRIORITISED: u8 = 0x20;
/// Flags of a complete request without a body.
pub(super) const WHOLE: u8 = END_STREAM | END_HEADERS;

pub(super) const NO_ERROR: u32 = 0;
pub(super) const PROTOCOL_ERROR: u32 = 1;
pub(super) const FLOW_CONTROL_ERROR: u32 = 3;
pub(super) const STREAM_CLOSED: u32 = 5;
pub(super) const FRAME_SIZE_ERROR: u32 = 6;
pub(super) const REFUSED_STREAM: u32 = 7;
pub(super) const COMPRESSION_ERROR: u32 = 9;
pub(super) const ENHANCE_YOUR_CALM: u32 = 11;

/// Time limit for each step, long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
const PROBE: [u8; 8] = *b"alive???";
/// Length of the response to `/large`.
pub(super) const LARGE: usize = 2 * 1024 * 1024;
/// A stream number above those that the cases use.
const LATER: u32 = 0x1001;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A literal without indexing, with a new name and no Huffman coding (RFC 7541 section 6.2.2).
pub(super) fn literal(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    for text in [name.as_bytes(), value] {
        assert!(
            text.len() < 127,
            "this encoder writes lengths of one byte only"
        );
        out.push(text.len() as u8);
        out.extend_from_slice(text);
    }
    out
}

/// `GET http://a.test/`, encoded with the static table where possible.
pub(super) fn get() -> Vec<u8> {
    [&[0x82, 0x84, 0x86, 0x01, 6][..], b"a.test"].concat()
}

pub(super) fn post() -> Vec<u8> {
    [&[0x83, 0x84, 0x86, 0x01, 6][..], b"a.test"].concat()
}

pub(super) fn get_with(more: &[u8]) -> Vec<u8> {
    [&get()[..], more].concat()
}

pub(super) fn whole(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, WHOLE, stream, block)
}

pub(super) fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (id, value) in pairs {
        payload.extend_from_slice(&id.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(SETTINGS, 0, 0, &payload)
}

pub(super) fn window_update(stream: u32, by: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

pub(super) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    pub(super) fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }

    pub(super) fn ends(&self, stream: u32) -> bool {
        self.stream == stream && self.kind <= HEADERS && self.flags & END_STREAM != 0
    }
}

pub(super) struct Client {
    pub(super) stream: TcpStream,
    pub(super) server: JoinHandle<Ended>,
}

impl Client {
    /// Connects to a new server and sends nothing.
    pub(super) async fn connect(server: ServerSettings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (accepted, _) = listener.accept().await.unwrap();
        let mut server = Server::new(Stream::Tcp(accepted), Vec::new(), server);
        let server = tokio::spawn(async move {
            poll_fn(|cx| {
                server.poll(cx, |served| {
                    tokio::spawn(engine(Stream::Served(Box::new(served))));
                })
            })
            .await
        });
        Self {
            stream: stream.unwrap(),
            server,
        }
    }

    /// Connects and completes the connection preface of both sides.
    pub(super) async fn open(server: ServerSettings) -> Self {
        let mut client = Self::connect(server).await;
        let hello = [PREFACE, &settings(&[]), &frame(SETTINGS, ACK, 0, b"")].concat();
        client.send(&hello).await;
        loop {
            let frame = client
                .next()
                .await
                .expect("the server must acknowledge the settings");
            if (frame.kind, frame.flags) == (SETTINGS, ACK) {
                return client;
            }
        }
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        // The server may already have closed the connection. `next` still reads its last frames.
        let _ = self.stream.write_all(bytes).await;
    }

    /// Returns the next frame, or `None` at the end of the connection.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        let reading = async {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.stream.read_exact(&mut payload).await?;
            io::Result::Ok(Frame {
                kind: head[3],
                flags: head[4],
                stream: u32::from_be_bytes(head[5..9].try_into().unwrap()) & 0x7fff_ffff,
                payload,
            })
        };
        timeout(LIMIT, reading)
            .await
            .expect("no frame arrived, and the connection stayed open")
            .ok()
    }

    /// Reads up to the first frame that satisfies the condition; returns all frames read.
    pub(super) async fn until(&mut self, condition: impl Fn(&Frame) -> bool) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            let found = condition(&frame);
            frames.push(frame);
            if found {
                return frames;
            }
        }
        panic!("the connection ended after {frames:?}");
    }
}

/// The reaction that a case requires of the server.
#[derive(Debug, Clone, Copy)]
pub(super) enum Want {
    /// GOAWAY with one of the codes, or the end of the connection.
    Connection(&'static [u32]),
    /// RST_STREAM with one of the codes; ending the whole connection is allowed too.
    Stream(&'static [u32]),
    /// RST_STREAM on this stream with PROTOCOL_ERROR, while the connection serves a later stream (RFC 9113 section
    /// 8.1.1).
    Malformed(u32),
    /// A response on this stream.
    Answer(u32),
    /// The connection stays open.
    Alive,
}

pub(super) enum Step {
    Send(Vec<u8>),
    /// Waits for the complete response on a stream.
    Answered(u32),
}

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) steps: Vec<Step>,
    pub(super) want: Want,
}

/// A case with a single write.
pub(super) fn case(name: &'static str, want: Want, frames: &[Vec<u8>]) -> Case {
    Case {
        name,
        steps: vec![Step::Send(frames.concat())],
        want,
    }
}

/// A case that sends its frames after the response on stream 1.
pub(super) fn after_answer(name: &'static str, want: Want, frames: &[Vec<u8>]) -> Case {
    Case {
        name,
        steps: vec![
            Step::Send(whole(1, &get())),
            Step::Answered(1),
            Step::Send(frames.concat()),
        ],
        want,
    }
}

pub(super) async fn check(cases: Vec<Case>) {
    for case in cases {
        let mut client = Client::open(ServerSettings::default()).await;
        for step in case.steps {
            match step {
                Step::Send(bytes) => client.send(&bytes).await,
                Step::Answered(stream) => {
                    client.until(|frame| frame.ends(stream)).await;
                }
            }
        }
        match case.want {
            Want::Alive => client.send(&frame(PING, 0, 0, &PROBE)).await,
            Want::Malformed(_) => client.send(&whole(LATER, &get())).await,
            _ => {}
        }
        let frames = judge(&mut client, case.want).await;
        assert_eq!(frames, None, "{}: {:?}", case.name, case.want);
    }
}

/// Returns `None` if the server reacts as required, else its frames.
async fn judge(client: &mut Client, want: Want) -> Option<Vec<Frame>> {
    let mut frames = Vec::new();
    let mut refused = false;
    loop {
        let Some(frame) = client.next().await else {
            return match want {
                Want::Connection(_) | Want::Stream(_) => None,
                Want::Answer(_) | Want::Alive | Want::Malformed(_) => Some(frames),
            };
        };
        let verdict = match (frame.kind, want) {
            // PROTOCOL_ERROR may replace any other connection error, and `h2` makes use of that.
            (GOAWAY, Want::Connection(codes) | Want::Stream(codes)) => {
                Some(codes.contains(&frame.code()) || frame.code() == PROTOCOL_ERROR)
            }
            (RST_STREAM, Want::Stream(codes)) => Some(codes.contains(&frame.code())),
            (RST_STREAM, Want::Malformed(stream)) if frame.stream == stream => {
                refused = frame.code() == PROTOCOL_ERROR;
                (!refused).then_some(false)
            }
            (HEADERS, Want::Malformed(_)) => Some(refused && frame.stream == LATER),
            (GOAWAY, _) => Some(false),
            (RST_STREAM, Want::Answer(stream)) if frame.stream == stream => Some(false),
            (HEADERS, Want::Answer(stream)) if frame.stream == stream => Some(true),
            (PING, Want::Alive) if frame.payload == PROBE => Some(frame.flags == ACK),
            _ => None,
        };
        frames.push(frame);
        match verdict {
            Some(true) => return None,
            Some(false) => return Some(frames),
            None => {}
        }
    }
}

/// Reads each request completely, then answers it with a body of five bytes. The path `/large` gets [`LARGE`] bytes.
async fn engine(mut stream: Stream) {
    let mut out = Outgoing::default();
    let mut carry = Vec::new();
    while let Some((head, length)) = read_head(&mut stream, &mut carry).await {
        carry.drain(..length);
        let mut body = Body::new(head.framing());
        loop {
            let Ok(taken) = body.consume(&carry) else {
                return;
            };
            carry.drain(..taken);
            if body.is_done() {
                break;
            }
            if !read_more(&mut stream, &mut carry).await {
                return;
            }
        }
        let is_large = head.path() == "/large";
        let size = if is_large { LARGE } else { 5 };
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
        let body = match head.method_bytes() {
            b"HEAD" => Vec::new(),
            _ if is_large => vec![b'x'; LARGE],
            _ => b"hello".to_vec(),
        };
        let answer = answer.as_bytes();
        let sent = poll_fn(|cx| std::task::Poll::Ready(out.send(&mut stream, cx, answer, &body)));
        if sent.await.is_err() || poll_fn(|cx| out.poll_flush(&mut stream, cx)).await.is_err() {
            return;
        }
    }
}

async fn read_head(stream: &mut Stream, carry: &mut Vec<u8>) -> Option<(RequestHead, usize)> {
    loop {
        if let Some(head) = RequestHead::parse(carry, &Limits::default()).ok()? {
            return Some(head);
        }
        if !read_more(stream, carry).await {
            return None;
        }
    }
}

async fn read_more(stream: &mut Stream, carry: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 4096];
    match poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await {
        Ok(read) if read > 0 => {
            carry.extend_from_slice(&buffer[..read]);
            true
        }
        _ => false,
    }
}
