//! The event socket. The tests use a store without a gateway.

use admin::events::wire::{self, Frame, HEARTBEAT, Head, MAX_FRAME, Reason, SILENCE, Start};
use admin::events::{Feed, MAX_SUBSCRIBERS, serve};
use model::{EntityKind, Object, codec};
use std::path::PathBuf;
use store::{Change, ChangeLog, ChangeSet, Options, Origin, Retention, Revision, Store};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

struct Server {
    store: Store,
    live: watch::Sender<u64>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
    path: PathBuf,
    _directory: TempDir,
}

impl Server {
    fn start(retention: Retention) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            retention,
            ..Options::default()
        };
        let (store, _) = Store::open(&directory.path().join("store"), options).unwrap();
        let path = directory.path().join("events.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let live = watch::Sender::new(0);
        let feed = Feed {
            store: store.clone(),
            live: live.subscribe(),
        };
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(serve(listener, feed, async { drop(stopped.await) }));
        Self {
            store,
            live,
            stop: Some(stop),
            serving,
            path,
            _directory: directory,
        }
    }

    /// Commits a revision with `count` consumers, which is durable but not live.
    fn commit(&self, count: u128) -> Revision {
        let head = self.store.head().0;
        let changes = (0..count).map(|number| {
            let id = Uuid::from_u128((number << 64) + 1);
            let mut entity = Object::new();
            entity.push("id", id.to_string().into());
            entity.push("username", format!("{head}-{number}").into());
            Change::Put {
                kind: EntityKind::Consumers,
                id,
                entity: codec::encode(&entity),
            }
        });
        let change_set = ChangeSet {
            changes: changes.collect(),
            meta: Vec::new(),
        };
        let origin = Origin {
            message: Some(format!("after {head}")),
            ..Origin::program("test")
        };
        self.store.commit(None, change_set, &origin).unwrap()
    }

    fn publish(&self, count: u128) {
        self.live.send_replace(self.commit(count).0);
    }

    async fn connect(&self) -> Client {
        Client {
            stream: UnixStream::connect(&self.path).await.unwrap(),
            read: Vec::new(),
        }
    }

    async fn subscribe(&self, start: Start) -> Client {
        let mut client = self.connect().await;
        client.send(&wire::encode_opening(start)).await;
        client
    }

    async fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        (&mut self.serving).await.unwrap();
    }
}

struct Client {
    stream: UnixStream,
    read: Vec<u8>,
}

impl Client {
    /// Sends bytes. Ignores errors, because the next read shows whether the connection is closed.
    async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    async fn heartbeat(&mut self) {
        let mut bytes = Vec::new();
        wire::encode(&Frame::Heartbeat, &mut bytes);
        self.send(&bytes).await;
    }

    /// Reads the next frame; `None` at the end of the connection.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some((_, length)) = wire::decode(&self.read).unwrap() {
                return Some(self.read.drain(..length).collect());
            }
            // A read error also means the end: the kernel resets a connection that is closed with unread data.
            if self.stream.read_buf(&mut self.read).await.unwrap_or(0) == 0 {
                assert!(self.read.is_empty(), "half a frame");
                return None;
            }
        }
    }

    async fn expect(&mut self, frame: &Frame<'_>) {
        let next = self.next().await.expect("a frame");
        assert_eq!(&decoded(&next), frame);
    }

    async fn expect_welcome(&mut self, after: u64) {
        let version = wire::VERSION;
        self.expect(&Frame::Welcome { version, after }).await;
    }

    /// Expects a revision with `count` changes, in any number of frames.
    async fn expect_revision(&mut self, revision: u64, count: usize) {
        let bytes = self.next().await.expect("a frame");
        let Frame::Revision(head) = decoded(&bytes) else {
            panic!("{:?}", decoded(&bytes));
        };
        let message = format!("after {}", revision - 1);
        let expected = Head {
            revision,
            at_ms: head.at_ms,
            source: "test".into(),
            actor: None,
            request_id: None,
            message: Some(message.into()),
            changes: count as u32,
        };
        assert_eq!(head, expected);
        let mut seen = 0;
        while seen < count {
            let bytes = self.next().await.expect("a frame");
            let Frame::Changes(changes) = decoded(&bytes) else {
                panic!("{:?}", decoded(&bytes));
            };
            for change in changes {
                let id = Uuid::from_u128(((seen as u128) << 64) + 1);
                assert_eq!((&*change.kind, change.id), ("consumers", id));
                seen += 1;
            }
        }
        assert_eq!(seen, count);
    }

    async fn expect_end(&mut self, expected: Reason) -> String {
        let bytes = self.next().await.expect("a frame");
        let Frame::End { reason, text } = decoded(&bytes) else {
            panic!("{:?}", decoded(&bytes));
        };
        assert_eq!(reason, expected, "{text}");
        assert!(self.next().await.is_none(), "nothing comes after the end");
        text.into_owned()
    }
}

fn decoded(bytes: &[u8]) -> Frame<'_> {
    wire::decode(bytes).unwrap().expect("a whole frame").0
}

#[tokio::test]
async fn revisions_are_sent_when_live_from_the_requested_start() {
    let server = Server::start(Retention::default());
    server.publish(1);
    let mut now = server.subscribe(Start::Now).await;
    now.expect_welcome(1).await;
    let mut all = server.subscribe(Start::After(0)).await;
    all.expect_welcome(0).await;
    all.expect_revision(1, 1).await;
    // This client has received revision 2 from another process. In this process the revision is not live yet.
    let second = server.commit(2).0;
    let mut ahead = server.subscribe(Start::After(second)).await;
    ahead.expect_welcome(2).await;
    server.commit(1);
    server.live.send_replace(2);
    for client in [&mut now, &mut all] {
        client.expect_revision(2, 2).await;
    }
    server.live.send_replace(3);
    for client in [&mut now, &mut all, &mut ahead] {
        client.expect_revision(3, 1).await;
    }
}

#[tokio::test]
async fn a_revision_of_any_size_comes_in_frames_that_are_bounded() {
    const COUNT: usize = 20_000;
    let server = Server::start(Retention::default());
    let mut late = server.subscribe(Start::Now).await;
    late.expect_welcome(0).await;
    server.publish(COUNT as u128);
    server.publish(1);
    late.expect_revision(1, COUNT).await;
    late.expect_revision(2, 1).await;
}

#[tokio::test]
async fn a_slow_subscriber_gets_a_gap_even_in_the_middle_of_a_revision() {
    const COUNT: usize = 20_000;
    let server = Server::start(Retention {
        revisions: 2,
        ..Retention::default()
    });
    let mut slow = server.subscribe(Start::Now).await;
    slow.expect_welcome(0).await;
    server.publish(COUNT as u128);
    // The server sends only as much as the socket buffers hold. The rest stays in the change log.
    let first = slow.next().await.expect("a frame");
    assert!(matches!(decoded(&first), Frame::Revision(_)));
    for _ in 0..5 {
        server.publish(1);
    }
    while server.store.compact(1000).unwrap() {}
    let lost = loop {
        let bytes = slow.next().await.expect("a frame");
        if let Frame::End { reason, text } = decoded(&bytes) {
            break (reason, text.into_owned());
        }
    };
    assert_eq!(lost.0, Reason::Lost);
    assert!(lost.1.contains("not kept any more"), "{}", lost.1);
    let mut again = server.subscribe(Start::After(0)).await;
    again.expect_welcome(0).await;
    again.expect(&Frame::Gap { from: 1, to: 4 }).await;
    again.expect_revision(5, 1).await;
    again.expect_revision(6, 1).await;
}

#[tokio::test]
async fn a_protocol_error_ends_only_its_own_connection() {
    let server = Server::start(Retention::default());
    let mut good = server.subscribe(Start::Now).await;
    good.expect_welcome(0).await;
    let mut opening = wire::encode_opening(Start::After(0));
    opening[0] ^= 1;
    let mut other = server.connect().await;
    other.send(&opening).await;
    other.expect_end(Reason::Malformed).await;
    let mut newer = wire::encode_opening(Start::Now);
    newer[9] += 1;
    let mut other = server.connect().await;
    other.send(&newer).await;
    other.expect_end(Reason::Version).await;
    let mut other = server.subscribe(Start::After(9)).await;
    let text = other.expect_end(Reason::Unknown).await;
    assert!(text.contains("revision 9"), "{text}");
    let too_long = (MAX_FRAME as u32 + 1).to_be_bytes();
    for hostile in [
        &too_long[..],
        b"\0\0\0\0",
        b"\0\0\0\x01\x01",
        b"\0\0\0\x01\x09",
    ] {
        let mut other = server.subscribe(Start::Now).await;
        other.expect_welcome(0).await;
        other.send(hostile).await;
        other.expect_end(Reason::Malformed).await;
    }
    // A client that sends a frame of the server, or an incomplete opening, disturbs no other client.
    let mut other = server.subscribe(Start::Now).await;
    other.expect_welcome(0).await;
    let mut bytes = Vec::new();
    wire::encode(&Frame::Gap { from: 1, to: 2 }, &mut bytes);
    other.send(&bytes).await;
    other.expect_end(Reason::Malformed).await;
    let mut other = server.connect().await;
    other.send(&opening[..5]).await;
    drop(other);
    server.publish(1);
    good.expect_revision(1, 1).await;
}

#[tokio::test]
async fn the_number_of_subscribers_is_limited_and_slots_are_reused() {
    let server = Server::start(Retention::default());
    let mut all = Vec::new();
    for _ in 0..MAX_SUBSCRIBERS {
        let mut client = server.subscribe(Start::Now).await;
        client.expect_welcome(0).await;
        all.push(client);
    }
    let mut more = server.connect().await;
    more.expect_end(Reason::Crowded).await;
    server.publish(1);
    for client in &mut all {
        client.expect_revision(1, 1).await;
    }
    drop(all.pop());
    // Repeat until the server has noticed the closed connection.
    loop {
        let mut client = server.subscribe(Start::Now).await;
        let bytes = client.next().await.expect("a frame");
        match decoded(&bytes) {
            Frame::Welcome { .. } => return,
            other => assert!(matches!(other, Frame::End { .. }), "{other:?}"),
        }
    }
}

#[tokio::test]
async fn all_subscribers_are_notified_when_the_process_ends() {
    let mut server = Server::start(Retention::default());
    server.publish(1);
    let mut waiting = server.subscribe(Start::Now).await;
    waiting.expect_welcome(1).await;
    // A client that stops reading must not delay the shutdown.
    let mut deaf = server.subscribe(Start::Now).await;
    deaf.expect_welcome(1).await;
    server.publish(40_000);
    waiting.expect_revision(2, 40_000).await;
    server.stop().await;
    waiting.expect_end(Reason::Leaving).await;
    assert!(UnixStream::connect(&server.path).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_disconnected() {
    let server = Server::start(Retention::default());
    let started = Instant::now();
    let mut silent = server.subscribe(Start::Now).await;
    let mut lively = server.subscribe(Start::Now).await;
    silent.expect_welcome(0).await;
    lively.expect_welcome(0).await;
    while let Some(bytes) = silent.next().await {
        assert_eq!(decoded(&bytes), Frame::Heartbeat);
        lively.expect(&Frame::Heartbeat).await;
        lively.heartbeat().await;
    }
    assert!(started.elapsed() >= SILENCE && started.elapsed() < SILENCE + HEARTBEAT);
    server.publish(1);
    loop {
        let bytes = lively.next().await.expect("another frame");
        match decoded(&bytes) {
            Frame::Heartbeat => lively.heartbeat().await,
            other => {
                assert!(matches!(other, Frame::Revision(_)), "{other:?}");
                return;
            }
        }
    }
}
