//! The entities that workers need, typed, from the bytes that the store keeps.

use model::entities::Config;
use model::plugins::PluginReader;
use model::{EntityKind, codec};
use proxy::snapshot::Changed;
use store::{StoreError, View};
use uuid::Uuid;

/// What a snapshot is made of.
const KINDS: [EntityKind; 8] = [
    EntityKind::Services,
    EntityKind::Routes,
    EntityKind::Plugins,
    EntityKind::Upstreams,
    EntityKind::Targets,
    EntityKind::Certificates,
    EntityKind::Snis,
    EntityKind::CaCertificates,
];

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{} {id}: {source}", kind.name())]
    Entity {
        kind: EntityKind,
        id: Uuid,
        source: codec::DecodeError,
    },
}

/// The entities of those kinds that a snapshot needs when this much has changed.
pub(crate) fn read(view: &View<'_>, changed: Changed) -> Result<Config, ReadError> {
    let mut config = Config::default();
    let mut plugins = PluginReader::default();
    for kind in KINDS.into_iter().filter(|kind| changed.needs(*kind)) {
        for entry in view.iter(kind)? {
            let (id, bytes) = entry?;
            add(&mut config, &mut plugins, kind, id, bytes)?;
        }
    }
    Ok(config)
}

/// Some routes alone.
pub(crate) fn routes(view: &View<'_>, ids: &[Uuid]) -> Result<Config, ReadError> {
    let mut config = Config::default();
    for id in ids {
        if let Some(bytes) = view.get(EntityKind::Routes, *id)? {
            let mut plugins = PluginReader::default();
            add(&mut config, &mut plugins, EntityKind::Routes, *id, bytes)?;
        }
    }
    Ok(config)
}

/// Adds one entity; those of other kinds are not for workers.
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
