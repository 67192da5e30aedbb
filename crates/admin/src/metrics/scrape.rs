//! Renders the page of metrics for scrapers.
//!
//! A thread of its own renders the page, with a lower priority than the workers, so that a scrape delays no request. The
//! page is written in pieces, to memory while it is small and else to an unnamed temporary file, and sent from there. Pages
//! are rendered one after the other. Scrapers that come while one is rendered share the next one: they get values that are
//! not older than their request, and any number of scrapers costs no more than two. A limited number of pages is kept for
//! slow scrapers: the oldest is given up for a new one, so that slow scrapers do not lock out others.

use crate::respond::Failure;
use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use services::metrics::{Format, Page, lower_priority};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use tempfile::{SpooledData, SpooledTempFile, spooled_tempfile_in};
use tokio::sync::{OnceCell, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::spawn_blocking;

/// Maximum size of a page that is kept in memory.
const IN_MEMORY: usize = 4 << 20;
/// Size of the chunks in which a page is sent. A page that is not larger counts against no limit.
const CHUNK: usize = 64 << 10;
/// Maximum number of pages that are being rendered or sent, so that slow scrapers cannot fill the memory and the disk.
const PAGES: usize = 8;

/// What a scraper wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Wanted {
    pub(super) format: Format,
    pub(super) is_compressed: bool,
}

/// The pages that are being rendered.
pub(crate) struct Scrapes {
    /// For each kind of page the one that was not begun.
    next: Mutex<HashMap<Wanted, Arc<OnceCell<Rendered>>>>,
    /// Held while a page is rendered, also if its scrapers have left.
    turn: Arc<tokio::sync::Mutex<()>>,
    pages: Arc<Semaphore>,
    /// The pages that may be given up, from the oldest on.
    kept: Mutex<VecDeque<Weak<Kept>>>,
    /// The thread that renders, once there was a scrape.
    thread: Mutex<Option<mpsc::Sender<Job>>>,
}

/// What the thread does: it renders a page and hands it over.
type Job = Box<dyn FnOnce() + Send>;

impl Default for Scrapes {
    fn default() -> Self {
        Self {
            next: Mutex::default(),
            turn: Arc::default(),
            pages: Arc::new(Semaphore::new(PAGES)),
            kept: Mutex::default(),
            thread: Mutex::default(),
        }
    }
}

/// A complete page.
#[derive(Clone)]
enum Rendered {
    Small(Bytes),
    Kept(Arc<Kept>),
}

/// A page that is kept until it is sent, or until another one needs its place.
struct Kept {
    page: Mutex<Option<(Stored, OwnedSemaphorePermit)>>,
    length: u64,
}

#[derive(Clone)]
enum Stored {
    InMemory(Bytes),
    OnDisk(Arc<File>),
}

impl Scrapes {
    /// Returns the response for a scraper, without its content type. `write` writes the page; the file is in `directory`.
    pub(super) async fn answer(
        &self,
        wanted: Wanted,
        directory: &Path,
        write: impl FnOnce(&mut Page) + Send + 'static,
    ) -> Result<Response, Failure> {
        let page = self.next().entry(wanted).or_default().clone();
        let rendered = page.get_or_try_init(|| self.render(wanted, directory, write, &page));
        Ok(match rendered.await?.clone() {
            Rendered::Small(bytes) => bytes.into_response(),
            Rendered::Kept(page) => {
                let length = page.length;
                let mut response = sent_from(page).into_response();
                response.headers_mut().insert(CONTENT_LENGTH, length.into());
                response
            }
        })
    }

    async fn render(
        &self,
        wanted: Wanted,
        directory: &Path,
        write: impl FnOnce(&mut Page) + Send + 'static,
        page: &Arc<OnceCell<Rendered>>,
    ) -> Result<Rendered, Failure> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        self.begin(wanted, page);
        let permit = Arc::clone(&self.pages).try_acquire_owned().ok();
        let permit = permit.or_else(|| self.give_up_oldest()).ok_or_else(|| {
            let text = "too many scrapes are being sent; try again later";
            Failure::Message(StatusCode::SERVICE_UNAVAILABLE, text.into())
        })?;
        let (send, rendered) = oneshot::channel();
        let spool = spooled_tempfile_in(IN_MEMORY, directory);
        let render = move || {
            let _turn: OwnedMutexGuard<()> = turn;
            let rendered = render(wanted, spool, write, permit);
            // If all scrapers have left, nobody receives the page.
            let _ = send.send(rendered);
        };
        self.run(Box::new(render)).map_err(Failure::internal)?;
        let rendered = rendered.await.map_err(Failure::internal)?;
        if let Ok(Rendered::Kept(page)) = &rendered {
            let mut kept = self.kept();
            kept.retain(|kept| kept.strong_count() > 0);
            kept.push_back(Arc::downgrade(page));
        }
        rendered.map_err(|error| {
            tracing::error!(%error, "the metrics cannot be written");
            let text =
                "the metrics cannot be written to a temporary file: the disk is full or failing";
            Failure::Message(StatusCode::INSUFFICIENT_STORAGE, text.into())
        })
    }

    /// Runs a job on the thread, and starts the thread if there is none.
    fn run(&self, job: Job) -> io::Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = match &mut *thread {
            Some(jobs) => jobs,
            None => {
                let (jobs, receiver) = mpsc::channel();
                let builder = thread::Builder::new().name("metrics".to_owned());
                builder.spawn(move || work(&receiver))?;
                thread.insert(jobs)
            }
        };
        let sent = jobs.send(job);
        sent.map_err(|_| io::Error::other("the thread for metrics has ended"))
    }

    /// Takes the oldest page from its scrapers, and returns its permit.
    fn give_up_oldest(&self) -> Option<OwnedSemaphorePermit> {
        let mut kept = self.kept();
        while let Some(oldest) = kept.pop_front() {
            let page = oldest.upgrade().and_then(|oldest| oldest.page().take());
            if let Some((_, permit)) = page {
                return Some(permit);
            }
        }
        None
    }

    /// Makes scrapers that come from now on get the next page.
    fn begin(&self, wanted: Wanted, page: &Arc<OnceCell<Rendered>>) {
        let mut next = self.next();
        if next
            .get(&wanted)
            .is_some_and(|next| Arc::ptr_eq(next, page))
        {
            next.remove(&wanted);
        }
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Weak<Kept>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> MutexGuard<'_, HashMap<Wanted, Arc<OnceCell<Rendered>>>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the jobs of a thread until their sender is dropped.
fn work(jobs: &mpsc::Receiver<Job>) {
    lower_priority();
    for job in jobs {
        // A panic was logged. Whoever waits for the page learns that it will not come.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

/// Renders a page.
fn render(
    wanted: Wanted,
    spool: SpooledTempFile,
    write: impl FnOnce(&mut Page),
    permit: OwnedSemaphorePermit,
) -> io::Result<Rendered> {
    let spool = Spool(Arc::new(Mutex::new(spool)));
    let sink: Box<dyn Write + Send> = match wanted.is_compressed {
        true => Box::new(Compressed(GzEncoder::new(
            spool.clone(),
            Compression::fast(),
        ))),
        false => Box::new(spool.clone()),
    };
    let mut page = Page::new(wanted.format, sink);
    write(&mut page);
    page.finish()?;
    // The page has dropped its sink, so nobody else has the spool.
    let spool = Arc::into_inner(spool.0).ok_or_else(|| io::Error::other("the page is in use"))?;
    finished(
        spool.into_inner().unwrap_or_else(PoisonError::into_inner),
        permit,
    )
}

fn finished(mut spool: SpooledTempFile, permit: OwnedSemaphorePermit) -> io::Result<Rendered> {
    let length = spool.stream_position()?;
    let page = match spool.into_inner() {
        SpooledData::InMemory(bytes) => Stored::InMemory(bytes.into_inner().into()),
        SpooledData::OnDisk(file) => Stored::OnDisk(Arc::new(file)),
    };
    Ok(match page {
        Stored::InMemory(bytes) if bytes.len() <= CHUNK => Rendered::Small(bytes),
        page => Rendered::Kept(Arc::new(Kept {
            page: Mutex::new(Some((page, permit))),
            length,
        })),
    })
}

impl Kept {
    fn page(&self) -> MutexGuard<'_, Option<(Stored, OwnedSemaphorePermit)>> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the chunk at this place. It is a copy, so that it does not keep the page in memory.
    async fn chunk(&self, at: u64) -> io::Result<Bytes> {
        let page = self.page().as_ref().map(|(page, _)| page.clone());
        let left = usize::try_from(self.length - at).unwrap_or(CHUNK);
        let size = left.min(CHUNK);
        match page {
            None => Err(io::Error::other("the scraper was too slow")),
            Some(Stored::InMemory(bytes)) => {
                let chunk = usize::try_from(at).ok();
                let chunk = chunk.and_then(|at| bytes.get(at..at + size));
                chunk
                    .map(Bytes::copy_from_slice)
                    .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
            }
            Some(Stored::OnDisk(file)) => {
                let read = spawn_blocking(move || {
                    let mut chunk = vec![0; size];
                    file.read_exact_at(&mut chunk, at)?;
                    Ok::<_, io::Error>(Bytes::from(chunk))
                });
                read.await.map_err(io::Error::other)?
            }
        }
    }
}

/// The sink of a page, which can be taken when the page is complete.
#[derive(Clone)]
struct Spool(Arc<Mutex<SpooledTempFile>>);

impl Spool {
    fn lock(&self) -> MutexGuard<'_, SpooledTempFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lock().flush()
    }
}

/// Compresses a page. Flushing ends it: a page is flushed once, at its end.
struct Compressed(GzEncoder<Spool>);

impl Write for Compressed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.try_finish()
    }
}

/// A body that is read from the page as fast as the client receives it.
fn sent_from(page: Arc<Kept>) -> Body {
    let chunks = futures_util::stream::try_unfold((page, 0_u64), |(page, at)| async move {
        if at >= page.length {
            return Ok::<_, io::Error>(None);
        }
        let chunk = page.chunk(at).await?;
        let at = at + chunk.len() as u64;
        Ok(Some((chunk, (page, at))))
    });
    Body::from_stream(chunks)
}

#[cfg(test)]
mod tests;
