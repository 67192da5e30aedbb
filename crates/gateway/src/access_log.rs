//! Access log files and the one thread that writes them. A slow disk, or a pipe without a reader, costs log lines but
//! never delays a request.

use crate::audit_log::AuditLog;
use crate::commands::Failure;
use crate::output::Output;
use crate::settings::{LogTarget, Settings};
use admin::control::{Access, Api};
use plugin::Latencies;
use proxy::access_log::{AccessLog, Facts, Headers, Lane, RequestLine};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Maximum time that a stopping process waits until the last lines are written.
const LAST_LINES: Duration = Duration::from_secs(2);
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// All access logs, and the means to control their writer thread.
pub(crate) struct AccessLogs {
    pub(crate) proxy: Option<AccessLog>,
    pub(crate) stream: Option<AccessLog>,
    pub(crate) admin: Option<AccessLog>,
    pub(crate) status: Option<AccessLog>,
    pub(crate) audit: Option<AuditLog>,
    lanes: Vec<Arc<[Lane]>>,
    asked: Arc<Asked>,
    writer: Option<Thread>,
    ended: Mutex<Receiver<()>>,
}

#[derive(Default)]
struct Asked {
    reopen: AtomicBool,
    end: AtomicBool,
}

impl AccessLogs {
    /// Opens the files and starts the thread, if there is anything to log.
    pub(crate) fn start(settings: &Settings) -> Result<Self, Failure> {
        let mut failure = Failure::default();
        let mut files = Vec::new();
        let mut open = |setting, target: &LogTarget, lanes| match Log::open(target, lanes) {
            Ok(log) => {
                let lanes = Arc::clone(&log.lanes);
                files.push(log);
                Some(lanes)
            }
            Err(error) => {
                let setting = settings.origins.of(setting);
                let problem = format!("{setting}: cannot open {target}: {error}");
                failure.add(Failure::new(problem));
                None
            }
        };
        let logs = &settings.access_logs;
        // Without stream listeners this log stays empty, so its file is not created.
        let stream = if settings.stream_listen.is_empty() {
            &None
        } else {
            &logs.stream
        };
        let opened = [
            ("proxy_access_log", &logs.proxy, settings.workers),
            ("proxy_stream_access_log", stream, settings.workers),
            ("admin_access_log", &logs.admin, 1),
            ("status_access_log", &logs.status, 1),
        ]
        .map(|(setting, log, lanes)| {
            let log = log.as_ref()?;
            let lanes = open(setting, &log.target, lanes)?;
            Some((Arc::clone(&log.format), lanes))
        });
        let audit = (settings.admin.audit_log.as_ref())
            .and_then(|target| open("admin_audit_log", target, 1));
        if !failure.is_empty() {
            return Err(failure);
        }
        let asked = Arc::new(Asked::default());
        let (end, ended) = sync_channel(1);
        let lanes = files.iter().map(|log| Arc::clone(&log.lanes)).collect();
        let mut writer = None;
        if !files.is_empty() {
            let asked = Arc::clone(&asked);
            let thread = thread::Builder::new()
                .name("access-log".to_owned())
                .spawn(move || {
                    write(files, &asked);
                    // Sending fails only when nobody waits for the writer any more.
                    let _ = end.send(());
                });
            writer = Some(thread.map_err(Failure::new)?.thread().clone());
        }
        let audit = audit.and_then(|lanes| Some(AuditLog::new(lanes, writer.clone()?)));
        let [proxy, stream, admin, status] = opened.map(|parts| {
            let (format, lanes) = parts?;
            Some(AccessLog::new(format, lanes, writer.clone()?))
        });
        let ended = Mutex::new(ended);
        Ok(Self {
            proxy,
            stream,
            admin,
            status,
            audit,
            lanes,
            asked,
            writer,
            ended,
        })
    }

    pub(crate) fn of(&self, api: Api) -> Option<&AccessLog> {
        match api {
            Api::Admin => self.admin.as_ref(),
            Api::Status => self.status.as_ref(),
        }
    }

    /// Writes an exchange of the Admin API or the Status API to its access log.
    pub(crate) fn write(&self, api: Api, access: &Access) {
        if let Some(log) = self.of(api) {
            let headers = HeadersOf(access);
            log.give(0, log.format().line(&facts(access, &headers)));
        }
    }

    /// Asks the writer to reopen the files, for log rotation. The writer logs failures.
    pub(crate) fn reopen(&self) {
        self.asked.reopen.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns the number of lost lines.
    pub(crate) fn dropped(&self) -> u64 {
        let lanes = self.lanes.iter().flat_map(|lanes| lanes.iter());
        lanes.map(Lane::dropped).sum()
    }

    /// Lets the writer write the remaining lines, for at most `LAST_LINES`.
    pub(crate) fn finish(&self) {
        if self.writer.is_none() {
            return;
        }
        self.asked.end.store(true, Ordering::Release);
        self.wake();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(LAST_LINES) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the last lines of an access log could not be written");
        }
    }

    fn wake(&self) {
        if let Some(writer) = &self.writer {
            writer.unpark();
        }
    }
}

struct HeadersOf<'a>(&'a Access);

impl Headers for HeadersOf<'_> {
    fn first(&self, name: &str) -> Option<&[u8]> {
        self.0.header(name)
    }
}

/// Converts an API exchange to the facts of a log format. Facts that only the proxy knows stay empty.
fn facts<'a>(access: &'a Access, headers: &'a HeadersOf<'a>) -> Facts<'a> {
    Facts {
        client: access.peer,
        peer: access.peer,
        request: RequestLine::Parsed {
            method: access.method.as_bytes(),
            target: access.target.as_bytes(),
            version: access.version,
        },
        headers,
        status: access.status,
        latencies: Latencies {
            request: access.took,
            ..Latencies::default()
        },
        response_size: access.body_size,
        ..Facts::default()
    }
}

/// The writer thread's part of one access log.
struct Log {
    target: LogTarget,
    output: Output,
    lanes: Arc<[Lane]>,
    /// Time of the last logged failure. Failures are logged at most once per `LOG_INTERVAL`.
    told: Option<Instant>,
}

impl Log {
    fn open(target: &LogTarget, lanes: usize) -> io::Result<Self> {
        Ok(Self {
            target: target.clone(),
            output: Output::open(target)?,
            lanes: (0..lanes.max(1)).map(|_| Lane::default()).collect(),
            told: None,
        })
    }

    /// Writes the waiting lines. Returns false when there were none.
    fn write(&mut self, spare: &mut Vec<u8>) -> bool {
        let mut any = false;
        for lane in self.lanes.iter() {
            let mut lines = lane.take(std::mem::take(spare));
            if !lines.is_empty() {
                any = true;
                if let Err(error) = self.output.write(&lines) {
                    lane.count_dropped(lines.iter().filter(|byte| **byte == b'\n').count() as u64);
                    if self.told.is_none_or(|told| told.elapsed() > LOG_INTERVAL) {
                        self.told = Some(Instant::now());
                        tracing::error!(%error, log = %self.target, "lines of an access log are lost");
                    }
                }
            }
            lines.clear();
            *spare = lines;
        }
        any
    }

    fn reopen(&mut self) {
        match Output::open(&self.target) {
            Ok(output) => self.output = output,
            Err(error) => {
                tracing::error!(%error, log = %self.target, "an access log cannot be opened anew");
            }
        }
    }
}

fn write(mut logs: Vec<Log>, asked: &Asked) {
    let mut spare = Vec::new();
    loop {
        // Read `end` before the lanes: lines that are in a lane at this time must still be written.
        let end = asked.end.load(Ordering::Acquire);
        if asked.reopen.swap(false, Ordering::AcqRel) {
            // The waiting lines were logged before the file was renamed, so they belong to the old file.
            for log in &mut logs {
                log.write(&mut spare);
                log.reopen();
            }
        }
        let mut any = false;
        for log in &mut logs {
            any |= log.write(&mut spare);
        }
        match (any, end) {
            (true, _) => {}
            (false, true) => return,
            (false, false) => thread::park(),
        }
    }
}
