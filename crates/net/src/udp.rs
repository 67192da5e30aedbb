//! Exchanges UDP datagrams with many clients on one socket. A response must come from the address that the client sent
//! to, or the client would not recognise it. On a socket that is bound to all addresses of the machine, the system
//! might choose another source address, so this module sets it.

use nix::cmsg_space;
use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Buffer size that fits every datagram: the maximum of UDP's length field.
pub const MAX_DATAGRAM: usize = 65_535;

#[derive(Debug)]
pub struct DatagramListener {
    socket: UdpSocket,
    local: SocketAddr,
}

/// A received datagram. Its bytes are in the caller's buffer. IPv4 addresses appear as IPv4, also on a socket for both
/// families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    pub length: usize,
    pub client: SocketAddr,
    /// Address that the client sent the datagram to.
    pub local: IpAddr,
}

impl DatagramListener {
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?;
        match local.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => {
                setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
            }
            IpAddr::V6(ip) if ip.is_unspecified() => {
                setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
            }
            _ => {}
        }
        Ok(Self {
            socket: UdpSocket::from_std(socket)?,
            local,
        })
    }

    pub fn local_port(&self) -> u16 {
        self.local.port()
    }

    /// Receives the next datagram. Bytes that do not fit into the buffer are lost.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<Datagram> {
        if self.local.ip().is_unspecified() {
            let receive = || self.receive_with_address(buffer);
            return self.socket.async_io(Interest::READABLE, receive).await;
        }
        let (length, client) = self.socket.recv_from(buffer).await?;
        Ok(Datagram {
            length,
            client,
            local: self.local.ip(),
        })
    }

    fn receive_with_address(&self, buffer: &mut [u8]) -> io::Result<Datagram> {
        let mut pieces = [IoSliceMut::new(buffer)];
        let mut space = cmsg_space!(in6_pktinfo);
        let message = recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut pieces,
            Some(&mut space),
            MsgFlags::empty(),
        )?;
        let client = message.address.as_ref().and_then(socket_address);
        let client = client.ok_or(ErrorKind::InvalidData)?;
        let told = message.cmsgs()?.find_map(|told| match told {
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                Some(IpAddr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()))
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => Some(IpAddr::from(info.ipi6_addr.s6_addr)),
            _ => None,
        });
        Ok(Datagram {
            length: message.bytes,
            client: SocketAddr::new(client.ip().to_canonical(), client.port()),
            local: told.unwrap_or(self.local.ip()).to_canonical(),
        })
    }

    /// Sends a response without waiting; fails with [`ErrorKind::WouldBlock`] when the socket is full.
    pub fn try_send(&self, bytes: &[u8], client: SocketAddr, from: IpAddr) -> io::Result<()> {
        let sent = if self.local.ip().is_unspecified() {
            let send = || self.send_from(bytes, client, from);
            self.socket.try_io(Interest::WRITABLE, send)
        } else {
            self.socket.try_send_to(bytes, client)
        };
        sent.map(drop)
    }

    /// Converts an IPv4 address to an IPv4-mapped one if the socket is an IPv6 socket, as the system calls require.
    fn in_own_family(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) if self.local.is_ipv6() => address.to_ipv6_mapped().into(),
            address => address,
        }
    }

    fn send_from(&self, bytes: &[u8], client: SocketAddr, from: IpAddr) -> io::Result<usize> {
        let client = SocketAddr::new(self.in_own_family(client.ip()), client.port());
        let from = self.in_own_family(from);
        let pieces = [IoSlice::new(bytes)];
        let send = |from: &[ControlMessage<'_>]| {
            sendmsg(
                self.socket.as_raw_fd(),
                &pieces,
                from,
                MsgFlags::empty(),
                Some(&SockaddrStorage::from(client)),
            )
        };
        let sent = match from {
            from if from.is_unspecified() => send(&[]),
            IpAddr::V4(from) => send(&[ControlMessage::Ipv4PacketInfo(&in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: in_addr {
                    s_addr: u32::from_ne_bytes(from.octets()),
                },
                ipi_addr: in_addr { s_addr: 0 },
            })]),
            IpAddr::V6(from) => send(&[ControlMessage::Ipv6PacketInfo(&in6_pktinfo {
                ipi6_addr: in6_addr {
                    s6_addr: from.octets(),
                },
                ipi6_ifindex: 0,
            })]),
        };
        Ok(sent?)
    }
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let four = address.as_sockaddr_in().copied().map(SocketAddrV4::from);
    let six = address.as_sockaddr_in6().copied().map(SocketAddrV6::from);
    four.map(SocketAddr::from).or(six.map(SocketAddr::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::bind_datagrams;
    use std::io::Write;

    /// Checks that a response comes from the address that the client sent to.
    async fn answers_from_where_it_was_asked(bound: &str, asked: &str) {
        let listen = format!("{bound} udp ipv6only=off").parse().unwrap();
        let socket = bind_datagrams(&listen, 1).unwrap().remove(0);
        let listener = DatagramListener::from_std(socket).unwrap();
        let asked = SocketAddr::new(asked.parse().unwrap(), listener.local_port());
        let client = UdpSocket::bind((asked.ip(), 0)).await.unwrap();
        // A connected socket receives datagrams from this address only.
        client.connect(asked).await.unwrap();
        client.send(b"question").await.unwrap();
        let mut buffer = [0; 100];
        let datagram = listener.receive(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..datagram.length], b"question");
        assert_eq!(datagram.client, client.local_addr().unwrap());
        assert_eq!(datagram.local, asked.ip());
        listener
            .try_send(b"answer", datagram.client, datagram.local)
            .unwrap();
        let length = client.recv(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..length], b"answer");
    }

    #[tokio::test]
    async fn an_answer_comes_from_the_address_that_was_asked() {
        answers_from_where_it_was_asked("127.0.0.1:0", "127.0.0.1").await;
        // All of 127.0.0.0/8 is local. Without the packet information, the response would come from 127.0.0.1.
        answers_from_where_it_was_asked("0.0.0.0:0", "127.0.0.7").await;
        answers_from_where_it_was_asked("0.0.0.0:0", "127.0.0.1").await;
    }

    #[tokio::test]
    async fn an_answer_over_ipv6_comes_from_the_address_that_was_asked() {
        if let Err(error) = std::net::UdpSocket::bind("[::1]:0") {
            assert!(
                std::env::var_os("CI").is_none(),
                "CI must have IPv6 on its loopback interface: {error}"
            );
            // `eprintln!` would not show: the test harness hides its output when a test passes.
            let _ = writeln!(
                std::io::stderr(),
                "NOTE: this machine has no IPv6 ({error}): UDP responses over IPv6 are not tested"
            );
            return;
        }
        answers_from_where_it_was_asked("[::]:0", "::1").await;
        answers_from_where_it_was_asked("[::]:0", "127.0.0.1").await;
        answers_from_where_it_was_asked("[::]:0", "127.0.0.7").await;
    }
}
