//! Requests and contexts for plugins, without a connection.

use net::http1::{Limits, RequestHead};
use plugin::{Client, Lookup, RequestBody, RequestCx, Scheme, UpstreamEdits};
use std::net::{IpAddr, Ipv4Addr};

pub(crate) const REQUEST_ID: &str = "0123456789abcdef0123456789abcdef";

/// A head from its lines; the request line is first.
pub(crate) fn head(lines: &[&str]) -> RequestHead {
    let text = format!("{}\r\nHost: a.test\r\n", lines[0]);
    let fields = lines[1..].iter().map(|line| format!("{line}\r\n"));
    let text = text + &fields.collect::<String>() + "\r\n";
    let (head, _) = RequestHead::parse(text.as_bytes(), &Limits::default())
        .expect("the head is well formed")
        .expect("the head is whole");
    head
}

pub(crate) fn context<'r>(
    head: &'r RequestHead,
    body: &'static str,
    lookup: &'r dyn Lookup,
) -> RequestCx<'r> {
    RequestCx {
        head,
        client: Client {
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 1234,
        },
        scheme: Scheme::Http,
        host: "a.test",
        port: 8000,
        request_id: REQUEST_ID,
        route: None,
        service: None,
        captures: &[],
        body: RequestBody::Whole(body.into()),
        lookup,
        consumer: None,
        credential: None,
        upstream: UpstreamEdits::default(),
    }
}

/// Runs a future that never waits.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("the future waits"),
    }
}
