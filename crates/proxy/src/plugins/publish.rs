//! The start of plugins. Snapshots are also built to check a configuration and then thrown away, so building one starts
//! nothing. What is published is started.

use super::Instances;
use plugin::{Handler, Implementation, Node, PluginDef};
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
    for def in plugins {
        let Implementation::Ready(maker) = &def.implementation else {
            continue;
        };
        let configured = instances.iter().filter(|one| Arc::ptr_eq(&one.def, def));
        let configured: Vec<&dyn Handler> = configured.map(|one| &*one.plugin).collect();
        maker.configure(node, &configured);
    }
}
