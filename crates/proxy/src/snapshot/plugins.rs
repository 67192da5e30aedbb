//! The plugin instances of a snapshot: built, shared where equal, or taken over from the snapshot before.

use super::build::BuildError;
use super::digest::digest;
use crate::plan::{Instance, InstanceIndex, Instances, Scope, Scoped};
use model::Value;
use model::entities::{Plugin, PluginId, Protocol};
use model::hashing::FastMap;
use plugin::{
    BuildCx, BuildFn, Implementation, Lack, Node, PluginDef, PluginError, RequestCx, Response,
    Scopes, Sharing, Step,
};
use std::collections::HashMap;
use std::sync::Arc;

/// A plugin that is configured and does not work yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inert {
    pub name: &'static str,
    pub lack: Lack,
    pub instances: usize,
}

/// What makes two configured plugins the same instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    order: u16,
    id: Option<PluginId>,
    digest: u128,
}

/// The plugins must stay where they are until it has finished.
pub(super) struct Loader<'a> {
    table: HashMap<&'static str, (u16, &'static PluginDef)>,
    node: &'a Node,
    previous: FastMap<Key, &'a Instance>,
    known: FastMap<Key, InstanceIndex>,
    inert: HashMap<u16, Inert>,
    /// Of the values that plugins share, by their address.
    digests: FastMap<usize, u128>,
    /// Memory for digests.
    bytes: Vec<u8>,
    instances: Instances,
    scoped: Vec<Scoped>,
}

/// What became of all plugins.
pub(super) struct Loaded {
    pub(super) instances: Instances,
    pub(super) scoped: Vec<Scoped>,
    pub(super) inert: Vec<Inert>,
}

impl<'a> Loader<'a> {
    pub(super) fn new(
        table: &[&'static PluginDef],
        node: &'a Node,
        previous: Option<&'a Instances>,
    ) -> Self {
        let table: HashMap<_, _> = (0..)
            .zip(table)
            .map(|(order, def)| (def.name, (order, *def)))
            .collect();
        let key_of = |instance: &'a Instance| {
            let (order, _) = table.get(instance.def.name)?;
            let key = Key {
                order: *order,
                id: instance.id,
                digest: instance.digest,
            };
            Some((key, instance))
        };
        let previous = previous.map(|instances| instances.iter().filter_map(key_of).collect());
        Self {
            previous: previous.unwrap_or_default(),
            table,
            node,
            known: FastMap::default(),
            digests: FastMap::default(),
            bytes: Vec::new(),
            inert: HashMap::new(),
            instances: Instances::default(),
            scoped: Vec::new(),
        }
    }

    /// Disabled plugins, those for other protocols and those in scopes that their plugin refuses are as if absent.
    pub(super) fn add(&mut self, plugin: &Plugin) -> Result<(), BuildError> {
        let is_http = plugin.protocols.iter().copied().any(Protocol::is_http);
        if !plugin.enabled || !is_http {
            return Ok(());
        }
        let &(order, def) =
            self.table
                .get(&*plugin.name)
                .ok_or_else(|| BuildError::UnknownPlugin {
                    id: plugin.id,
                    name: plugin.name.to_string(),
                })?;
        let scope = Scope {
            route: plugin.route,
            service: plugin.service,
            consumer: plugin.consumer,
        };
        if refuses(def.scopes, scope) {
            return Ok(());
        }
        if let Some(instance) = self.instance(order, def, plugin)? {
            self.scoped.push(Scoped {
                order,
                scope,
                instance,
            });
        }
        Ok(())
    }

    /// None for a plugin that does nothing.
    fn instance(
        &mut self,
        order: u16,
        def: &'static PluginDef,
        plugin: &Plugin,
    ) -> Result<Option<InstanceIndex>, BuildError> {
        let build: BuildFn = match def.implementation {
            Implementation::Ready(build) => build,
            Implementation::Later(lack) => {
                let inert = self.inert.entry(order).or_insert(Inert {
                    name: def.name,
                    lack,
                    instances: 0,
                });
                inert.instances += 1;
                match lack {
                    Lack::Feature => return Ok(None),
                    Lack::Protection => |_, _| Ok(Arc::new(Closed)),
                }
            }
        };
        let key = Key {
            order,
            id: match def.sharing {
                Sharing::EqualConfigs => None,
                Sharing::PerInstance => Some(plugin.id),
            },
            digest: self.digest(&plugin.config),
        };
        if let Some(index) = self.known.get(&key) {
            return Ok(Some(*index));
        }
        let instance = match self.previous.get(&key) {
            Some(instance) => (*instance).clone(),
            None => Instance {
                plugin: build(plugin, &BuildCx { node: self.node }).map_err(|source| {
                    BuildError::Plugin {
                        id: plugin.id,
                        name: plugin.name.to_string(),
                        source,
                    }
                })?,
                def,
                id: key.id,
                digest: key.digest,
            },
        };
        let index = self.instances.push(instance);
        self.known.insert(key, index);
        Ok(Some(index))
    }

    fn digest(&mut self, config: &Arc<Value>) -> u128 {
        let bytes = &mut self.bytes;
        let known = self.digests.entry(Arc::as_ptr(config).addr());
        *known.or_insert_with(|| digest(config, bytes))
    }

    /// The one place that says which configured plugins do nothing.
    pub(super) fn finish(mut self) -> Loaded {
        let mut inert: Vec<Inert> = self.inert.into_values().collect();
        inert.sort_by_key(|inert| inert.name);
        inert.iter().for_each(Inert::report);
        self.instances.shrink();
        Loaded {
            instances: self.instances,
            scoped: self.scoped,
            inert,
        }
    }
}

/// Stands in for a plugin that would keep requests out: without it every request is refused, since letting one through
/// that the real one refuses would be a hole that nobody sees.
struct Closed;

impl plugin::Plugin for Closed {
    fn access<'a>(&'a self, _: &'a mut RequestCx<'_>) -> Result<Step<'a>, PluginError> {
        Ok(Step::Respond(Response::unexpected_error()))
    }
}

impl Inert {
    fn report(&self) {
        let Self {
            name,
            lack,
            instances,
        } = self;
        match lack {
            Lack::Feature => tracing::warn!(
                plugin = name,
                instances,
                "plugin {name} has no effect yet: its configuration is kept, requests pass as if it were absent"
            ),
            Lack::Protection => tracing::error!(
                plugin = name,
                instances,
                "plugin {name} does not work yet: its configuration is kept, and the requests that it applies to are refused with status 500, since nobody else checks them"
            ),
        }
    }
}

fn refuses(allowed: Scopes, scope: Scope) -> bool {
    scope.route.is_some() && !allowed.route
        || scope.service.is_some() && !allowed.service
        || scope.consumer.is_some() && !allowed.consumer
}
