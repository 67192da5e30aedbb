//! Runs the plugins of one request, phase by phase. The instances are chosen when their turn comes in `access`, with the
//! consumer that is known at that moment. The later phases run the same instances.
//! Source: kong/init.lua execute_collecting_plugins_iterator(), execute_collected_plugins_iterator().

mod going_on;
mod picked;

use super::results::{Ran, asked_too_often, check_status, ending, finish, report};
use super::timing::{Timed, Timer};
use super::{Doing, Instances, PhaseMark, Plan, RouteMark, debugging, early_headers};
use crate::respond::{GatewayResponse, ResponseSettings};
use bytes::Bytes;
use going_on::GoesOn;
use net::http1::ResponseHead;
pub(super) use picked::Picked;
use picked::{nobody, with};
use plugin::trace::PluginPhase;
use plugin::{
    Answer, Chunk, ConfiguredNames, Filtered, Flow, HeaderEdits, Instrumentations,
    InternalRedirect, LogCx, LogEntry, Node, OwnStates, Phases, Reason, Request, RequestBody,
    RequestCx, RequestState, Response, ResponseCx, Step, Trace,
};
use router::RouteIndex;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The plugins of a request.
pub struct Chain<'r> {
    pub(super) instances: &'r Instances,
    names: &'r dyn ConfiguredNames,
    pub(super) node: &'r Arc<Node>,
    /// The phases of the picked instances together.
    pub(super) phases: Phases,
    /// Whether the head of the response is kept also if no plugin reads it.
    keeps_head: bool,
    /// Where the worker notes which handler runs.
    doing: &'r Doing,
    route: RouteMark,
    /// `None` as long as no plugin runs. Boxed, because most of a connection's time no request uses it.
    memory: Option<Box<ChainMemory>>,
}

/// The head of a response as plugins see it in the log phase.
#[derive(Default)]
pub struct SentHead {
    pub bytes: Vec<u8>,
    /// Number of bytes that were sent.
    pub size: u64,
}

/// What the plugins of a request have found out, the instances chosen so far, and their own states. The memory is reused
/// for later requests.
#[derive(Default)]
pub struct ChainMemory {
    pub state: RequestState,
    /// The memory of the list of changes to the upstream's headers. A request takes it for its own list.
    pub upstream_headers: HeaderEdits,
    /// The response head as it was sent, kept only for plugins that log.
    pub sent_head: SentHead,
    pub(super) own: OwnStates,
    picked: Vec<Picked>,
    /// The plugin that ended the request, or failed.
    answered_by: Option<Picked>,
    /// Index of the slot of the global plan whose rewrite phase has asked for the body.
    rewritten: usize,
    /// Index of the next slot of the plan.
    next: usize,
    /// The instance that has asked for the body.
    waiting: Option<Picked>,
    /// The response of a plugin that does not end the walk.
    response: Option<Response>,
    /// Whether the plugin that ended the request has failed.
    failed: bool,
    /// Number of internal redirects so far.
    restarts: u8,
    /// Where the request goes on without its client.
    goes_on: Option<GoesOn>,
}

/// The length of the first line of a response up to its status.
const STATUS_END: usize = "HTTP/1.1 200".len();

/// Where chains note which handler runs if no worker runs them, as in tests.
static NOTHING: Doing = Doing::nothing();

/// The phases of plugins whose header filter runs.
#[inline]
fn header_filters(trace: &Trace) -> Phases {
    match trace.records(Instrumentations::PLUGIN_HEADER_FILTER) {
        true => Phases::HEADER_FILTER.with(Phases::HEADER_SPAN),
        false => Phases::HEADER_FILTER,
    }
}

impl ChainMemory {
    /// Forgets the request but keeps the memory of the lists.
    fn clear(&mut self) {
        let Self {
            state,
            upstream_headers,
            sent_head,
            own,
            picked,
            answered_by,
            rewritten,
            next,
            waiting,
            response,
            failed,
            restarts,
            goes_on,
        } = self;
        state.clear();
        upstream_headers.clear();
        let SentHead { bytes, size } = sent_head;
        bytes.clear();
        *size = 0;
        own.clear();
        picked.clear();
        *answered_by = None;
        *rewritten = 0;
        *next = 0;
        *waiting = None;
        *response = None;
        *failed = false;
        *restarts = 0;
        *goes_on = None;
    }
}

/// The reason why [`Chain::rewrite`] or [`Chain::access`] has returned.
#[derive(Debug)]
pub enum Access {
    /// A plugin reads the body. The caller reads it into [`Request::body`], or marks it as streamed, and calls the same
    /// function again. Returned at most once per request.
    NeedsBody,
    /// All plugins were processed, or one of them has ended the request.
    Done(Option<Box<Ended>>),
    /// The client has left, and a plugin did not want to go on without it.
    ClientGone,
}

/// How a plugin has ended the walk over the plugins. Boxed in results because it is rare and large.
#[derive(Debug)]
pub enum Ended {
    Answered {
        response: Response,
        /// Whether the response does not count as an answer of the plugin: the plugin has ended the request at once
        /// ([`Step::Exit`]), or it has failed.
        at_once: bool,
    },
    /// The request begins anew. [`Chain::restart`] prepares that.
    Redirected(InternalRedirect),
}

/// A filter phase that failed. The error was logged, and the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterFailed;

/// The client has left, and a plugin did not want to go on without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLeft;

/// The body that `header_filter` has put in place of another one. Status and headers are already in the answer.
pub type Replaced = Option<GatewayResponse>;

/// Ready when the client has left.
pub type PollGone<'p> = &'p mut (dyn FnMut(&mut Context<'_>) -> Poll<()> + Send);

impl<'r> Chain<'r> {
    /// Returns a chain without memory. [`Self::use_memory`] must be called before a plugin runs.
    #[inline]
    pub fn new(
        instances: &'r Instances,
        names: &'r dyn ConfiguredNames,
        node: &'r Arc<Node>,
    ) -> Self {
        Self {
            instances,
            names,
            node,
            phases: Phases::NONE,
            keeps_head: false,
            doing: &NOTHING,
            route: RouteMark::default(),
            memory: None,
        }
    }

    /// Makes the chain note in `doing` which handler runs. Without it, nobody learns of it.
    #[inline]
    pub fn note_in(&mut self, doing: &'r Doing) {
        self.doing = doing;
    }

    /// Sets the route that is noted with the handlers.
    #[inline]
    pub fn set_route(&mut self, route: Option<RouteIndex>) {
        self.route = route.map_or(RouteMark::default(), |route| RouteMark::new(route.0));
    }

    /// Makes the chain use this memory, which must be empty.
    pub fn use_memory(&mut self, memory: Box<ChainMemory>) {
        self.memory = Some(memory);
    }

    /// Makes the header filters run although no plugin has one, for a request debug.
    pub fn ask_for_header_filter(&mut self) {
        self.phases = self.phases.with(Phases::HEADER_FILTER);
    }

    /// Makes the chain keep the head of the response, for the access log.
    pub fn ask_for_sent_head(&mut self) {
        self.keeps_head = true;
    }

    pub fn node(&self) -> &'r Arc<Node> {
        self.node
    }

    pub fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Takes the memory back, emptied.
    pub fn take_memory(&mut self) -> Option<Box<ChainMemory>> {
        let mut memory = self.memory.take()?;
        memory.clear();
        Some(memory)
    }

    /// Returns what plugins have found out about the request, if any plugin applies to it.
    pub fn state(&self) -> Option<&RequestState> {
        self.memory.as_deref().map(|memory| &memory.state)
    }

    /// Returns the memory, for tests and for the caller that lends it.
    pub fn memory_mut(&mut self) -> Option<&mut ChainMemory> {
        self.memory.as_deref_mut()
    }

    /// Takes the response head that was kept for the log phase. [`Self::give_sent_head`] returns its memory.
    pub fn take_sent_head(&mut self) -> SentHead {
        let memory = self.memory.as_deref_mut();
        memory.map_or_else(SentHead::default, |memory| {
            std::mem::take(&mut memory.sent_head)
        })
    }

    /// Takes the list of changes to a response back, whose memory serves the next request.
    #[inline]
    pub fn give_headers(&mut self, mut headers: HeaderEdits) {
        if let Some(memory) = &mut self.memory {
            headers.clear();
            memory.state.headers = headers;
        }
    }

    pub fn give_sent_head(&mut self, head: SentHead) {
        if let Some(memory) = &mut self.memory {
            memory.sent_head = head;
        }
    }

    /// Keeps the head of a response for the log phase, if a plugin or the access log reads it there. Otherwise its beginning
    /// is kept, which has the status. `own_date` is the place of the `Date` that the gateway has added. In Kong, nginx adds
    /// it after all plugins, so that they do not see it.
    #[inline]
    pub fn keep_head(&mut self, head: &[u8], own_date: Range<usize>) {
        if let Some(memory) = &mut self.memory {
            let SentHead { bytes, size } = &mut memory.sent_head;
            bytes.clear();
            *size = head.len() as u64;
            if self.keeps_head || self.phases.intersects(Phases::SENT_HEAD) {
                bytes.extend_from_slice(&head[..own_date.start]);
                bytes.extend_from_slice(&head[own_date.end..]);
            } else {
                bytes.extend_from_slice(&head[..head.len().min(STATUS_END)]);
            }
        }
    }

    /// Whether a picked instance has one of these phases.
    #[inline]
    pub fn has(&self, phases: Phases) -> bool {
        self.phases.intersects(phases)
    }

    /// Whether the response to the client is left as it is.
    #[inline]
    pub fn leaves_responses(&self) -> bool {
        match &self.memory {
            None => true,
            Some(memory) => {
                !self.has(header_filters(&memory.state.trace).with(Phases::BODY_FILTER))
                    && memory.state.headers.is_empty()
            }
        }
    }

    /// Returns the name of the plugin that ended the request, or failed.
    pub fn answered_by(&self) -> Option<&'r str> {
        let picked = self.memory.as_deref()?.answered_by?;
        Some(&self.instances.get(picked.instance).def.name)
    }

    /// Returns the position, in the execution order, of the plugin that ended the request, or failed.
    #[inline]
    pub fn answerer(&self) -> Option<u16> {
        let picked = self.memory.as_deref()?.answered_by?;
        Some(picked.plugin)
    }

    /// Why the response is that of a plugin: it has answered, or it has failed.
    pub fn reason(&self) -> Reason {
        match self.memory.as_deref() {
            Some(ChainMemory { failed: true, .. }) => Reason::PluginFailed,
            _ => Reason::Plugin,
        }
    }

    /// Runs the rewrite phase of the global instances, in order, until one ends the request. The walk pauses when a plugin
    /// asks for the body.
    pub async fn rewrite(
        &mut self,
        globals: &Plan,
        request: &mut Request<'_>,
        poll_gone: PollGone<'_>,
    ) -> Access {
        let _ends = self.doing.ends();
        let Some(memory) = self.memory.as_deref_mut() else {
            return Access::Done(None);
        };
        let kinds = self.node.identity.tracing.instrumentations;
        let is_timed = kinds.intersects(Instrumentations::PLUGIN_REWRITE)
            || memory.state.trace.records(Instrumentations::PLUGIN_REWRITE);
        let mut timer = is_timed.then(|| Timer::start(PluginPhase::Rewrite));
        for at in memory.rewritten..globals.slots.len() {
            let slot = &globals.slots[at];
            let Some(choice) = slot.default else {
                continue;
            };
            let instance = self.instances.get(choice.instance);
            if !instance.phases.intersects(Phases::REWRITE) {
                continue;
            }
            let picked = Picked {
                instance: choice.instance,
                plugin: slot.order,
                scopes: choice.scopes,
                consumer: None,
            };
            let cx = RequestCx {
                request,
                state: &mut memory.state,
                configured: picked.configured(self.names),
                node: self.node,
            };
            let mark = self.doing.mark(PhaseMark::Rewrite, slot.order, self.route);
            mark.begin();
            let step = instance.plugin.rewrite(cx, memory.own.slot(slot.order));
            let ran = finish(step, mark, poll_gone).await;
            if let Some(timer) = &mut timer {
                let ran = Timed::new(instance, &picked, ran.as_ref().err());
                timer.end(&mut memory.state.trace, &ran, self.names, request);
            }
            if let Ok(Ran::Decided(Flow::ReadBody)) = ran
                && matches!(request.body, RequestBody::Unread)
            {
                memory.rewritten = at;
                return Access::NeedsBody;
            }
            if let Ok(Ran::Decided(Flow::InternalRedirect(redirect))) = ran {
                return Access::Done(Some(Box::new(Ended::Redirected(redirect))));
            }
            let ended = match ending("rewrite", instance, ran, &mut memory.failed) {
                Ok(None) => continue,
                Ok(Some(response)) => {
                    memory.answered_by = Some(picked);
                    Access::Done(Some(Box::new(Ended::Answered {
                        response,
                        at_once: true,
                    })))
                }
                Err(ClientLeft) => Access::ClientGone,
            };
            self.pick_defaults(globals);
            return ended;
        }
        Access::Done(None)
    }

    /// Runs the access phase of each plugin in order. After a plugin responds or fails, no further access handler runs.
    /// The walk still visits the remaining plugins, because their later phases run too. The walk pauses when a plugin
    /// asks for the body.
    pub async fn access(
        &mut self,
        plan: &Plan,
        request: &mut Request<'_>,
        poll_gone: PollGone<'_>,
    ) -> Access {
        self.access_as::<false>(plan, request, poll_gone).await
    }

    /// Does what [`Self::access`] does, and records how long each plugin takes. Boxed because it is rare, and would
    /// enlarge the task of every connection.
    pub async fn access_timed(
        &mut self,
        plan: &Plan,
        request: &mut Request<'_>,
        poll_gone: PollGone<'_>,
    ) -> Access {
        Box::pin(self.access_as::<true>(plan, request, poll_gone)).await
    }

    #[inline]
    async fn access_as<const IS_TIMED: bool>(
        &mut self,
        plan: &Plan,
        request: &mut Request<'_>,
        poll_gone: PollGone<'_>,
    ) -> Access {
        let _ends = self.doing.ends();
        let Some(memory) = self.memory.as_deref_mut() else {
            return Access::Done(None);
        };
        memory.state.is_unlogged = !plan.has(Phases::LOG);
        let mut timer = IS_TIMED.then(|| Timer::start(PluginPhase::Access));
        loop {
            let before = memory.waiting.is_none().then_some(self.phases);
            let (picked, instance) = match memory.waiting.take() {
                Some(picked) => (picked, self.instances.get(picked.instance)),
                None => match memory.pick_next(plan, self.instances, &mut self.phases) {
                    Some(next) => next,
                    None => break,
                },
            };
            if memory.response.is_some() || !instance.phases.intersects(Phases::ACCESS) {
                continue;
            }
            let cx = RequestCx {
                request,
                state: &mut memory.state,
                configured: picked.configured(self.names),
                node: self.node,
            };
            if IS_TIMED && let Some(timer) = &mut timer {
                timer.call(&cx.state.trace);
            }
            let mark = self
                .doing
                .mark(PhaseMark::Access, picked.plugin, self.route);
            mark.begin();
            let step = instance.plugin.access(cx, memory.own.slot(picked.plugin));
            if IS_TIMED && let Some(timer) = &mut timer {
                timer.returned();
            }
            if let Ok(Step::Continue | Step::Leave) = step {
                let leaves = matches!(step, Ok(Step::Leave));
                // Nothing to drop, but the compiler would call the function that finds out.
                std::mem::forget(step);
                if leaves {
                    self.phases = memory.leave(instance, before, self.instances);
                }
                if IS_TIMED && let Some(timer) = &mut timer {
                    let ran = Timed::new(instance, &picked, None);
                    timer.end(&mut memory.state.trace, &ran, self.names, request);
                }
                continue;
            }
            let ran = finish(step, mark, poll_gone).await;
            if IS_TIMED && let Some(timer) = &mut timer {
                let trace = &mut memory.state.trace;
                match &ran {
                    Ok(Ran::Decided(Flow::ReadBody)) => timer.interrupt(trace),
                    ran => {
                        let ran = Timed::new(instance, &picked, ran.as_ref().err());
                        timer.end(trace, &ran, self.names, request);
                    }
                }
            }
            match ran {
                Ok(Ran::Decided(Flow::Continue)) => {}
                Ok(Ran::Decided(Flow::Respond(response))) => {
                    memory.respond(picked, response, self.instances, &mut self.phases);
                }
                Ok(Ran::Decided(Flow::Exit(response))) => {
                    memory.answered_by = Some(picked);
                    return Access::Done(Some(Box::new(Ended::Answered {
                        response,
                        at_once: true,
                    })));
                }
                Ok(Ran::Decided(Flow::InternalRedirect(redirect))) => {
                    return Access::Done(Some(Box::new(Ended::Redirected(redirect))));
                }
                Ok(Ran::Decided(Flow::ReadBody)) if matches!(request.body, RequestBody::Unread) => {
                    memory.waiting = Some(picked);
                    return Access::NeedsBody;
                }
                Ok(Ran::Decided(Flow::ReadBody)) => {
                    memory.fail(picked, instance, &asked_too_often());
                }
                Ok(Ran::ClientGone) => return Access::ClientGone,
                Err(error) => memory.fail(picked, instance, &error),
            }
        }
        Access::Done(memory.response.take().map(|response| {
            Box::new(Ended::Answered {
                response,
                at_once: memory.failed,
            })
        }))
    }

    /// Chooses the instances of a plan that has no access phase.
    pub fn pick_all(&mut self, plan: &Plan) {
        if let Some(memory) = self.memory.as_deref_mut() {
            memory.state.is_unlogged = !plan.has(Phases::LOG);
            while memory
                .pick_next(plan, self.instances, &mut self.phases)
                .is_some()
            {}
        }
    }

    /// Whether the request has memory, but no instance was chosen for it yet.
    pub fn is_before_access(&self) -> bool {
        let memory = self.memory.as_deref();
        memory.is_some_and(|memory| memory.next == 0 && memory.picked.is_empty())
    }

    /// Chooses the global instances without running `access`, for requests that end before it.
    pub fn pick_defaults(&mut self, globals: &Plan) {
        let Some(memory) = self.memory.as_deref_mut() else {
            return;
        };
        memory.picked.clear();
        self.phases = Phases::NONE;
        for slot in &globals.slots {
            if let Some(choice) = slot.default {
                let picked = Picked {
                    instance: choice.instance,
                    plugin: slot.order,
                    scopes: choice.scopes,
                    consumer: None,
                };
                let own = self.instances.get(picked.instance).phases;
                memory.push(picked, own, &mut self.phases);
            }
        }
        if memory.state.trace.debug.is_some() {
            self.phases = self.phases.with(Phases::HEADER_FILTER);
        }
    }

    /// Filters a piece of the client's body on its way to the upstream.
    pub fn request_body(
        &mut self,
        request: &Request<'_>,
        chunk: &mut Chunk,
    ) -> Result<(), FilterFailed> {
        let Some(memory) = self.memory.as_deref_mut() else {
            return Ok(());
        };
        let _ends = self.doing.ends();
        let ChainMemory {
            picked,
            own,
            answered_by,
            ..
        } = memory;
        for (picked, instance) in with(picked, self.instances, Phases::REQUEST_BODY) {
            self.doing
                .begin(PhaseMark::RequestBody, picked.plugin, self.route);
            let own = own.slot(picked.plugin);
            let filtered = instance.plugin.request_body(request, own, chunk);
            filtered.map_err(|error| {
                report("request_body", &instance.def, &error);
                *answered_by = Some(*picked);
                FilterFailed
            })?;
        }
        Ok(())
    }

    /// Runs the `response` phase, when the upstream's whole response is in memory. Returns the response of a plugin
    /// that replaces it.
    pub async fn response(
        &mut self,
        request: &Request<'_>,
        upstream: &ResponseHead,
        body: &Bytes,
        answer: &mut Answer,
        poll_gone: PollGone<'_>,
    ) -> Result<Option<Response>, ClientLeft> {
        let _ends = self.doing.ends();
        let Some(memory) = self.memory.as_deref_mut() else {
            return Ok(None);
        };
        for at in 0..memory.picked.len() {
            let picked = memory.picked[at];
            let instance = self.instances.get(picked.instance);
            if !instance.phases.intersects(Phases::RESPONSE) {
                continue;
            }
            let cx = ResponseCx {
                request,
                state: &mut memory.state,
                configured: picked.configured(self.names),
                node: self.node,
                upstream: Some(upstream),
                upstream_body: Some(body),
                answer,
            };
            let mark = self
                .doing
                .mark(PhaseMark::Response, picked.plugin, self.route);
            mark.begin();
            let step = instance.plugin.response(cx, memory.own.slot(picked.plugin));
            let ran = finish(step, mark, poll_gone).await;
            if let Some(response) = ending("response", instance, ran, &mut memory.failed)? {
                memory.answered_by = Some(picked);
                return Ok(Some(response));
            }
        }
        Ok(None)
    }

    /// Filters the head of a response. Headers that plugins have set before there was a response are added first.
    /// Returns the body that replaces the response's.
    pub fn header_filter(
        &mut self,
        request: &Request<'_>,
        upstream: Option<&ResponseHead>,
        body: Option<&Bytes>,
        answer: &mut Answer,
        settings: &ResponseSettings,
    ) -> Result<Replaced, FilterFailed> {
        let Some(memory) = self.memory.as_deref_mut() else {
            return Ok(None);
        };
        early_headers::add(&mut memory.state.headers, upstream, answer);
        let _ends = self.doing.ends();
        let mut replaced = None;
        let ChainMemory {
            picked,
            own,
            state,
            answered_by,
            ..
        } = memory;
        let mut cx = ResponseCx {
            request,
            state,
            configured: nobody(self.names),
            node: self.node,
            upstream,
            upstream_body: body,
            answer,
        };
        let phases = header_filters(&cx.state.trace);
        let is_timed = phases.intersects(Phases::HEADER_SPAN);
        let mut timer = is_timed.then(|| Timer::start(PluginPhase::HeaderFilter));
        for (picked, instance) in with(picked, self.instances, phases) {
            cx.configured = picked.configured(self.names);
            let before = cx.answer.status;
            self.doing
                .begin(PhaseMark::HeaderFilter, picked.plugin, self.route);
            let filtered = instance
                .plugin
                .header_filter(&mut cx, own.slot(picked.plugin));
            if let Some(timer) = &mut timer {
                let ran = Timed::new(instance, picked, filtered.as_ref().err());
                timer.end(&mut cx.state.trace, &ran, self.names, request);
            }
            let failed = match filtered {
                Ok(Filtered::Continue) => check_status(before, cx.answer.status, instance),
                Ok(Filtered::Replace(response)) => {
                    let (head, id) = (Some(request.head), request.request_id);
                    let response = response.open();
                    let mut made = GatewayResponse::new(response, head, id, settings);
                    let checked = check_status(before, made.status, instance);
                    cx.answer.status = made.status;
                    cx.answer.headers.apply(std::mem::take(&mut made.headers));
                    replaced = Some(made);
                    checked
                }
                Err(error) => {
                    report("header_filter", &instance.def, &error);
                    Err(FilterFailed)
                }
            };
            if failed.is_err() {
                *answered_by = Some(*picked);
                return Err(FilterFailed);
            }
        }
        if cx.state.trace.debug.is_some() {
            debugging::show(request, cx.state, cx.node, cx.answer);
        }
        Ok(replaced)
    }

    /// Filters a piece of a response body.
    pub fn body_filter(
        &mut self,
        request: &Request<'_>,
        upstream: Option<&ResponseHead>,
        body: Option<&Bytes>,
        answer: &mut Answer,
        chunk: &mut Chunk,
    ) -> Result<(), FilterFailed> {
        let Some(memory) = self.memory.as_deref_mut() else {
            return Ok(());
        };
        let _ends = self.doing.ends();
        let ChainMemory {
            picked,
            own,
            state,
            answered_by,
            ..
        } = memory;
        let mut cx = ResponseCx {
            request,
            state,
            configured: nobody(self.names),
            node: self.node,
            upstream,
            upstream_body: body,
            answer,
        };
        for (picked, instance) in with(picked, self.instances, Phases::BODY_FILTER) {
            self.doing
                .begin(PhaseMark::BodyFilter, picked.plugin, self.route);
            cx.configured = picked.configured(self.names);
            let own = own.slot(picked.plugin);
            let filtered = instance.plugin.body_filter(&mut cx, own, chunk);
            filtered.map_err(|error| {
                report("body_filter", &instance.def, &error);
                *answered_by = Some(*picked);
                FilterFailed
            })?;
        }
        Ok(())
    }

    /// Filters a whole body. The end is a call of its own for the filters, as in nginx. Returns the pieces that are not
    /// empty.
    pub fn filter_whole(
        &mut self,
        request: &Request<'_>,
        upstream: Option<&ResponseHead>,
        body: Option<&Bytes>,
        answer: &mut Answer,
        pieces: impl IntoIterator<Item = Bytes>,
    ) -> Result<Vec<Bytes>, FilterFailed> {
        let pieces = pieces.into_iter().map(|data| Chunk { data, last: false });
        let end = Chunk {
            data: Bytes::new(),
            last: true,
        };
        let mut filtered = Vec::new();
        for mut chunk in pieces.chain([end]) {
            self.body_filter(request, upstream, body, answer, &mut chunk)?;
            if !chunk.data.is_empty() {
                filtered.push(chunk.data);
            }
        }
        Ok(filtered)
    }

    pub fn log(&mut self, request: &Request<'_>, entry: &LogEntry<'_>) {
        let Some(memory) = self.memory.as_deref_mut() else {
            return;
        };
        let ChainMemory {
            picked, own, state, ..
        } = memory;
        let mut cx = LogCx {
            request,
            state,
            configured: nobody(self.names),
            node: self.node,
            entry,
        };
        let _ends = self.doing.ends();
        for (picked, instance) in with(picked, self.instances, Phases::LOG) {
            self.doing.begin(PhaseMark::Log, picked.plugin, self.route);
            cx.configured = picked.configured(self.names);
            instance.plugin.log(&mut cx, own.slot(picked.plugin));
        }
    }
}
