//! The files of access logs and the one thread that writes them: a slow disk, or a pipe that nobody reads, costs lines and never
//! a request.

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

/// What the end of the process waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(2);
const TELLING_INTERVAL: Duration = Duration::from_secs(10);

/// Every access log, and what is asked of their writer.
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
                let problem = format!("setting {setting}: cannot open {target}: {error}");
                failure.add(Failure::new(problem));
                None
            }
        };
        let logs = &settings.access_logs;
        // A file that nothing would ever be written to is not made.
        let stream = match settings.stream_listen.is_empty() {
            true => &None,
            false => &logs.stream,
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
                    // Nobody waits for it, when the process is killed.
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

    /// Logs an exchange of an API.
    pub(crate) fn write(&self, api: Api, access: &Access) {
        if let Some(log) = self.of(api) {
            let headers = HeadersOf(access);
            log.give(0, log.format().line(&facts(access, &headers)));
        }
    }

    /// Opens files anew, so that they can be rotated. Whether that worked is in the log.
    pub(crate) fn reopen(&self) {
        self.asked.reopen.store(true, Ordering::Release);
        self.wake();
    }

    /// Lines that were lost.
    pub(crate) fn dropped(&self) -> u64 {
        let lanes = self.lanes.iter().flat_map(|lanes| lanes.iter());
        lanes.map(Lane::dropped).sum()
    }

    /// Lets the writer write what it has, but not for ever.
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

/// An exchange of an API as a log format has it. Of what only the proxy knows there is nothing.
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

/// One log, as its writer has it.
struct Log {
    target: LogTarget,
    output: Output,
    lanes: Arc<[Lane]>,
    /// When a failure was told last.
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

    /// Writes what waits; false when nothing did.
    fn write(&mut self, spare: &mut Vec<u8>) -> bool {
        let mut any = false;
        for lane in self.lanes.iter() {
            let mut lines = lane.take(std::mem::take(spare));
            if !lines.is_empty() {
                any = true;
                if let Err(error) = self.output.write(&lines) {
                    lane.count_dropped(lines.iter().filter(|byte| **byte == b'\n').count() as u64);
                    if self
                        .told
                        .is_none_or(|told| told.elapsed() > TELLING_INTERVAL)
                    {
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
        // Looked at before the lanes are: what is in them by then is to be written.
        let end = asked.end.load(Ordering::Acquire);
        if asked.reopen.swap(false, Ordering::AcqRel) {
            // What waits was logged before the file was moved away.
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
