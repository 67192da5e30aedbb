//! The phases of plugins, over sockets. The plugins do what each test says.

mod endings;
mod framing;
mod leaving;
mod over_http2;
mod replacing;
mod request_body;
mod rewrite;
mod targets;
mod whole;

use super::*;
use plugin::{Chunk, Filtered, LogCx, PluginError, Request, RequestCx, Response, ResponseCx, Step};
use std::sync::atomic::Ordering;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

type Asked = Rc<dyn Fn(&mut RequestCx<'_, '_>, &mut u32) -> Result<Step<'static>, PluginError>>;
type Piece = Rc<dyn Fn(&mut Chunk) -> Result<(), PluginError>>;
type Whole = Rc<dyn Fn(&mut ResponseCx<'_, '_>) -> Result<Step<'static>, PluginError>>;
type Head = Rc<dyn Fn(&mut ResponseCx<'_, '_>) -> Result<Filtered, PluginError>>;
type Body = Rc<dyn Fn(&mut ResponseCx<'_, '_>, &mut Chunk) -> Result<(), PluginError>>;
type Logged = Rc<dyn Fn(&LogCx<'_, '_>, u32)>;

/// What the phases of a plugin do.
#[derive(Default, Clone)]
struct Acts {
    rewrite: Option<Asked>,
    access: Option<Asked>,
    request_body: Option<Piece>,
    response: Option<Whole>,
    header_filter: Option<Head>,
    body_filter: Option<Body>,
    log: Option<Logged>,
}

thread_local! {
    static ACTS: RefCell<[Acts; 3]> = RefCell::default();
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

/// Defines functions that set what a phase does.
macro_rules! acts {
    ($($phase:ident($($argument:ty),*) -> $result:ty;)*) => {
        impl Acts {
            $(fn $phase(mut self, act: impl Fn($($argument),*) -> $result + 'static) -> Self {
                self.$phase = Some(Rc::new(act));
                self
            })*
        }
    };
}

acts! {
    rewrite(&mut RequestCx<'_, '_>, &mut u32) -> Result<Step<'static>, PluginError>;
    access(&mut RequestCx<'_, '_>, &mut u32) -> Result<Step<'static>, PluginError>;
    request_body(&mut Chunk) -> Result<(), PluginError>;
    response(&mut ResponseCx<'_, '_>) -> Result<Step<'static>, PluginError>;
    header_filter(&mut ResponseCx<'_, '_>) -> Result<Filtered, PluginError>;
    body_filter(&mut ResponseCx<'_, '_>, &mut Chunk) -> Result<(), PluginError>;
}

impl Acts {
    fn new() -> Self {
        Self::default()
    }

    fn log(mut self, act: impl Fn(&LogCx<'_, '_>, u32) + 'static) -> Self {
        self.log = Some(Rc::new(act));
        self
    }

    /// Notes the status in the log phase.
    fn logs(self) -> Self {
        self.log(|cx, _| note(format!("log {}", cx.entry.status)))
    }

    /// Defines plugin number `N`. Plugins with smaller numbers run earlier.
    fn define<const N: usize>(self) -> Arc<PluginDef> {
        let mut phases = Phases::NONE;
        for (phase, is_used) in [
            (Phases::REWRITE, self.rewrite.is_some()),
            (Phases::ACCESS, self.access.is_some()),
            (Phases::REQUEST_BODY, self.request_body.is_some()),
            (Phases::RESPONSE, self.response.is_some()),
            (Phases::HEADER_FILTER, self.header_filter.is_some()),
            (Phases::BODY_FILTER, self.body_filter.is_some()),
            (Phases::LOG, self.log.is_some()),
        ] {
            if is_used {
                phases = phases.with(phase);
            }
        }
        ACTS.with_borrow_mut(|acts| acts[N] = self);
        define::<Actor<N>>(["first", "second", "third"][N], 100 - N as i32, phases)
    }
}

/// A plugin that does what [`ACTS`] says.
struct Actor<const N: usize>;

impl<const N: usize> Actor<N> {
    fn act<T: ?Sized>(field: impl Fn(&Acts) -> &Option<Rc<T>>) -> Rc<T> {
        let act = ACTS.with_borrow(|acts| field(&acts[N]).clone());
        act.expect("only phases that do something run")
    }
}

impl<const N: usize> plugin::Plugin for Actor<N> {
    type Config = serde::de::IgnoredAny;
    type Own = u32;

    fn build(
        _: serde::de::IgnoredAny,
        _: &plugin::BuildCx<'_>,
    ) -> Result<Self, plugin::BuildError> {
        Ok(Self)
    }

    fn rewrite<'a>(
        &'a self,
        mut cx: RequestCx<'a, '_>,
        own: &'a mut u32,
    ) -> Result<Step<'a>, PluginError> {
        Self::act(|acts| &acts.rewrite)(&mut cx, own)
    }

    fn access<'a>(
        &'a self,
        mut cx: RequestCx<'a, '_>,
        own: &'a mut u32,
    ) -> Result<Step<'a>, PluginError> {
        Self::act(|acts| &acts.access)(&mut cx, own)
    }

    fn request_body(
        &self,
        _: &Request<'_>,
        _: &mut u32,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        Self::act(|acts| &acts.request_body)(chunk)
    }

    fn response<'a>(
        &'a self,
        mut cx: ResponseCx<'a, '_>,
        _: &'a mut u32,
    ) -> Result<Step<'a>, PluginError> {
        Self::act(|acts| &acts.response)(&mut cx)
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        _: &mut u32,
    ) -> Result<Filtered, PluginError> {
        Self::act(|acts| &acts.header_filter)(cx)
    }

    fn body_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        _: &mut u32,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        Self::act(|acts| &acts.body_filter)(cx, chunk)
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, own: &mut u32) {
        Self::act(|acts| &acts.log)(cx, *own);
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
