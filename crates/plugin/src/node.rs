//! What a node offers to its plugins.

use crate::def::NodeIdentity;
use crate::entities::{Entities, NoEntities};
use std::sync::Arc;

/// The node, as plugins use it. There is one per process. It outlives every configuration, so state that must survive
/// a change of the configuration is kept here and not in plugins.
pub struct Node {
    pub identity: NodeIdentity,
    pub entities: Arc<dyn Entities>,
}

impl Node {
    pub fn new(identity: NodeIdentity, entities: Arc<dyn Entities>) -> Self {
        Self { identity, entities }
    }

    /// A node without identity and entities, for tests and measurements.
    pub fn bare() -> Arc<Self> {
        Arc::new(Self::new(NodeIdentity::default(), Arc::new(NoEntities)))
    }
}
