//! Requests that go on without their client ([`plugin::RequestState::goes_on`]). A plugin has responded, and still wants
//! the response of the upstream, for instance to validate what it keeps. Such a request continues with the plugins after
//! that one, in a task of its own on the same worker. Its response goes to nobody, and it is not logged.
//!
//! A change of the configuration ends these tasks, and so does the end of the worker: nothing waits for them.

use super::handling::{Handling, Rest};
use super::opening::Opening;
use super::worker::{self, View};
use super::{Arrival, Connection};
use net::http1::{Framing, RequestHead};
use net::stream::Stream;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

/// Maximum number of these requests on a worker. The others end, and the plugin may try again with a later request.
const MAX_TASKS: usize = 64;

/// Maximum time of such a request. The time limits of the service apply, too.
const LIMIT: Duration = Duration::from_secs(60);

/// The running tasks of a worker.
#[derive(Default)]
pub(super) struct Tasks(Vec<AbortHandle>);

impl Tasks {
    fn have_room(&mut self) -> bool {
        self.0.retain(|task| !task.is_finished());
        self.0.len() < MAX_TASKS
    }

    pub(super) fn end_all(&mut self) {
        self.0.drain(..).for_each(|task| task.abort());
    }
}

impl Connection {
    /// Lets a request whose client has its response go on.
    #[cold]
    pub(super) fn go_on(&self, head: RequestHead, view: Arc<View>, rest: Rest) {
        let has_body = head.framing() != Framing::None || head.upgrade().is_some();
        if has_body || !worker::with(|worker| worker.going_on.have_room()) {
            return;
        }
        let (plane, arrival) = (self.plane.clone(), self.arrival.clone());
        let until = Instant::now() + LIMIT;
        let connection = Self::new(plane, None, Stream::Nobody, arrival.clone(), until);
        let task = tokio::spawn(async move {
            let run = connection.run_rest(head, &arrival, &view, rest);
            if timeout(LIMIT, run).await.is_err() {
                tracing::debug!("a request that went on without its client took too long");
            }
        });
        worker::with(|worker| worker.going_on.0.push(task.abort_handle()));
    }

    async fn run_rest(mut self, head: RequestHead, arrival: &Arrival, view: &View, rest: Rest) {
        let plane = self.plane.clone();
        let snapshot = &*view.snapshot;
        let counters = worker::with(|worker| worker.counters(&plane));
        let opening = Opening::new(&mut self, &head, arrival);
        let request = opening.request(&head);
        let mut handling = Handling::new(request, snapshot, &plane, counters);
        handling.is_logged = true;
        let routed = handling.use_rest(rest, snapshot);
        self.dispatch(snapshot, &opening, &routed, &mut handling)
            .await;
        handling.give_memory();
    }
}
