//! The audit log of the Admin API: one line of JSON for each attempted write. The thread of the access logs writes its
//! file.

use admin::control::Audit;
use admin::time::{rfc3339, since_1970};
use proxy::access_log::Lane;
use serde::Serialize;
use std::sync::Arc;
use std::thread::Thread;

pub(crate) struct AuditLog {
    lanes: Arc<[Lane]>,
    writer: Thread,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    source: &'a str,
    actor: Option<&'a str>,
    request_id: &'a str,
    method: &'a str,
    path: &'a str,
    status: Option<u16>,
    /// Duration in seconds.
    took: f64,
    revision: Option<u64>,
    message: Option<&'a str>,
}

impl AuditLog {
    /// One lane is enough, because one thread handles all writes.
    pub(crate) fn new(lanes: Arc<[Lane]>, writer: Thread) -> Self {
        Self { lanes, writer }
    }

    pub(crate) fn write(&self, audit: &Audit) {
        let line = Line {
            time: rfc3339(since_1970(audit.time)),
            source: &audit.source,
            actor: audit.actor.as_deref(),
            request_id: &audit.request_id,
            method: &audit.method,
            path: &audit.path,
            status: audit.status,
            took: audit.took.as_secs_f64(),
            revision: audit.revision.map(|revision| revision.0),
            message: audit.message.as_deref(),
        };
        let mut line = serde_json::to_vec(&line).expect("texts and numbers encode");
        line.push(b'\n');
        if let Some(lane) = self.lanes.first() {
            lane.give(line);
        }
        self.writer.unpark();
    }
}
