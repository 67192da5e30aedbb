//! The phases of plugins, over sockets. The plugins do what each test says.

mod counting;
mod endings;
mod framing;
mod leaving;
mod over_http2;
mod replacing;
mod request_body;
mod rewrite;
mod targets;
mod whole;

use super::acts::Acts;
use super::*;
use plugin::{Chunk, Filtered, PluginError, Response, ResponseCx, Step};
use std::sync::atomic::Ordering;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

thread_local! {
    static NOTES: RefCell<Vec<String>> = RefCell::default();
}

/// Notes an event of this test.
fn note(event: impl Into<String>) {
    NOTES.with_borrow_mut(|notes| notes.push(event.into()));
}

/// Removes and returns what was noted.
fn noted() -> Vec<String> {
    NOTES.take()
}

/// Waits until an event was noted.
async fn wait_for(event: &str) {
    while !NOTES.with_borrow(|notes| notes.iter().any(|note| note == event)) {
        tokio::task::yield_now().await;
    }
}

impl Acts {
    /// Notes the status in the log phase.
    fn logs(self) -> Self {
        self.log(|cx, _| note(format!("log {}", cx.entry.status)))
    }
}

/// Starts a gateway with these global plugins.
fn gateway(upstream: SocketAddr, plugins: Vec<Arc<PluginDef>>) -> Gateway {
    let mut setup = Setup::new(upstream);
    setup.plugins = plugins;
    setup.start()
}

fn failed() -> PluginError {
    PluginError::new("this test lets it fail")
}

fn continues(_: &mut ResponseCx<'_, '_>) -> Result<Filtered, PluginError> {
    Ok(Filtered::Continue)
}

/// Removes the length, as a filter must that changes the body.
fn without_length(cx: &mut ResponseCx<'_, '_>) -> Result<Filtered, PluginError> {
    cx.answer.headers.remove("Content-Length");
    Ok(Filtered::Continue)
}

/// Notes each piece of a body, and leaves it.
fn note_piece(chunk: &Chunk) {
    let end = if chunk.last { " end" } else { "" };
    note(format!("{}{end}", String::from_utf8_lossy(&chunk.data)));
}

/// An upstream that answers every request on every connection.
async fn always(answer: &'static str) -> SocketAddr {
    upstream((0..16).map(|_| answers(answer)).collect()).await
}

impl Gateway {
    fn body_memory(&self) -> usize {
        self.plane.body_memory.load(Ordering::Relaxed)
    }
}
