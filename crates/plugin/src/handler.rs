//! Plugins without their types. A plan holds handlers of many plugins, so the types of configurations and of own states
//! are erased here, once. [`Plugin`] is implemented by plugins; [`Handler`] and [`Maker`] are called by the data plane.

use crate::def::{BuildCx, BuildError, Filtered, Phases, Plugin, PluginError, Step};
use crate::log::LogCx;
use crate::node::Node;
use crate::request::{Request, RequestCx};
use crate::response::{Chunk, ResponseCx};
use crate::stream::{CertificateCx, EndedStreamCx, StreamCx, StreamStep};
use crate::trace::Trace;
use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::sync::Arc;

/// A plugin with its configuration. The methods are those of [`Plugin`].
pub trait Handler: Send + Sync {
    fn as_any(&self) -> &dyn Any;

    fn phases(&self, defined: Phases) -> Phases;

    fn start(&self, node: &Arc<Node>);

    fn traces(&self) -> bool;

    fn begin_trace(&self, request: &Request<'_>, trace: &mut Trace, node: &Node);

    fn rewrite<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: OwnSlot<'a>,
    ) -> Result<Step<'a>, PluginError>;

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: OwnSlot<'a>,
    ) -> Result<Step<'a>, PluginError>;

    fn request_body(
        &self,
        request: &Request<'_>,
        own: OwnSlot<'_>,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError>;

    fn response<'a>(
        &'a self,
        cx: ResponseCx<'a, '_>,
        own: OwnSlot<'a>,
    ) -> Result<Step<'a>, PluginError>;

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: OwnSlot<'_>,
    ) -> Result<Filtered, PluginError>;

    fn body_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: OwnSlot<'_>,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError>;

    fn log(&self, cx: &mut LogCx<'_, '_>, own: OwnSlot<'_>);

    fn certificate<'a>(&'a self, cx: CertificateCx<'a>) -> Result<StreamStep<'a>, PluginError>;

    fn preread<'a>(&'a self, cx: StreamCx<'a>) -> Result<StreamStep<'a>, PluginError>;

    fn log_stream(&self, cx: &mut EndedStreamCx<'_>);

    fn needs(&self) -> Option<String>;
}

impl<P: Plugin> Handler for P {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn phases(&self, defined: Phases) -> Phases {
        P::phases(self, defined)
    }

    fn start(&self, node: &Arc<Node>) {
        P::start(self, node);
    }

    fn traces(&self) -> bool {
        P::traces(self)
    }

    fn begin_trace(&self, request: &Request<'_>, trace: &mut Trace, node: &Node) {
        P::begin_trace(self, request, trace, node);
    }

    fn rewrite<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: OwnSlot<'a>,
    ) -> Result<Step<'a>, PluginError> {
        P::rewrite(self, cx, own.get())
    }

    #[inline]
    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: OwnSlot<'a>,
    ) -> Result<Step<'a>, PluginError> {
        P::access(self, cx, own.get())
    }

    fn request_body(
        &self,
        request: &Request<'_>,
        own: OwnSlot<'_>,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        P::request_body(self, request, own.get(), chunk)
    }

    fn response<'a>(
        &'a self,
        cx: ResponseCx<'a, '_>,
        own: OwnSlot<'a>,
    ) -> Result<Step<'a>, PluginError> {
        P::response(self, cx, own.get())
    }

    #[inline]
    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: OwnSlot<'_>,
    ) -> Result<Filtered, PluginError> {
        P::header_filter(self, cx, own.get())
    }

    fn body_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: OwnSlot<'_>,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        P::body_filter(self, cx, own.get(), chunk)
    }

    #[inline]
    fn log(&self, cx: &mut LogCx<'_, '_>, own: OwnSlot<'_>) {
        P::log(self, cx, own.get());
    }

    fn certificate<'a>(&'a self, cx: CertificateCx<'a>) -> Result<StreamStep<'a>, PluginError> {
        P::certificate(self, cx)
    }

    fn preread<'a>(&'a self, cx: StreamCx<'a>) -> Result<StreamStep<'a>, PluginError> {
        P::preread(self, cx)
    }

    fn log_stream(&self, cx: &mut EndedStreamCx<'_>) {
        P::log_stream(self, cx);
    }

    fn needs(&self) -> Option<String> {
        P::needs(self)
    }
}

/// Builds the handlers of a plugin, and runs what belongs to the plugin as a whole.
pub trait Maker: Send + Sync {
    fn build(
        &self,
        config: &model::Value,
        cx: &BuildCx<'_>,
    ) -> Result<Arc<dyn Handler>, BuildError>;

    fn init_worker(&self, node: &Arc<Node>, worker: usize);

    /// Passes the plugin all its configured instances. Instances of another plugin are left out.
    fn configure(&self, node: &Arc<Node>, instances: &mut dyn Iterator<Item = &dyn Handler>);
}

/// The [`Maker`] of a plugin type.
pub(crate) struct Erased<P>(pub(crate) PhantomData<fn() -> P>);

impl<P: Plugin> Maker for Erased<P> {
    fn build(
        &self,
        config: &model::Value,
        cx: &BuildCx<'_>,
    ) -> Result<Arc<dyn Handler>, BuildError> {
        let config = BuildError::read_config(config)?;
        Ok(Arc::new(P::build(config, cx)?))
    }

    fn init_worker(&self, node: &Arc<Node>, worker: usize) {
        P::init_worker(node, worker);
    }

    fn configure(&self, node: &Arc<Node>, instances: &mut dyn Iterator<Item = &dyn Handler>) {
        P::configure(
            node,
            &mut instances.filter_map(|handler| handler.as_any().downcast_ref()),
        );
    }
}

/// The own states that the plugins of a request keep from phase to phase. The memory is reused for later requests.
#[derive(Default)]
pub struct OwnStates {
    /// The states by the position of their plugin in the execution order.
    entries: Vec<Option<Entry>>,
    /// The positions in use.
    used: Vec<u16>,
}

struct Entry {
    is_used: bool,
    /// The type of `state`. Comparing it here costs less than asking the state.
    type_id: TypeId,
    state: Box<dyn Any + Send>,
    reset: fn(&mut (dyn Any + Send)),
}

impl OwnStates {
    /// Returns the place of a plugin's state. `plugin` is its position in the execution order.
    #[inline]
    pub fn slot(&mut self, plugin: u16) -> OwnSlot<'_> {
        OwnSlot {
            states: self,
            plugin,
        }
    }

    /// Ends the states of a request. Their memory is kept.
    #[inline]
    pub fn clear(&mut self) {
        for plugin in self.used.drain(..) {
            if let Some(Some(entry)) = self.entries.get_mut(usize::from(plugin)) {
                (entry.reset)(&mut *entry.state);
                entry.is_used = false;
            }
        }
    }
}

/// The place of one plugin's own state in a request.
pub struct OwnSlot<'a> {
    states: &'a mut OwnStates,
    plugin: u16,
}

impl<'a> OwnSlot<'a> {
    /// Returns the state, which is the default at first.
    #[inline]
    pub fn get<T: Default + Send + 'static>(self) -> &'a mut T {
        if size_of::<T>() == 0 {
            // Neither the box nor the leak takes memory, because the type has no size.
            return Box::leak(Box::new(T::default()));
        }
        let Self { states, plugin } = self;
        let at = usize::from(plugin);
        let type_id = TypeId::of::<T>();
        let is_used = matches!(
            states.entries.get(at),
            Some(Some(entry)) if entry.is_used && entry.type_id == type_id
        );
        if !is_used {
            states.begin(plugin, type_id, make::<T>);
        }
        let entry = states.entries[at].as_mut().expect("it was made");
        entry.state.downcast_mut().expect("the type was compared")
    }
}

impl OwnStates {
    /// Begins the state of a plugin in a request. All types of states share this function.
    #[inline(never)]
    fn begin(&mut self, plugin: u16, type_id: TypeId, make: fn() -> Entry) {
        let at = usize::from(plugin);
        let is_made = matches!(self.entries.get(at), Some(Some(entry)) if entry.type_id == type_id);
        if !is_made {
            if self.entries.len() <= at {
                self.entries.resize_with(at + 1, || None);
            }
            self.entries[at] = Some(make());
        }
        let entry = self.entries[at].as_mut().expect("it was made");
        if !entry.is_used {
            entry.is_used = true;
            self.used.push(plugin);
        }
    }
}

#[cold]
fn make<T: Default + Send + 'static>() -> Entry {
    Entry {
        is_used: false,
        type_id: TypeId::of::<T>(),
        state: Box::new(T::default()),
        reset: |state| {
            if let Some(state) = state.downcast_mut::<T>() {
                *state = T::default();
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_finds_its_own_state_again_until_the_request_ends() {
        let mut states = OwnStates::default();
        *states.slot(3).get::<u64>() += 7;
        states.slot(1).get::<String>().push('a');
        assert_eq!(*states.slot(3).get::<u64>(), 7);
        assert_eq!(states.slot(1).get::<String>(), "a");
        states.clear();
        assert_eq!(*states.slot(3).get::<u64>(), 0);
        assert_eq!(states.slot(1).get::<String>(), "");
    }

    #[test]
    fn a_state_without_size_takes_no_place() {
        let mut states = OwnStates::default();
        let () = *states.slot(9).get::<()>();
        assert!(states.entries.is_empty() && states.used.is_empty());
    }
}
