//! The start of plugins. Snapshots are also built to check a configuration and then thrown away, so building one starts
//! nothing. What is published is started.

use super::Instances;
use plugin::{Handler, Implementation, Node, PluginDef};
use std::sync::Arc;

/// Prepares the plugins of a snapshot that is about to be published: starts its new instances, and then passes each
/// plugin all its configured instances. Instances that the snapshot does not have are dropped later, with the last
/// request that uses their snapshot.
pub fn publish(instances: &Instances, plugins: &[Arc<PluginDef>], node: &Arc<Node>) {
    for instance in instances.iter() {
        instance.start(node);
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
