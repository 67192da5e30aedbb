//! The connection to one server, kept by a task of the background, and the breaker.
//!
//! ```text
//!          first call                 connected
//!   Idle ─────────────> Connecting ─────────────> Ready
//!    ^                      │                       │ │
//!    │     it was closed    │ failed                │ │ several calls got no answer in time, or it is
//!    └──────────────────────┼───────────────────────┘ │ no master any more, or it was closed unused
//!                           v                         │
//!                         Down <──────────────────────┘
//! ```
//!
//! In `Down`, calls fail at once. The task connects again after a pause, which doubles with each failure. A server counts
//! as reached when it has answered to the first commands of a connection, so a server that hangs stays `Down`.

use super::opener::{Opened, Opener};
use super::{Call, RedisErrorKind};
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, ServerErrorKind, Value};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Calls in a row without an answer after which the server counts as down.
const MAX_LATE: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time between two questions to the sentinels whether the master is still the same.
const MASTER_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Link {
    shared: Arc<Shared>,
    limit: Duration,
    _end: DropGuard,
}

struct Shared {
    state: watch::Sender<State>,
    /// Wakes the task in `Idle`.
    wanted: Notify,
}

#[derive(Clone)]
enum State {
    Idle,
    Connecting,
    Ready(Arc<Live>),
    Down(RedisErrorKind),
}

/// A connection in use.
struct Live {
    connection: MultiplexedConnection,
    broken: Notify,
    /// Calls in a row that got no answer in time.
    late: AtomicU32,
    has_answered: AtomicBool,
}

/// Why a connection has ended.
enum End {
    Closed,
    /// It was closed before any call was answered.
    Useless,
    Broken,
}

type Results = Vec<Result<Value, RedisErrorKind>>;

impl Link {
    pub(super) fn new(opener: Opener) -> Self {
        let limit = opener.openers().settings.timeout;
        let shared = Arc::new(Shared {
            state: watch::Sender::new(State::Idle),
            wanted: Notify::new(),
        });
        let end = CancellationToken::new();
        let background = opener.openers().background.clone();
        let (kept, ended) = (shared.clone(), end.clone());
        background.spawn_service(async move {
            ended.run_until_cancelled(keep(&kept, &opener)).await;
        });
        Self {
            shared,
            limit,
            _end: end.drop_guard(),
        }
    }

    /// Whether calls fail at once.
    pub(super) fn is_down(&self) -> bool {
        matches!(*self.shared.state.borrow(), State::Down(_))
    }

    /// Makes calls in one round trip; scripts that the server does not know take a second one. `asking` announces each
    /// call as one for a slot that is moving to the server.
    pub(super) async fn run(&self, calls: &[&Call], asking: bool, deadline: Instant) -> Results {
        let mut results = self.send(calls, false, asking, deadline).await;
        let is_unknown = |result: &Result<Value, RedisErrorKind>| matches!(result, Err(RedisErrorKind::Refused(error)) if error.kind() == Some(ServerErrorKind::NoScript));
        let unknown: Vec<usize> = (0..results.len().min(calls.len()))
            .filter(|&at| results.get(at).is_some_and(is_unknown))
            .collect();
        if unknown.is_empty() {
            return results;
        }
        let again: Vec<&Call> = (unknown.iter())
            .filter_map(|&at| calls.get(at).copied())
            .collect();
        let second = self.send(&again, true, asking, deadline).await;
        for (at, result) in unknown.into_iter().zip(second) {
            if let Some(place) = results.get_mut(at) {
                *place = result;
            }
        }
        results
    }

    async fn send(&self, calls: &[&Call], whole: bool, asking: bool, deadline: Instant) -> Results {
        let mut pipeline = Pipeline::with_capacity(calls.len());
        for call in calls {
            if asking {
                pipeline.cmd("ASKING");
            }
            call.add(&mut pipeline, whole);
        }
        let per_call = 1 + usize::from(asking);
        let sent = self.exchange(&pipeline, calls.len() * per_call, deadline);
        match sent.await {
            Ok(values) => {
                let values = values.into_iter().skip(per_call - 1).step_by(per_call);
                values.map(result).collect()
            }
            Err(error) => vec![Err(error); calls.len()],
        }
    }

    /// Sends commands, and returns as many answers.
    pub(super) async fn exchange(
        &self,
        pipeline: &Pipeline,
        count: usize,
        deadline: Instant,
    ) -> Result<Vec<Value>, RedisErrorKind> {
        let live = timeout_at(deadline, self.live()).await;
        let live = live.unwrap_or(Err(RedisErrorKind::Timeout(self.limit)))?;
        let mut connection = live.connection.clone();
        let sent = connection.send_packed_commands(pipeline, 0, count);
        match timeout_at(deadline, sent).await {
            Ok(Ok(values)) if values.len() == count => {
                live.late.store(0, Ordering::Relaxed);
                live.has_answered.store(true, Ordering::Relaxed);
                if values.iter().any(is_no_master) {
                    live.broken.notify_one();
                }
                Ok(values)
            }
            Ok(Ok(_)) => {
                live.broken.notify_one();
                Err(RedisErrorKind::Unexpected)
            }
            Ok(Err(error)) => Err(RedisErrorKind::Failed(error)),
            Err(_) => {
                if live.late.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_LATE {
                    live.broken.notify_one();
                }
                Err(RedisErrorKind::Timeout(self.limit))
            }
        }
    }

    /// Returns the connection; waits if it is being opened.
    async fn live(&self) -> Result<Arc<Live>, RedisErrorKind> {
        if let State::Ready(live) = &*self.shared.state.borrow() {
            return Ok(live.clone());
        }
        let mut state = self.shared.state.subscribe();
        loop {
            match &*state.borrow_and_update() {
                State::Ready(live) => return Ok(live.clone()),
                State::Down(error) => return Err(RedisErrorKind::Down(Box::new(error.clone()))),
                State::Idle => self.shared.wanted.notify_one(),
                State::Connecting => {}
            }
            if state.changed().await.is_err() {
                return Err(RedisErrorKind::Stopped);
            }
        }
    }
}

fn result(value: Value) -> Result<Value, RedisErrorKind> {
    match value {
        Value::ServerError(error) => Err(RedisErrorKind::Refused(error)),
        value => Ok(value),
    }
}

/// Whether an answer shows that the server is a replica now.
fn is_no_master(value: &Value) -> bool {
    let Value::ServerError(error) = value else {
        return false;
    };
    let kind = error.kind();
    // A script that writes fails with another code; its text contains the one of the command.
    let in_script = || {
        error
            .details()
            .is_some_and(|text| text.contains("READONLY"))
    };
    matches!(
        kind,
        Some(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    ) || in_script()
}

/// Keeps the connection of a link.
async fn keep(shared: &Shared, opener: &Opener) {
    let name = &opener.openers().name;
    let mut pause = FIRST_PAUSE;
    loop {
        shared.wanted.notified().await;
        let mut was_down = false;
        shared.state.send_replace(State::Connecting);
        loop {
            let error = match opener.open().await {
                Ok(opened) => {
                    if was_down {
                        tracing::info!(server = %name, "Redis is reached again");
                        was_down = false;
                    }
                    match serve(shared, opener, opened, &mut pause).await {
                        End::Closed => break,
                        End::Useless => RedisErrorKind::Closed,
                        End::Broken => RedisErrorKind::Timeout(opener.openers().settings.timeout),
                    }
                }
                Err(error) => error,
            };
            if !was_down {
                tracing::warn!(server = %name, %error, "Redis is not reached, and not asked until it is");
                was_down = true;
            }
            shared.state.send_replace(State::Down(error));
            // Nodes of a fleet do not come back at the same moment.
            sleep(pause.mul_f64(0.5 + 0.5 * fraction())).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        shared.state.send_replace(State::Idle);
    }
}

/// A number from 0 to 1 that differs from node to node.
fn fraction() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    f64::from(RandomState::new().hash_one(0) as u32) / f64::from(u32::MAX)
}

/// Serves a connection until it ends. If it has answered a call, the next pause is a short one.
async fn serve(shared: &Shared, opener: &Opener, opened: Opened, pause: &mut Duration) -> End {
    let live = Arc::new(Live {
        connection: opened.connection,
        broken: Notify::new(),
        late: AtomicU32::new(0),
        has_answered: AtomicBool::new(false),
    });
    shared.state.send_replace(State::Ready(live.clone()));
    let another_master = async {
        match &opened.master {
            Some(master) => loop {
                sleep(MASTER_INTERVAL).await;
                // While no sentinel answers, the master stays.
                if let Ok(Some(named)) = opener.master().await
                    && named != *master
                {
                    return;
                }
            },
            None => pending().await,
        }
    };
    let end = tokio::select! {
        () = opened.driver => End::Useless,
        () = live.broken.notified() => End::Broken,
        // The next call connects to the new one.
        () = another_master => End::Closed,
    };
    if !live.has_answered.load(Ordering::Relaxed) {
        return end;
    }
    *pause = FIRST_PAUSE;
    match end {
        End::Useless => End::Closed,
        end => end,
    }
}
