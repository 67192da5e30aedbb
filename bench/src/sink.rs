//! Receivers of log records: over HTTP, where each request is answered with 200, and over TCP. They run in threads of the
//! harness, so their work is not counted for the program under test.

use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Starts a sink for HTTP and returns its address. It runs until the harness ends.
pub fn start() -> Result<SocketAddr> {
    start_with(serve)
}

/// Starts a sink that reads whatever comes over TCP, and returns its address.
pub fn start_reader() -> Result<SocketAddr> {
    start_with(|mut stream| {
        std::io::copy(&mut stream, &mut std::io::sink()).ok()?;
        Some(())
    })
}

fn start_with(serve: fn(TcpStream) -> Option<()>) -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen for log records")?;
    let address = listener.local_addr()?;
    thread::Builder::new()
        .name("sink".to_owned())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                // Programs keep few connections to a sink, so a thread for each is enough.
                thread::spawn(move || serve(stream));
            }
        })?;
    Ok(address)
}

/// Answers requests until the sender closes or sends something else.
fn serve(stream: TcpStream) -> Option<()> {
    let mut answers = stream.try_clone().ok()?;
    let mut requests = BufReader::with_capacity(256 * 1024, stream);
    loop {
        let length = read_head(&mut requests)?;
        let copied = std::io::copy(&mut (&mut requests).take(length), &mut std::io::sink());
        if copied.ok()? < length {
            return None;
        }
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        answers.write_all(answer).ok()?;
    }
}

/// Reads the head of a request and returns the length of its body.
fn read_head(requests: &mut impl BufRead) -> Option<u64> {
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if requests.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Some(length);
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_on_a_connection_is_answered() {
        let mut stream = TcpStream::connect(start().expect("a port is free")).expect("it accepts");
        let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        for _ in 0..2 {
            stream.write_all(request.as_bytes()).expect("it reads");
            let mut read = vec![0; answer.len()];
            stream.read_exact(&mut read).expect("it answers");
            assert_eq!(read, answer);
        }
    }
}
