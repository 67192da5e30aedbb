//! The plugin instances of a snapshot. Plugins with equal configurations may share one instance. An instance that has
//! not changed is reused from the previous snapshot, because it may have state.

use super::build::{BuildError, BuildSettings};
use super::delta::Edit;
use super::digest::{digest, mix};
use crate::plugins::{
    Instance, InstanceIndex, Instances, Planner, Plans, RouteScope, ScopeTable, Scoped,
};
use compact_str::CompactString;
use model::Value;
use model::entities::{Plugin, PluginId};
use model::hashing::FastMap;
use plugin::{
    BuildCx, ConfiguredName, ConfiguredNames, Handler, Implementation, Lack, Phases, PluginDef,
    PluginError, RequestCx, Response, Scope, Step, StreamCx, StreamEnd, StreamStep,
};
use std::collections::HashMap;
use std::sync::Arc;
use tables::Sorted;

/// The plugin instances of a snapshot, and the tables from which plans (plugin chains) are built and shared.
#[derive(Clone, Default)]
pub(super) struct PluginTables {
    pub(super) instances: Instances,
    known: Sorted<Identity, SharedInstance>,
    pub(super) places: ScopeTable,
    pub(super) plans: Plans,
    /// The instances that apply to streams. They share `instances` with those that apply to requests.
    pub(super) stream_places: ScopeTable,
    /// The names of the configured plugins, by position in the execution order and by scope.
    names: Sorted<(u16, Scope), Name>,
}

/// The id and the name of a configured plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Name {
    id: PluginId,
    instance_name: Option<Box<str>>,
}

/// Identifies the instance of a configured plugin. It is a digest of the plugin's type and configuration. A digest is
/// compared because keeping the configurations of ten thousand plugins would take more memory than the instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Identity([u64; 2]);

#[derive(Debug, Clone, Copy)]
struct SharedInstance {
    index: InstanceIndex,
    /// Number of configured plugins that share the instance.
    uses: u32,
}

/// A configured plugin that applies to HTTP requests, to streams, or to both.
struct Applied {
    def: Arc<PluginDef>,
    to_requests: bool,
    to_streams: bool,
    /// Position of the plugin in the execution order.
    order: u16,
    scope: Scope,
    identity: Identity,
}

/// The plans that a change of plugins affects.
#[derive(Default)]
pub(super) struct ChangedPlans {
    /// The combinations of route and service whose plans must be rebuilt.
    pub(super) of_requests: Vec<RouteScope>,
    /// Whether the plans of streams must be rebuilt.
    pub(super) of_streams: bool,
}

/// The instances to remove or to add, with the place of each.
#[derive(Default)]
struct Placed {
    in_requests: Vec<Scoped>,
    in_streams: Vec<Scoped>,
}

impl Placed {
    fn push(&mut self, applied: &Applied, instance: InstanceIndex) {
        let scoped = Scoped {
            order: applied.order,
            scope: applied.scope,
            instance,
        };
        if applied.to_requests {
            self.in_requests.push(scoped);
        }
        if applied.to_streams {
            self.in_streams.push(scoped);
        }
    }
}

impl PluginTables {
    pub(super) fn planner(&mut self) -> Planner<'_> {
        Planner::new(&self.instances, &self.places, &mut self.plans)
    }

    /// Adds, replaces and removes plugins. Returns the plans that must be rebuilt. If there are errors, the result is
    /// empty.
    pub(super) fn apply(
        &mut self,
        edits: &[Edit<Plugin>],
        previous: Option<&Self>,
        settings: &BuildSettings,
        errors: &mut Vec<BuildError>,
    ) -> ChangedPlans {
        let mut reader = Reader::new(settings);
        let (mut removed, mut added) = (Placed::default(), Placed::default());
        let (mut old_names, mut new_names) = (Vec::new(), Vec::new());
        self.instances.reserve(edits.len());
        // New instances are added before old ones are freed. Plans identify instances by index, so a plan would look
        // unchanged if a new instance got the index of a freed one.
        for plugin in edits.iter().filter_map(|edit| edit.new.as_ref()) {
            let applied = match reader.applied(plugin) {
                Ok(applied) => applied,
                Err(error) => {
                    report(error, errors);
                    continue;
                }
            };
            let Some(applied) = applied else { continue };
            match self.acquire(plugin, &applied, previous, settings) {
                Ok(instance) => {
                    added.push(&applied, instance);
                    new_names.push(((applied.order, applied.scope), Name::of(plugin)));
                }
                Err(error) => errors.push(error),
            }
        }
        let old = edits.iter().filter_map(|edit| edit.old.as_ref());
        let mut released = Vec::new();
        for plugin in old {
            // Errors cannot occur here, because an earlier change has accepted the plugin.
            let Ok(Some(applied)) = reader.applied(plugin) else {
                continue;
            };
            if let Some(known) = self.known.get(&applied.identity) {
                removed.push(&applied, known.index);
                old_names.push((applied.order, applied.scope));
                released.push(applied.identity);
            }
        }
        if !errors.is_empty() {
            return ChangedPlans::default();
        }
        for name in old_names {
            self.names.remove(&name);
        }
        for (place, name) in new_names {
            self.names.insert(place, name);
        }
        let instances = &mut self.instances;
        let places = &mut self.stream_places;
        let changed_streams = places.edit(instances, &removed.in_streams, &added.in_streams);
        let places = &mut self.places;
        let changed = ChangedPlans {
            of_requests: places.edit(instances, &removed.in_requests, &added.in_requests),
            of_streams: !changed_streams.is_empty(),
        };
        for identity in released {
            self.release(identity);
        }
        changed
    }

    /// Returns the instance for a plugin: an existing one, one from the previous snapshot, or a new one.
    fn acquire(
        &mut self,
        plugin: &Plugin,
        applied: &Applied,
        previous: Option<&Self>,
        settings: &BuildSettings,
    ) -> Result<InstanceIndex, BuildError> {
        if let Some(known) = self.known.get_mut(&applied.identity) {
            known.uses += 1;
            return Ok(known.index);
        }
        let before = previous.and_then(|previous| previous.instance(applied.identity));
        let instance = match before {
            Some(instance) => instance.clone(),
            None => {
                let built = build(&applied.def, plugin, settings);
                built.map_err(|source| BuildError::Plugin {
                    id: plugin.id,
                    name: plugin.name.to_string(),
                    source,
                })?
            }
        };
        let index = self.instances.push(instance);
        let known = SharedInstance { index, uses: 1 };
        self.known.insert(applied.identity, known);
        Ok(index)
    }

    /// Ends one use of an instance. Frees the instance if this was the last use.
    fn release(&mut self, identity: Identity) {
        let Some(known) = self.known.get_mut(&identity) else {
            return;
        };
        known.uses -= 1;
        if known.uses == 0 {
            let index = known.index;
            self.known.remove(&identity);
            self.instances.free(index);
        }
    }

    fn instance(&self, identity: Identity) -> Option<&Instance> {
        let known = self.known.get(&identity)?;
        Some(self.instances.get(known.index))
    }

    /// Returns a digest of each instance. Unlike its index, the digest is the same in every snapshot.
    pub(super) fn identities(&self) -> HashMap<InstanceIndex, [u64; 2]> {
        let known = self.known.iter();
        known
            .map(|(identity, known)| (known.index, identity.0))
            .collect()
    }
}

impl ConfiguredNames for PluginTables {
    fn configured_name(&self, plugin: u16, scope: Scope) -> Option<ConfiguredName<'_>> {
        let name = self.names.get(&(plugin, scope))?;
        Some(ConfiguredName {
            id: name.id,
            instance_name: name.instance_name.as_deref(),
        })
    }
}

impl Name {
    fn of(plugin: &Plugin) -> Self {
        Self {
            id: plugin.id,
            instance_name: plugin.instance_name.as_deref().map(Box::from),
        }
    }
}

/// Builds the instance of a configured plugin. It is not started.
fn build(
    def: &Arc<PluginDef>,
    plugin: &Plugin,
    settings: &BuildSettings,
) -> Result<Instance, plugin::BuildError> {
    let life = Arc::default();
    let (handler, phases): (Arc<dyn Handler>, Phases) = match &def.implementation {
        Implementation::Ready(maker) => {
            let cx = BuildCx {
                identity: &settings.node,
                lua: &settings.lua,
                life: &life,
            };
            let handler = maker.build(&plugin.config, &cx)?;
            let handler = match settings.times_plugins {
                true => Arc::new(plugin::Timed::new(handler, &def.name)),
                false => handler,
            };
            (handler, def.phases)
        }
        // Only in these phases, even if the plugin that it replaces has only later phases.
        Implementation::Later { .. } => {
            let name = plugin.name.clone();
            let phases = Phases::ACCESS.with(Phases::PREREAD);
            (Arc::new(Closed { name }), phases)
        }
    };
    Ok(Instance::new(handler, def.clone(), phases, life))
}

/// Adds an error. A plugin that is not enabled is reported once, however often it is configured.
fn report(error: BuildError, errors: &mut Vec<BuildError>) {
    let is_same = |other: &BuildError| match (other, &error) {
        (BuildError::NotEnabled { name: other }, BuildError::NotEnabled { name }) => other == name,
        _ => false,
    };
    if !errors.iter().any(is_same) {
        errors.push(error);
    }
}

/// Reads configured plugins. Their configurations must stay in memory while the reader is used, because the reader
/// caches digests by address.
struct Reader<'s> {
    table: HashMap<&'s str, (u16, &'s Arc<PluginDef>)>,
    /// Digests of configurations, by the address of the value. A value that several plugins share is hashed only once.
    digests: FastMap<usize, [u64; 2]>,
    /// Buffer for computing digests.
    bytes: Vec<u8>,
}

impl<'s> Reader<'s> {
    fn new(settings: &'s BuildSettings) -> Self {
        let table = (0..).zip(&settings.plugins);
        Self {
            table: table
                .map(|(order, def)| (&*def.name, (order, def)))
                .collect(),
            digests: FastMap::default(),
            bytes: Vec::new(),
        }
    }

    /// Returns how a plugin applies to requests and streams, or `None` if it applies to none.
    fn applied(&mut self, plugin: &Plugin) -> Result<Option<Applied>, BuildError> {
        let known = self.table.get(&*plugin.name).copied();
        let (order, def) = known.ok_or_else(|| BuildError::NotEnabled {
            name: plugin.name.to_string(),
        })?;
        let (to_requests, to_streams) = (def.applies(plugin), def.applies_to_streams(plugin));
        if !to_requests && !to_streams {
            return Ok(None);
        }
        let scope = Scope {
            route: plugin.route,
            service: plugin.service,
            consumer: plugin.consumer,
        };
        if let Implementation::Later {
            lack: Lack::Feature,
            ..
        } = def.implementation
        {
            // The plugin has no effect, because it is not implemented and may be ignored.
            return Ok(None);
        }
        let config = self.digest(&plugin.config);
        Ok(Some(Applied {
            def: def.clone(),
            to_requests,
            to_streams,
            order,
            scope,
            identity: Identity(mix(config, order)),
        }))
    }

    fn digest(&mut self, config: &Arc<Value>) -> [u64; 2] {
        let bytes = &mut self.bytes;
        let known = self.digests.entry(Arc::as_ptr(config).addr());
        *known.or_insert_with(|| digest(config, bytes))
    }
}

/// Replaces a plugin that is not implemented and cannot be ignored safely. It refuses every request in the access
/// phase, and every stream in the preread phase. The plugin itself might refuse, limit or change the request, so letting
/// the request pass would be a security hole that nobody notices.
struct Closed {
    name: CompactString,
}

impl plugin::Plugin for Closed {
    type Config = ();
    type Own = ();

    fn build((): (), _: &BuildCx<'_>) -> Result<Self, plugin::BuildError> {
        Err(plugin::BuildError::Config(
            "it is not implemented".to_owned(),
        ))
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        let Self { name } = self;
        tracing::error!(
            plugin = %name,
            route = cx.request.route.map(tracing::field::display),
            request_id = cx.request.request_id,
            "a request gets 500: plugin {name} is not implemented"
        );
        Ok(Step::Respond(Response::unexpected_error()))
    }

    fn preread<'a>(&'a self, cx: StreamCx<'a>) -> Result<StreamStep<'a>, PluginError> {
        let Self { name } = self;
        tracing::error!(
            plugin = %name,
            route = cx.session.route.map(tracing::field::display),
            "a stream is closed: plugin {name} is not implemented"
        );
        Ok(StreamStep::Close(StreamEnd::silent(500)))
    }
}
