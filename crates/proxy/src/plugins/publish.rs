//! The start of plugins. Snapshots are also built to check a configuration and then thrown away, so building one starts
//! nothing. What is published is started.

use super::Instances;
use plugin::{Implementation, Life, Node, PluginDef};
use std::collections::HashSet;
use std::sync::Arc;

/// Prepares the plugins of a snapshot that is about to be published: starts its new instances, and then lets each plugin
/// see all its configured instances. Instances that the snapshot does not have are dropped later, with the last request
/// that uses their snapshot. `previous` are the instances of the snapshot that was published before.
///
/// The time depends on the changes. Only a plugin that looks at its instances costs time for each instance of all
/// plugins.
pub fn publish(
    previous: Option<&Instances>,
    instances: &Instances,
    plugins: &[Arc<PluginDef>],
    node: &Arc<Node>,
) {
    let none = Instances::default();
    let previous = previous.unwrap_or(&none);
    for instance in instances.not_shared_with(previous) {
        instance.start(node);
    }
    end_removed(previous, instances);
    for def in plugins {
        if let Implementation::Ready(maker) = &def.implementation {
            let of_plugin = instances.iter().filter(|one| Arc::ptr_eq(&one.def, def));
            maker.configure(node, &mut of_plugin.map(|one| &*one.plugin));
        }
    }
}

/// Ends the lives of instances that the new snapshot does not have. Only instances with parts on workers must learn of
/// their end.
fn end_removed(previous: &Instances, instances: &Instances) {
    let changed = previous.not_shared_with(instances);
    let mut with_parts = changed.filter(|old| old.life.has_parts()).peekable();
    if with_parts.peek().is_none() {
        return;
    }
    // A snapshot has an instance once, so one that is kept cannot be in the shared part of the two.
    let changed = instances.not_shared_with(previous);
    let kept: HashSet<*const Life> = changed.map(|new| Arc::as_ptr(&new.life)).collect();
    for old in with_parts {
        if !kept.contains(&Arc::as_ptr(&old.life)) {
            old.life.end();
        }
    }
}
