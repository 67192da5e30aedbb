//! The upstream of every measurement: answers each GET at once from memory, on one epoll loop.

use anyhow::{Context, Result};
use memchr::memmem;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

const LISTENER: Token = Token(usize::MAX);
const SMALL: usize = 512;
const BIG: usize = 64 * 1024;

struct Client {
    stream: TcpStream,
    /// The part of a request head that has arrived.
    partial: Vec<u8>,
    pending: Vec<u8>,
}

pub fn run(listen: SocketAddr) -> Result<()> {
    let mut listener =
        TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    println!("listening {}", listener.local_addr()?);
    let mut poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(512);
    let mut clients: Vec<Option<Client>> = Vec::new();
    let answers = [answer(SMALL), answer(BIG)];
    let mut buffer = vec![0; 64 * 1024];
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                accept(&listener, &poll, &mut clients)?;
                continue;
            }
            let slot = event.token().0;
            let alive = clients[slot]
                .as_mut()
                .is_some_and(|client| serve(client, &answers, &mut buffer));
            if !alive {
                clients[slot] = None;
            }
        }
    }
}

fn answer(length: usize) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n")
            .into_bytes();
    answer.resize(answer.len() + length, b'x');
    answer
}

fn accept(listener: &TcpListener, poll: &Poll, clients: &mut Vec<Option<Client>>) -> Result<()> {
    while let Ok((mut stream, _)) = listener.accept() {
        stream.set_nodelay(true)?;
        let slot = clients
            .iter()
            .position(Option::is_none)
            .unwrap_or(clients.len());
        if slot == clients.len() {
            clients.push(None);
        }
        poll.registry().register(
            &mut stream,
            Token(slot),
            Interest::READABLE | Interest::WRITABLE,
        )?;
        clients[slot] = Some(Client {
            stream,
            partial: Vec::new(),
            pending: Vec::new(),
        });
    }
    Ok(())
}

impl Client {
    /// Queues an answer for each request head that is whole; a head that came in one piece is not copied.
    fn take(&mut self, read: &[u8], answers: &[Vec<u8>; 2]) {
        let joined;
        let mut bytes = read;
        if !self.partial.is_empty() {
            self.partial.extend_from_slice(read);
            joined = std::mem::take(&mut self.partial);
            bytes = &joined;
        }
        while let Some(end) = memmem::find(bytes, b"\r\n\r\n") {
            let big = bytes.starts_with(b"GET /big");
            self.pending.extend_from_slice(&answers[usize::from(big)]);
            bytes = &bytes[end + 4..];
        }
        self.partial.extend_from_slice(bytes);
    }
}

/// Answers every whole request head that is there; false when the client is gone.
fn serve(client: &mut Client, answers: &[Vec<u8>; 2], buffer: &mut [u8]) -> bool {
    loop {
        if !client.pending.is_empty() {
            match client.stream.write(&client.pending) {
                Ok(written) => drop(client.pending.drain(..written)),
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
            continue;
        }
        let read = match client.stream.read(buffer) {
            Ok(0) => return false,
            Ok(read) => read,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        };
        client.take(&buffer[..read], answers);
        if let Ok(written) = client.stream.write(&client.pending) {
            client.pending.drain(..written);
        }
        if read < buffer.len() && client.pending.is_empty() {
            return true;
        }
    }
}
