//! What Lua code works on during a slice: the request, the response or the connection of the phase that runs.
//!
//! A [`Target`] borrows the context of a phase. During the slice, the functions of the ABI reach it through raw pointers
//! ([`Raw`]). They are set before the slice and cleared after it, so Lua can keep none of them.

#![expect(
    unsafe_code,
    reason = "the context is behind raw pointers during a slice"
)]

use bytes::Bytes;
use net::http1::ResponseHead;
use plugin::{
    Answer, CertificateCx, Chunk, Configured, EndedStreamCx, LogCx, LogEntry, Node, Request,
    RequestCx, RequestState, ResponseCx, UpstreamEdits,
};
use std::marker::PhantomData;
use std::sync::Arc;

/// A phase in which Lua code runs. The numbers are bits, so that a function can name the phases in which it may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// Outside of requests, as in a timer.
    None = 0,
    Certificate = 1,
    Rewrite = 2,
    Access = 4,
    Response = 8,
    HeaderFilter = 16,
    BodyFilter = 32,
    Log = 64,
}

impl Phase {
    pub(crate) const ALL: [(&'static str, Phase); 8] = [
        ("none", Phase::None),
        ("certificate", Phase::Certificate),
        ("rewrite", Phase::Rewrite),
        ("access", Phase::Access),
        ("response", Phase::Response),
        ("header_filter", Phase::HeaderFilter),
        ("body_filter", Phase::BodyFilter),
        ("log", Phase::Log),
    ];
}

/// The context of a phase, borrowed for one slice.
pub struct Target<'a> {
    pub(crate) raw: Raw,
    context: PhantomData<&'a mut ()>,
}

/// What code has in addition to a request that it reads.
pub struct Parts<'a> {
    pub state: &'a mut RequestState,
    pub configured: Configured<'a>,
    pub node: &'a Arc<Node>,
}

/// The parts of a context. A part that the phase does not have is `None`.
#[derive(Clone, Copy)]
pub(crate) struct Raw {
    pub(crate) phase: Phase,
    /// Position of the plugin in the execution order.
    pub(crate) plugin: u16,
    /// Name of the plugin, for the lines that its code logs.
    pub(crate) plugin_name: &'static str,
    request: Option<*const Request<'static>>,
    editable: Option<*mut Request<'static>>,
    state: Option<*mut RequestState>,
    configured: Option<Configured<'static>>,
    node: Option<*const Arc<Node>>,
    upstream: Option<*const ResponseHead>,
    upstream_body: Option<*const Bytes>,
    answer: Option<*mut Answer>,
    chunk: Option<*mut Chunk>,
    log: Option<*const LogCx<'static, 'static>>,
    certificate: Option<*const CertificateCx<'static>>,
    stream: Option<*const EndedStreamCx<'static>>,
}

impl Raw {
    pub(crate) const NONE: Raw = Raw {
        phase: Phase::None,
        plugin: u16::MAX,
        plugin_name: "",
        request: None,
        editable: None,
        state: None,
        configured: None,
        node: None,
        upstream: None,
        upstream_body: None,
        answer: None,
        chunk: None,
        log: None,
        certificate: None,
        stream: None,
    };
}

impl<'a> Target<'a> {
    /// No request and no connection, as in a timer.
    pub fn node(node: &'a Arc<Node>) -> Self {
        Self::new(Raw {
            node: Some(node),
            ..Raw::NONE
        })
    }

    /// No request, but a state for the tables of a timer, which it keeps while it waits.
    pub(crate) fn timer(node: &'a Arc<Node>, state: &'a mut RequestState) -> Self {
        Self::new(Raw {
            node: Some(node),
            state: Some(state),
            ..Raw::NONE
        })
    }

    /// The request of `rewrite` or `access`, which it may change.
    pub fn request(phase: Phase, cx: &'a mut RequestCx<'_, '_>) -> Self {
        let request: *mut Request<'_> = &mut *cx.request;
        Self::new(Raw {
            phase,
            plugin: cx.configured.plugin,
            request: Some(request.cast_const().cast()),
            editable: Some(request.cast()),
            state: Some(&mut *cx.state),
            configured: Some(forget(cx.configured)),
            node: Some(cx.node),
            ..Raw::NONE
        })
    }

    /// A request that the code only reads, because the caller has parts of it, too.
    pub fn reading(phase: Phase, request: &'a Request<'_>, parts: Parts<'a>) -> Self {
        Self::new(Raw {
            phase,
            plugin: parts.configured.plugin,
            request: Some((&raw const *request).cast()),
            state: Some(parts.state),
            configured: Some(forget(parts.configured)),
            node: Some(parts.node),
            ..Raw::NONE
        })
    }

    /// The response of `response` or `header_filter`.
    pub fn response(phase: Phase, cx: &'a mut ResponseCx<'_, '_>) -> Self {
        Self::new(Raw {
            phase,
            plugin: cx.configured.plugin,
            request: Some((&raw const *cx.request).cast()),
            state: Some(&mut *cx.state),
            configured: Some(forget(cx.configured)),
            node: Some(cx.node),
            upstream: cx.upstream.map(|head| head as *const ResponseHead),
            upstream_body: cx.upstream_body.map(|body| body as *const Bytes),
            answer: Some(&mut *cx.answer),
            ..Raw::NONE
        })
    }

    /// A piece of a response's body.
    pub fn piece(cx: &'a mut ResponseCx<'_, '_>, chunk: &'a mut Chunk) -> Self {
        let mut target = Self::response(Phase::BodyFilter, cx);
        target.raw.chunk = Some(chunk);
        target
    }

    pub fn log(cx: &'a mut LogCx<'_, '_>) -> Self {
        let log: *const LogCx<'_, '_> = &raw const *cx;
        Self::new(Raw {
            phase: Phase::Log,
            log: Some(log.cast()),
            plugin: cx.configured.plugin,
            request: Some((&raw const *cx.request).cast()),
            state: Some(&mut *cx.state),
            configured: Some(forget(cx.configured)),
            node: Some(cx.node),
            ..Raw::NONE
        })
    }

    /// A handshake, with a state for its tables.
    pub fn certificate(cx: &'a CertificateCx<'_>, state: &'a mut RequestState) -> Self {
        Self::new(Raw {
            phase: Phase::Certificate,
            plugin: cx.configured.plugin,
            configured: Some(forget(cx.configured)),
            state: Some(state),
            node: Some(cx.node),
            certificate: Some((&raw const *cx).cast()),
            ..Raw::NONE
        })
    }

    /// A session that has ended, with a state for the fields of its log record.
    pub fn ended_stream(cx: &'a EndedStreamCx<'_>, state: &'a mut RequestState) -> Self {
        Self::new(Raw {
            phase: Phase::Log,
            state: Some(state),
            node: Some(cx.node),
            stream: Some((&raw const *cx).cast()),
            ..Raw::NONE
        })
    }

    /// Sets the name of the plugin whose code runs, for the lines that it logs.
    pub fn of(mut self, plugin: &'static str) -> Self {
        self.raw.plugin_name = plugin;
        self
    }

    fn new(raw: Raw) -> Self {
        Self {
            raw,
            context: PhantomData,
        }
    }
}

/// Extends the life of a context's part, which [`Target`] bounds again.
fn forget(configured: Configured<'_>) -> Configured<'static> {
    // SAFETY: the two types differ only in their lifetime, and the value is used only during the slice.
    unsafe { std::mem::transmute::<Configured<'_>, Configured<'static>>(configured) }
}

// SAFETY of all that follow: the pointers come from the references of a `Target`, which lives during the slice, and a
// slice runs on one thread. Each function of the ABI takes what it needs and returns before the next one is called, so
// no two exclusive references to one part exist at the same time.
impl Raw {
    pub(crate) fn request(&self) -> Option<&Request<'_>> {
        self.request.map(|request| unsafe { &*request.cast() })
    }

    /// The changes to the request for the upstream, if the phase may make them.
    pub(crate) fn edits_mut(&mut self) -> Option<&mut UpstreamEdits> {
        self.editable
            .map(|request| unsafe { &mut (*request).upstream })
    }

    /// Changes the request, if the phase may. The function does not know the life of what the request borrows, so it can
    /// neither keep a part of it nor give it something that lives shorter.
    pub(crate) fn change_request<T>(
        &mut self,
        change: impl for<'r> FnOnce(&mut Request<'r>) -> T,
    ) -> Option<T> {
        self.editable
            .map(|request| change(unsafe { &mut *request }))
    }

    pub(crate) fn state(&self) -> Option<&RequestState> {
        self.state.map(|state| unsafe { &*state })
    }

    pub(crate) fn state_mut(&mut self) -> Option<&mut RequestState> {
        self.state.map(|state| unsafe { &mut *state })
    }

    pub(crate) fn configured(&self) -> Option<Configured<'_>> {
        self.configured
    }

    pub(crate) fn node(&self) -> Option<&Arc<Node>> {
        self.node.map(|node| unsafe { &*node })
    }

    pub(crate) fn upstream(&self) -> Option<&ResponseHead> {
        self.upstream.map(|head| unsafe { &*head })
    }

    pub(crate) fn upstream_body(&self) -> Option<&Bytes> {
        self.upstream_body.map(|body| unsafe { &*body })
    }

    pub(crate) fn answer(&self) -> Option<&Answer> {
        self.answer.map(|answer| unsafe { &*answer })
    }

    pub(crate) fn answer_mut(&mut self) -> Option<&mut Answer> {
        self.answer.map(|answer| unsafe { &mut *answer })
    }

    pub(crate) fn chunk(&self) -> Option<&Chunk> {
        self.chunk.map(|chunk| unsafe { &*chunk })
    }

    pub(crate) fn chunk_mut(&mut self) -> Option<&mut Chunk> {
        self.chunk.map(|chunk| unsafe { &mut *chunk })
    }

    /// The context of `log`. Its state must not be used while [`Self::state_mut`] is.
    pub(crate) fn log(&self) -> Option<&LogCx<'_, '_>> {
        self.log.map(|log| unsafe { &*log.cast() })
    }

    pub(crate) fn entry(&self) -> Option<&LogEntry<'_>> {
        self.log().map(|log| log.entry)
    }

    pub(crate) fn stream(&self) -> Option<&EndedStreamCx<'_>> {
        self.stream.map(|cx| unsafe { &*cx.cast() })
    }

    pub(crate) fn certificate(&self) -> Option<&CertificateCx<'_>> {
        self.certificate.map(|cx| unsafe { &*cx.cast() })
    }
}
