//! Plugins whose phases are closures, so that a test says what its plugins do where it uses them.

use super::*;
use plugin::{Chunk, Filtered, LogCx, PluginError, Request, RequestCx, ResponseCx, Step};

type Asked = Rc<dyn Fn(&mut RequestCx<'_, '_>, &mut u32) -> Result<Step<'static>, PluginError>>;
type Piece = Rc<dyn Fn(&mut Chunk) -> Result<(), PluginError>>;
type Whole = Rc<dyn Fn(&mut ResponseCx<'_, '_>) -> Result<Step<'static>, PluginError>>;
type Head = Rc<dyn Fn(&mut ResponseCx<'_, '_>) -> Result<Filtered, PluginError>>;
type Body = Rc<dyn Fn(&mut ResponseCx<'_, '_>, &mut Chunk) -> Result<(), PluginError>>;
type Logged = Rc<dyn Fn(&LogCx<'_, '_>, u32)>;

/// What the phases of a plugin do: `Acts::new().access(…).define::<0>()`.
#[derive(Default, Clone)]
pub(super) struct Acts {
    rewrite: Option<Asked>,
    access: Option<Asked>,
    request_body: Option<Piece>,
    response: Option<Whole>,
    header_filter: Option<Head>,
    body_filter: Option<Body>,
    log: Option<Logged>,
    logs_without_head: bool,
}

thread_local! {
    static ACTS: RefCell<[Acts; 3]> = RefCell::default();
}

/// Defines functions that set what a phase does.
macro_rules! acts {
    ($($phase:ident($($argument:ty),*) -> $result:ty;)*) => {
        impl Acts {
            $(pub(super) fn $phase(mut self, act: impl Fn($($argument),*) -> $result + 'static) -> Self {
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
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn log(mut self, act: impl Fn(&LogCx<'_, '_>, u32) + 'static) -> Self {
        self.log = Some(Rc::new(act));
        self
    }

    /// Like [`Self::log`], for an act that does not read the head of the response.
    pub(super) fn log_without_head(mut self, act: impl Fn(&LogCx<'_, '_>, u32) + 'static) -> Self {
        self.logs_without_head = true;
        self.log(act)
    }

    /// Defines plugin number `N`. Plugins with smaller numbers run earlier.
    pub(super) fn define<const N: usize>(self) -> Arc<PluginDef> {
        let mut phases = Phases::NONE;
        let log = match self.logs_without_head {
            true => Phases::LOG_WITHOUT_HEAD,
            false => Phases::LOG,
        };
        for (phase, is_used) in [
            (Phases::REWRITE, self.rewrite.is_some()),
            (Phases::ACCESS, self.access.is_some()),
            (Phases::REQUEST_BODY, self.request_body.is_some()),
            (Phases::RESPONSE, self.response.is_some()),
            (Phases::HEADER_FILTER, self.header_filter.is_some()),
            (Phases::BODY_FILTER, self.body_filter.is_some()),
            (log, self.log.is_some()),
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
    type Own = u32;

    without_config!();

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
