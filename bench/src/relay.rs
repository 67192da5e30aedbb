//! A byte relay. The difference between a proxy's cost and the relay's is the cost of handling HTTP.
//!
//! The relay opens one upstream connection for each client connection, and forwards the bytes in both directions
//! without parsing them. It uses one epoll loop, and two reads and two writes per request. When one side stops sending,
//! the relay closes both connections.

use crate::descriptors;
use crate::pending::Pending;
use crate::slots::Slots;
use crate::upstream::accept_one;
use anyhow::{Context, Result};
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;

const LISTENER: Token = Token(usize::MAX);
const BUFFER: usize = 64 * 1024;

/// A client connection and its upstream connection. In slot `n` the client has the token `2 * n`, and the upstream
/// `2 * n + 1`.
struct Pair {
    client: End,
    upstream: End,
}

struct End {
    stream: TcpStream,
    readable: bool,
    /// Whether the peer has stopped sending. No further event reports this, so the relay must read until the end.
    last: bool,
    /// Bytes for this end that its socket has not accepted yet.
    pending: Pending,
}

pub fn run(listen: SocketAddr, upstream: SocketAddr) -> Result<()> {
    descriptors::raise_limit()?;
    let listener =
        TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    println!("listening {}", listener.local_addr()?);
    serve(listener, upstream)
}

fn serve(mut listener: TcpListener, upstream: SocketAddr) -> Result<()> {
    let mut poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut pairs = Slots::default();
    let mut buffer = vec![0; BUFFER];
    loop {
        match poll.poll(&mut events, None) {
            // A signal, for example from a debugger, interrupted the call.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        for event in &events {
            let slot = event.token().0 / 2;
            if event.token() == LISTENER {
                accept(&listener, upstream, &poll, &mut pairs)?;
            } else if let Some(pair) = pairs.get_mut(slot)
                && !pair.advance(event, &mut buffer)
            {
                pairs.remove(slot);
            }
        }
        pairs.end_of_batch();
    }
}

fn accept(
    listener: &TcpListener,
    upstream: SocketAddr,
    poll: &Poll,
    pairs: &mut Slots<Pair>,
) -> Result<()> {
    while let Some(client) = accept_one(listener)? {
        let token = pairs.next() * 2;
        let upstream = TcpStream::connect(upstream)
            .with_context(|| format!("cannot connect to {upstream}"))?;
        pairs.insert(Pair {
            client: End::register(client, poll, Token(token))?,
            upstream: End::register(upstream, poll, Token(token + 1))?,
        });
    }
    Ok(())
}

impl End {
    fn register(mut stream: TcpStream, poll: &Poll, token: Token) -> Result<Self> {
        stream.set_nodelay(true)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, token, interest)?;
        Ok(Self {
            stream,
            readable: false,
            last: false,
            pending: Pending::default(),
        })
    }
}

impl Pair {
    /// Handles an event; returns false if the pair is finished.
    fn advance(&mut self, event: &Event, buffer: &mut [u8]) -> bool {
        let (end, other) = if event.token().0.is_multiple_of(2) {
            (&mut self.client, &mut self.upstream)
        } else {
            (&mut self.upstream, &mut self.client)
        };
        end.last |= event.is_read_closed();
        end.readable |= event.is_readable() || end.last || event.is_error();
        let stuck = !end.pending.is_empty();
        if stuck && event.is_writable() && end.pending.flush(&mut end.stream).is_err() {
            return false;
        }
        // While this end had pending bytes, the relay did not read from the other end. It must read now, because no
        // event reports the waiting bytes again.
        relay(end, other, buffer) && (!stuck || relay(other, end, buffer))
    }
}

/// Relays the available bytes from one end to the other; returns false if the pair is finished.
fn relay(from: &mut End, to: &mut End, buffer: &mut [u8]) -> bool {
    while from.readable && to.pending.is_empty() {
        let read = match from.stream.read(buffer) {
            Ok(0) => return false,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                from.readable = false;
                return true;
            }
            Err(_) => return false,
        };
        // A short read means that the socket is empty; an event will report new bytes.
        from.readable = read == buffer.len() || from.last;
        if to.pending.send(&mut to.stream, &buffer[..read]).is_err() {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Client, Mode, Request, Target};
    use crate::upstream;
    use std::io::Write;
    use std::sync::Arc;
    use std::time::Duration;

    fn in_a_thread(upstream: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(listener, upstream));
        address
    }

    #[test]
    fn requests_and_answers_pass_unchanged() {
        let target = Target {
            address: in_a_thread(upstream::in_a_thread()),
            tls: false,
        };
        let requests: Arc<[Request]> = [Request::get("/"), Request::get("/big")].into();
        let mut client = Client::connect(&target, 100, &requests).unwrap();
        let duration = Duration::from_millis(50);
        let outcome = client.run(Mode::Closed, duration, duration).unwrap();
        assert_eq!(outcome[0].first_failure, None);
        assert!(outcome[0].requests >= 100);
    }

    #[test]
    fn a_client_that_leaves_takes_its_upstream_connection_with_it() {
        let upstream = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = in_a_thread(upstream.local_addr().unwrap());
        let mut client = std::net::TcpStream::connect(relay).unwrap();
        client.write_all(b"last words").unwrap();
        drop(client);
        let (mut stream, _) = upstream.accept().unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "last words");
    }
}
