//! Events that Lua code sends to the Lua code of all workers (`kong.worker_events`). They arrive as timers do: as a
//! coroutine without a request. A worker without a VM has no code that waits for events.

use super::timer::run_entry;
use super::{Cx, FOUND, NO_REQUEST, NONE};
use crate::vm;
use plugin::Node;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Number of the entry that delivers events. Timers have greater numbers.
const DELIVERY: i32 = 0;

/// Maximum number of events that a worker has not delivered yet.
const MAX_WAITING: usize = 1024;

thread_local! {
    static ARRIVED: RefCell<VecDeque<Arc<[u8]>>> = const { RefCell::new(VecDeque::new()) };
}

/// Sends the text of an event to this worker (0) or to all workers (1).
pub(super) fn post(cx: &mut Cx, to: i32, text: &[u8]) -> i32 {
    let Some(node) = cx.target.node().cloned() else {
        return NO_REQUEST;
    };
    cx.keep(text.len());
    let text: Arc<[u8]> = text.into();
    if to == 0 {
        let Ok(worker) = Handle::try_current() else {
            return NONE;
        };
        worker.spawn(deliver(node, text));
        return FOUND;
    }
    let all = node.clone();
    match node
        .workers
        .spawn_on_all(move |_| deliver(all.clone(), text.clone()))
    {
        0 => NONE,
        _ => FOUND,
    }
}

async fn deliver(node: Arc<Node>, text: Arc<[u8]>) {
    if vm::try_with(|_| ()).is_none() {
        return;
    }
    let is_kept = ARRIVED.with_borrow_mut(|arrived| {
        let is_kept = arrived.len() < MAX_WAITING;
        if is_kept {
            arrived.push_back(text);
        }
        is_kept
    });
    if !is_kept {
        tracing::error!("a worker event was dropped: {MAX_WAITING} wait for their callbacks");
        return;
    }
    run_entry(DELIVERY, node).await;
}

/// Returns the text of the event that arrived first.
pub(super) fn take(cx: &mut Cx) -> i32 {
    match ARRIVED.with_borrow_mut(VecDeque::pop_front) {
        Some(text) => cx.made(|out| out.extend_from_slice(&text)),
        None => NONE,
    }
}
