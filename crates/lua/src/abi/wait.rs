//! What Lua code waits for.

use super::{Cx, FOUND};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Why a coroutine has yielded to the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum WaitKind {
    /// The coroutine goes on when a future is ready.
    Future = 1,
    /// The coroutine goes on when the client's body was read.
    Body = 2,
    /// The coroutine has ended the request, and does not go on.
    End = 3,
}

impl WaitKind {
    pub(super) const ALL: [(&'static str, WaitKind); 3] = [
        ("future", WaitKind::Future),
        ("body", WaitKind::Body),
        ("end", WaitKind::End),
    ];
}

/// A wait that has begun.
pub type Pending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Begins a pause.
pub(super) fn sleep(cx: &mut Cx, seconds: f64) -> i32 {
    /// The longest pause: nginx's timers end there, too.
    const LONGEST: f64 = 2_147_483.0;
    let seconds = if seconds.is_nan() {
        0.0
    } else {
        seconds.clamp(0.0, LONGEST)
    };
    cx.waiting = Some(Box::pin(tokio::time::sleep(Duration::from_secs_f64(
        seconds,
    ))));
    FOUND
}
