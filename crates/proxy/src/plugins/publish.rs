//! The start of plugins. Snapshots are also built to check a configuration and then thrown away, so building one starts
//! nothing. What is published is started.

use super::Instances;
use plugin::{Handler, Implementation, Node, PluginDef};
use std::collections::HashMap;
use std::sync::Arc;

/// Prepares the plugins of a snapshot that is about to be published: starts its new instances, and then passes each
/// plugin all its configured instances. Instances that the snapshot does not have are dropped later, with the last
/// request that uses their snapshot.
pub fn publish(
    previous: Option<&Instances>,
    instances: &Instances,
    plugins: &[Arc<PluginDef>],
    node: &Arc<Node>,
) {
    for instance in instances.iter() {
        instance.start(node);
    }
    // Only instances with parts on workers must learn of their end, and there are few of them.
    let ended = previous.into_iter().flat_map(Instances::iter);
    for old in ended.filter(|old| old.life.has_parts()) {
        if !instances
            .iter()
            .any(|new| Arc::ptr_eq(&old.life, &new.life))
        {
            old.life.end();
        }
    }
    let mut configured: HashMap<*const PluginDef, Vec<&dyn Handler>> = HashMap::new();
    for instance in instances.iter() {
        let of_plugin = configured.entry(Arc::as_ptr(&instance.def)).or_default();
        of_plugin.push(&*instance.plugin);
    }
    for def in plugins {
        if let Implementation::Ready(maker) = &def.implementation {
            let of_plugin = configured.get(&Arc::as_ptr(def));
            maker.configure(node, of_plugin.map_or(&[], |list| list));
        }
    }
}
