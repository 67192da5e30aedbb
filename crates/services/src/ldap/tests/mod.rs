//! Tests of the LDAP client: messages, a directory that the test plays, and a real one.

mod messages;
mod misbehaving;
mod played;
mod real;

use super::message::{Framing, framing};
use super::*;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A directory that the test plays.
struct Played {
    listener: TcpListener,
    address: SocketAddr,
}

impl Played {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    async fn accept(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }

    fn server(&self) -> Server {
        client(Trust::Anyone).server(settings(self.address))
    }
}

fn client(trust: Trust) -> Client {
    Client::new(trust, Resolver::default(), Background::here()).unwrap()
}

fn settings(address: SocketAddr) -> Settings {
    Settings {
        host: address.ip().to_string().into(),
        port: address.port(),
        security: Security::Plain,
        verify: false,
        timeout: Duration::from_secs(20),
        keepalive: Duration::from_secs(60),
    }
}

const NAME: &str = "uid=nora,dc=case,dc=test";

async fn bind(server: &Server, password: &str) -> Result<Verdict, LdapError> {
    server.bind(NAME.to_owned(), password.into()).await
}

/// Encodes an element with a short content.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    assert!(length < 128);
    [&[tag, length], content].concat()
}

/// Encodes a response: 0x61 to a bind, 0x78 to an extended request.
fn response(id: u8, operation: u8, code: u8, text: &str) -> Vec<u8> {
    let parts = [
        element(0x0a, &[code]),
        element(0x04, b""),
        element(0x04, text.as_bytes()),
    ];
    let message = [element(0x02, &[id]), element(operation, &parts.concat())];
    element(0x30, &message.concat())
}

const BIND: u8 = 0x61;
const EXTENDED: u8 = 0x78;

/// Reads one request.
async fn request(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        if let Framing::Whole(length) = framing(&bytes).unwrap()
            && length == bytes.len()
        {
            return bytes;
        }
        let read = stream.read_buf(&mut bytes).await.unwrap();
        assert_ne!(read, 0, "{bytes:?}");
    }
}

async fn answer(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), bytes: &[u8]) -> Vec<u8> {
    let request = request(stream).await;
    // The client may have closed the connection before it has read everything.
    let _ = stream.write_all(bytes).await;
    request
}

/// Waits until the client closes the connection.
async fn closed(stream: &mut TcpStream) {
    // A connection that is closed with unread bytes is reset.
    let _ = stream.read_to_end(&mut Vec::new()).await;
}
