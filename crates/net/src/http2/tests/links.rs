//! Tests of HTTP/2 connections to upstreams: which requests wait for a connection or share one, and which connections
//! are closed.

use crate::http2::links::{Found, LinkKey, LinkSettings, Links, Wanted};
use crate::http2::{DialFailure, Dialed, Driver, Link, UpstreamStream};
use crate::pool::{Slot, SlotKey};
use crate::stream::Stream;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

const SETTINGS: LinkSettings = LinkSettings {
    size: 3,
    max_requests: 0,
    idle: Duration::ZERO,
};

fn slot() -> Arc<Slot> {
    Slot::of(SlotKey {
        host: "links".into(),
        port: 80,
        tls: None,
    })
}

fn key(name: &str) -> LinkKey {
    LinkKey {
        tls: Some(1),
        sni: Some(name.into()),
    }
}

/// Starts an HTTP/2 server that accepts requests and never responds.
async fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                let mut held = Vec::new();
                while let Some(Ok(request)) = connection.accept().await {
                    held.push(request);
                }
            });
        }
    });
    address
}

/// Opens a connection and adds it under this server name.
async fn add(
    links: &mut Links,
    address: SocketAddr,
    slot: &Arc<Slot>,
    name: &str,
) -> Box<UpstreamStream> {
    let (link, driver) = open(address, name).await;
    tokio::spawn(driver);
    links.add(address, link, slot, &SETTINGS)
}

async fn open(address: SocketAddr, name: &str) -> (Link, Driver) {
    let stream = Stream::Tcp(TcpStream::connect(address).await.unwrap());
    Link::open(stream, key(name), 16 * 1024).await.unwrap()
}

async fn take(links: &mut Links, address: SocketAddr, slot: &Arc<Slot>, name: &str) -> Found {
    take_wanted(links, address, slot, name, Wanted::Any).await
}

async fn take_wanted(
    links: &mut Links,
    address: SocketAddr,
    slot: &Arc<Slot>,
    name: &str,
    wanted: Wanted,
) -> Found {
    poll_fn(|cx| Poll::Ready(links.take(address, &key(name), slot, wanted, &SETTINGS, cx))).await
}

#[tokio::test]
async fn every_waiting_request_learns_the_result_however_late() {
    let (mut links, slot, address) = (Links::default(), slot(), ([127, 0, 0, 1], 1).into());
    let Found::Dial(dialer) = take(&mut links, address, &slot, "a").await else {
        panic!("no request is connecting yet");
    };
    let mut waiting = Vec::new();
    for _ in 0..300 {
        match take(&mut links, address, &slot, "a").await {
            Found::Dialing(dial) => waiting.push(dial),
            other => panic!("the first request is connecting: {other:?}"),
        }
    }
    // Half of the requests wait before the attempt fails; the others start to wait after it.
    let late = waiting.split_off(150);
    let waiting: Vec<_> = waiting
        .into_iter()
        .map(|dial| tokio::spawn(dial.ended()))
        .collect();
    tokio::task::yield_now().await;
    dialer.end(Dialed::Failed(DialFailure::Timeout));
    for told in waiting {
        let told = told.await.unwrap();
        assert!(matches!(told, Dialed::Failed(DialFailure::Timeout)));
    }
    // A new request starts a new attempt, although handles of the failed attempt still exist.
    let again = take(&mut links, address, &slot, "a").await;
    assert!(matches!(again, Found::Dial(_)), "{again:?}");
    for dial in late {
        let told = dial.ended().await;
        assert!(matches!(told, Dialed::Failed(DialFailure::Timeout)));
    }
}

#[tokio::test]
async fn a_dropped_attempt_lets_another_request_connect() {
    let (mut links, slot, address) = (Links::default(), slot(), ([127, 0, 0, 1], 1).into());
    let found = take(&mut links, address, &slot, "a").await;
    let waits = take(&mut links, address, &slot, "a").await;
    let (Found::Dial(dialer), Found::Dialing(dial)) = (found, waits) else {
        panic!("the first request connects, the second waits");
    };
    drop(dialer);
    assert!(matches!(dial.ended().await, Dialed::Abandoned));
    let next = take(&mut links, address, &slot, "a").await;
    assert!(matches!(next, Found::Dial(_)), "{next:?}");
}

#[tokio::test]
async fn an_address_keeps_the_most_recently_used_connections() {
    let (mut links, slot, address) = (Links::default(), slot(), server().await);
    for name in ["a", "b", "c"] {
        drop(add(&mut links, address, &slot, name).await);
    }
    // Use this connection again, so that it is not the least recently used one.
    assert!(matches!(
        take(&mut links, address, &slot, "a").await,
        Found::Call(_)
    ));
    for name in ["d", "e"] {
        drop(add(&mut links, address, &slot, name).await);
    }
    assert_eq!(links.count(), 3);
    for (name, kept) in [
        ("a", true),
        ("b", false),
        ("c", false),
        ("d", true),
        ("e", true),
    ] {
        let found = take(&mut links, address, &slot, name).await;
        assert_eq!(matches!(found, Found::Call(_)), kept, "{name}");
    }
}

#[tokio::test]
async fn connections_are_closed_only_once_they_have_no_streams() {
    let (mut links, slot, address) = (Links::default(), slot(), server().await);
    let mut calls = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        calls.push(add(&mut links, address, &slot, name).await);
    }
    assert_eq!(links.count(), 5);
    links.sweep(Instant::now(), &SETTINGS);
    assert_eq!(links.count(), 5);
    calls.truncate(1);
    links.sweep(Instant::now(), &SETTINGS);
    assert_eq!(
        links.count(),
        3,
        "idle connections are kept up to the limit"
    );
    links.clear();
    assert_eq!(
        links.count(),
        1,
        "only the connection with a stream is left"
    );
}

#[tokio::test]
async fn connections_to_a_target_that_is_gone_are_closed_though_they_never_expire() {
    let (mut links, slot, address) = (Links::default(), slot(), server().await);
    let call = add(&mut links, address, &slot, "a").await;
    drop(slot);
    links.sweep(Instant::now(), &SETTINGS);
    assert_eq!(links.count(), 1, "the connection still has a stream");
    drop(call);
    links.sweep(Instant::now(), &SETTINGS);
    assert_eq!(links.count(), 0);
}

#[tokio::test]
async fn a_request_may_ask_for_a_connection_that_is_younger_than_a_failure() {
    let (mut links, slot, address) = (Links::default(), slot(), server().await);
    drop(add(&mut links, address, &slot, "a").await);
    let wanted = Wanted::OpenedAfter(Instant::now());
    let found = take_wanted(&mut links, address, &slot, "a", wanted).await;
    let Found::Dial(dialer) = found else {
        panic!("the existing connection is too old: {found:?}");
    };
    drop(add(&mut links, address, &slot, "a").await);
    dialer.end(Dialed::Http2);
    let found = take_wanted(&mut links, address, &slot, "a", wanted).await;
    assert!(matches!(found, Found::Call(_)), "{found:?}");
}

#[tokio::test]
async fn connections_that_have_ended_do_not_close_others() {
    let (mut links, slot, address) = (Links::default(), slot(), server().await);
    for name in ["a", "b"] {
        drop(add(&mut links, address, &slot, name).await);
    }
    let (link, driver) = open(address, "c").await;
    drop(links.add(address, link, &slot, &SETTINGS));
    // The connection ends with its driver.
    drop(driver);
    drop(add(&mut links, address, &slot, "d").await);
    assert_eq!(links.count(), 3);
    for (name, kept) in [("a", true), ("b", true), ("c", false), ("d", true)] {
        let found = take(&mut links, address, &slot, name).await;
        assert_eq!(matches!(found, Found::Call(_)), kept, "{name}");
    }
}

#[tokio::test]
async fn without_keepalive_only_connections_with_a_stream_are_shared() {
    let settings = LinkSettings {
        size: 0,
        ..SETTINGS
    };
    let (mut links, slot, address) = (Links::default(), slot(), server().await);
    let (link, driver) = open(address, "a").await;
    tokio::spawn(driver);
    let call = links.add(address, link, &slot, &settings);
    let mut take = async || {
        let key = key("a");
        poll_fn(|cx| Poll::Ready(links.take(address, &key, &slot, Wanted::Any, &settings, cx)))
            .await
    };
    let second = take().await;
    assert!(matches!(second, Found::Call(_)), "{second:?}");
    drop((call, second));
    let third = take().await;
    assert!(matches!(third, Found::Dial(_)), "{third:?}");
}
