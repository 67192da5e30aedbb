//! A byte relay on one epoll loop: one connection to the upstream for each of the client's, nothing parsed. What a proxy
//! costs above it is what it does with HTTP.

use anyhow::{Context, Result};
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

const LISTENER: Token = Token(usize::MAX);
const BUFFER: usize = 64 * 1024;

/// One end of a relayed pair; its peer is the slot with the lowest bit flipped.
struct End {
    stream: TcpStream,
    readable: bool,
    /// Bytes for this end that its socket did not take at once.
    pending: Vec<u8>,
}

pub fn run(listen: SocketAddr, upstream: SocketAddr) -> Result<()> {
    let mut listener =
        TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    println!("listening {}", listener.local_addr()?);
    let mut poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(512);
    let mut ends: Vec<Option<End>> = Vec::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                accept(&listener, upstream, &poll, &mut ends)?;
            } else {
                advance(event, &mut ends, &mut buffer);
            }
        }
    }
}

fn accept(
    listener: &TcpListener,
    upstream: SocketAddr,
    poll: &Poll,
    ends: &mut Vec<Option<End>>,
) -> Result<()> {
    while let Ok((client, _)) = listener.accept() {
        let slot = ends
            .chunks(2)
            .position(|pair| pair.iter().all(Option::is_none))
            .map_or(ends.len(), |pair| pair * 2);
        if slot == ends.len() {
            ends.extend([None, None]);
        }
        for (offset, mut stream) in [client, TcpStream::connect(upstream)?]
            .into_iter()
            .enumerate()
        {
            stream.set_nodelay(true)?;
            poll.registry().register(
                &mut stream,
                Token(slot + offset),
                Interest::READABLE | Interest::WRITABLE,
            )?;
            ends[slot + offset] = Some(End {
                stream,
                readable: false,
                pending: Vec::new(),
            });
        }
    }
    Ok(())
}

fn advance(event: &Event, ends: &mut [Option<End>], buffer: &mut [u8]) {
    let slot = event.token().0;
    let Some(end) = ends[slot].as_mut() else {
        return;
    };
    end.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
    let drained = event.is_writable() && !end.pending.is_empty() && flush(end);
    let alive = relay(ends, slot, buffer) && (!drained || relay(ends, slot ^ 1, buffer));
    if !alive {
        ends[slot] = None;
        ends[slot ^ 1] = None;
    }
}

fn flush(end: &mut End) -> bool {
    if let Ok(written) = end.stream.write(&end.pending) {
        end.pending.drain(..written);
    }
    end.pending.is_empty()
}

/// Moves what `slot` has to its peer; false when the pair is over.
fn relay(ends: &mut [Option<End>], slot: usize, buffer: &mut [u8]) -> bool {
    let (low, high) = ends.split_at_mut(slot | 1);
    let (Some(first), Some(second)) = (low[slot & !1].as_mut(), high[0].as_mut()) else {
        return false;
    };
    let (from, to) = if slot & 1 == 0 {
        (first, second)
    } else {
        (second, first)
    };
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
        // A short read means that the socket is empty: the next event says when it is not.
        from.readable = read == buffer.len();
        let written = match to.stream.write(&buffer[..read]) {
            Ok(written) => written,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::NotConnected
                ) =>
            {
                0
            }
            Err(_) => return false,
        };
        to.pending.extend_from_slice(&buffer[written..read]);
    }
    true
}
