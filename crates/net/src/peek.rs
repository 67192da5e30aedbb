//! Peeks at the first bytes of a connection. The PROXY header is removed, but none of the client's data after it. The
//! client hello is not removed, because it may be forwarded to a target that does the handshake.

use crate::client_hello::{self, BadHello, Opening};
use crate::proxy_protocol::{self, Header, Malformed};
use rustix::net::{RecvFlags, recv};
use std::io::{self, ErrorKind};
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::TcpStream;

/// Why a connection is closed before any of its requests is read.
#[derive(Debug, thiserror::Error)]
pub enum PeekError {
    #[error(transparent)]
    Proxy(#[from] Malformed),
    #[error(transparent)]
    Hello(#[from] BadHello),
    /// The client closed or reset the connection before its header or hello was complete.
    #[error("connection ended early")]
    Ended(#[from] io::Error),
}

/// Reads exactly the PROXY header from the connection. The caller must set a time limit.
pub async fn take_proxy_header(stream: &mut TcpStream) -> Result<Header, PeekError> {
    // The bytes of a partial header are consumed, so that the next peek waits for new bytes. The buffer is on the heap:
    // inside the future it would enlarge the connection's task permanently.
    let mut buffer = vec![0; proxy_protocol::MAX_HEADER];
    let mut taken = 0;
    loop {
        let found = taken + peek(stream, &mut buffer[taken..], 0).await?;
        let parsed = proxy_protocol::parse(&buffer[..found])?;
        let belongs = parsed.map_or(found, |(_, length)| length);
        stream.read_exact(&mut buffer[taken..belongs]).await?;
        taken = belongs;
        if let Some((header, _)) = parsed {
            return Ok(header);
        }
    }
}

/// Returns the opening of a connection without consuming any bytes. The caller must set a time limit.
pub async fn opening(stream: &TcpStream) -> Result<Opening, PeekError> {
    let mut buffer = vec![0; client_hello::MAX_HELLO];
    let mut seen = 0;
    loop {
        seen = peek(stream, &mut buffer, seen).await?;
        if let Some(opening) = client_hello::parse(&buffer[..seen])? {
            return Ok(opening);
        }
    }
}

/// Returns the first byte of a connection without consuming it. The caller must set a time limit.
pub async fn first_byte(stream: &TcpStream) -> io::Result<u8> {
    let mut byte = [0];
    peek(stream, &mut byte, 0).await?;
    Ok(byte[0])
}

/// Waits until more than `seen` bytes can be peeked at, and returns their number. Fails if the peer has closed its side
/// and sends no more bytes.
async fn peek(stream: &TcpStream, buffer: &mut [u8], seen: usize) -> io::Result<usize> {
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        let looked = stream.try_io(Interest::READABLE, || {
            let (_, found) = recv(stream, &mut *buffer, RecvFlags::PEEK)?;
            match found {
                0 => Err(ErrorKind::UnexpectedEof.into()),
                // There are no new bytes. `WouldBlock` makes tokio wait for more.
                found if found <= seen => Err(ErrorKind::WouldBlock.into()),
                found => Ok(found),
            }
        });
        match looked {
            // A closed side stays readable for tokio, so waiting for more bytes would be an endless loop.
            Err(error) if error.kind() == ErrorKind::WouldBlock && ready.is_read_closed() => {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            looked => return looked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (server, _) = listener.accept().await.unwrap();
        let client = client.unwrap();
        client.set_nodelay(true).unwrap();
        (client, server)
    }

    #[tokio::test]
    async fn a_header_is_removed_and_later_bytes_stay() {
        let (mut client, mut server) = pair().await;
        let sent = b"PROXY TCP4 192.0.2.1 192.0.2.2 5 6\r\nafter";
        client.write_all(sent).await.unwrap();
        let header = take_proxy_header(&mut server).await.unwrap();
        assert_eq!(header.addresses.unwrap().source.port(), 5);
        let mut rest = [0; 5];
        server.read_exact(&mut rest).await.unwrap();
        assert_eq!(&rest, b"after");
    }

    #[tokio::test]
    async fn a_header_may_come_byte_by_byte() {
        let (mut client, mut server) = pair().await;
        let sent = b"PROXY TCP6 ::1 ::2 5 6\r\nx";
        let sending = async {
            for byte in sent {
                client.write_all(&[*byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
            client
        };
        let (header, _client) = tokio::join!(take_proxy_header(&mut server), sending);
        assert_eq!(header.unwrap().addresses.unwrap().destination.port(), 6);
        assert_eq!(server.read_u8().await.unwrap(), b'x');
    }

    #[tokio::test]
    async fn an_opening_is_peeked_at_and_stays() {
        let (mut client, mut server) = pair().await;
        let hello = crate::client_hello::tests::real_hello("a.test", true);
        let (first, second) = hello.split_at(20);
        client.write_all(first).await.unwrap();
        let sending = async {
            tokio::task::yield_now().await;
            client.write_all(second).await.unwrap();
        };
        let (opening, ()) = tokio::join!(opening(&server), sending);
        let server_name = Some("a.test".into());
        assert_eq!(opening.unwrap(), Opening::Hello { server_name });
        let mut read = vec![0; hello.len()];
        server.read_exact(&mut read).await.unwrap();
        assert_eq!(read, hello);
    }

    #[tokio::test]
    async fn an_early_end_is_an_error() {
        let (client, mut server) = pair().await;
        drop(client);
        let ended = take_proxy_header(&mut server).await;
        assert!(matches!(ended, Err(PeekError::Ended(_))));
        let (mut client, mut server) = pair().await;
        client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let refused = take_proxy_header(&mut server).await;
        assert!(matches!(
            refused,
            Err(PeekError::Proxy(Malformed::Signature))
        ));
    }

    #[tokio::test]
    async fn a_close_within_a_client_hello_is_an_error() {
        let (mut client, server) = pair().await;
        let hello = crate::client_hello::tests::real_hello("a.test", true);
        client.write_all(&hello[..10]).await.unwrap();
        client.shutdown().await.unwrap();
        // Were it not noticed, the task would never yield, so only another thread could end the test.
        let (done, ended) = std::sync::mpsc::channel();
        let work = tokio::runtime::Handle::current();
        std::thread::spawn(move || done.send(work.block_on(opening(&server))));
        let waiting = tokio::task::spawn_blocking(move || {
            ended.recv_timeout(std::time::Duration::from_secs(30))
        });
        let opened = waiting.await.unwrap().expect("the close is noticed");
        assert!(matches!(opened, Err(PeekError::Ended(_))));
        drop(client);
    }
}
