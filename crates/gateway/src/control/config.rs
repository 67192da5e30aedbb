//! Reads the entities that workers need from the store, and decodes them.

use model::entities::Config;
use model::plugins::PluginReader;
use model::{EntityKind, codec};
use proxy::snapshot::{Entities, ReadError};
use store::{StoreError, View};
use uuid::Uuid;

/// Entity types that a snapshot is built from.
pub(super) const KINDS: [EntityKind; 8] = [
    EntityKind::Services,
    EntityKind::Routes,
    EntityKind::Plugins,
    EntityKind::Upstreams,
    EntityKind::Targets,
    EntityKind::Certificates,
    EntityKind::Snis,
    EntityKind::CaCertificates,
];

/// Reads all entities that a snapshot is built from.
pub(crate) fn read(view: &View<'_>) -> Result<Config, ReadError> {
    let mut config = Config::default();
    let mut plugins = PluginReader::default();
    for kind in KINDS {
        for entry in view.iter(kind).map_err(unreadable)? {
            let (id, bytes) = entry.map_err(unreadable)?;
            add(&mut config, &mut plugins, kind, id, bytes)?;
        }
    }
    Ok(config)
}

/// Gives a snapshot update access to the entities of a stored revision.
pub(super) struct Stored<'v>(pub(super) &'v View<'v>);

impl Entities for Stored<'_> {
    fn get(&self, kind: EntityKind, id: Uuid) -> Result<Option<&[u8]>, ReadError> {
        self.0.get(kind, id).map_err(unreadable)
    }

    fn children(
        &self,
        kind: EntityKind,
        field: &'static str,
        parent: Uuid,
    ) -> Result<Vec<Uuid>, ReadError> {
        let ids = self.0.child_ids(kind, field, parent);
        let ids: Result<Vec<Uuid>, StoreError> = ids.map_err(unreadable)?.collect();
        ids.map_err(unreadable)
    }
}

fn unreadable(error: StoreError) -> ReadError {
    ReadError::Store(Box::new(error))
}

/// Decodes an entity and adds it. Entity types that workers do not need are ignored.
pub(crate) fn add<'b>(
    config: &mut Config,
    plugins: &mut PluginReader<'b>,
    kind: EntityKind,
    id: Uuid,
    bytes: &'b [u8],
) -> Result<(), ReadError> {
    let added = match kind {
        EntityKind::Services => codec::decode(bytes).map(|one| config.services.push(one)),
        EntityKind::Routes => codec::decode(bytes).map(|one| config.routes.push(one)),
        EntityKind::Plugins => plugins.read(bytes).map(|one| config.plugins.push(one)),
        EntityKind::Upstreams => codec::decode(bytes).map(|one| config.upstreams.push(one)),
        EntityKind::Targets => codec::decode(bytes).map(|one| config.targets.push(one)),
        EntityKind::Certificates => codec::decode(bytes).map(|one| config.certificates.push(one)),
        EntityKind::Snis => codec::decode(bytes).map(|one| config.snis.push(one)),
        EntityKind::CaCertificates => {
            codec::decode(bytes).map(|one| config.ca_certificates.push(one))
        }
        _ => Ok(()),
    };
    added.map_err(|source| ReadError::Entity { kind, id, source })
}
