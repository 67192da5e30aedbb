//! Builds the snapshot that serves a revision, either from the previous snapshot and the changes, or from all entities.

use super::config::{self, KINDS, Stored};
use super::stages::{Clock, Stage};
use model::entities::Config;
use model::schema::VaultReferences;
use model::{Error, ErrorCode};
use proxy::snapshot::{BuildErrors, BuildSettings, ReadError, Snapshot, Touched};
use store::{StoreError, View};

/// Builds the snapshot of a configuration without entities.
pub(crate) fn empty(settings: &BuildSettings) -> Result<Snapshot, Error> {
    Snapshot::build(Config::default(), 0, None, settings).map_err(unservable)
}

/// Builds the snapshot of a revision from all of its entities. Parts that have state are taken over from `previous`.
pub(crate) fn whole(
    view: &View<'_>,
    previous: Option<&Snapshot>,
    settings: &BuildSettings,
) -> Result<Snapshot, Error> {
    report_vault_references(view, None)?;
    let config = config::read(view).map_err(unreadable)?;
    Snapshot::build(config, view.revision().0, previous, settings).map_err(unservable)
}

/// Builds the snapshot of a revision from `current` and the entities that have changed since. `touched` must contain
/// all of them.
pub(crate) fn update(
    view: &View<'_>,
    current: &Snapshot,
    touched: &[store::Touched],
    settings: &BuildSettings,
    clock: &mut Clock<'_>,
) -> Result<Snapshot, Error> {
    if replaces_much(view, touched)
        .map_err(|error| unreadable(ReadError::Store(Box::new(error))))?
    {
        return replace(view, current, settings, clock);
    }
    report_vault_references(view, Some(touched))?;
    let touched = touched.iter().map(|one| Touched {
        kind: one.kind,
        id: one.id,
        old: one.old.as_deref(),
    });
    let delta = current.read(&Stored(view), touched).map_err(unreadable)?;
    clock.end(Stage::Read);
    let next = current.apply(&delta, view.revision().0, settings);
    clock.end(Stage::Compile);
    next.map_err(unservable)
}

/// Builds the snapshot of a revision from all of its entities, like [`whole`], and measures the stages.
pub(crate) fn replace(
    view: &View<'_>,
    current: &Snapshot,
    settings: &BuildSettings,
    clock: &mut Clock<'_>,
) -> Result<Snapshot, Error> {
    report_vault_references(view, None)?;
    let config = config::read(view).map_err(unreadable)?;
    clock.end(Stage::Read);
    let next = Snapshot::build(config, view.revision().0, Some(current), settings);
    clock.end(Stage::Compile);
    next.map_err(unservable)
}

fn report_vault_references(
    view: &View<'_>,
    touched: Option<&[store::Touched]>,
) -> Result<(), Error> {
    for notice in vault_references(view, touched)
        .map_err(unreadable)?
        .notices()
    {
        tracing::warn!("{notice}");
    }
    Ok(())
}

/// Returns the references to vaults in the touched entities, or in all entities if `touched` is `None`.
pub(crate) fn vault_references(
    view: &View<'_>,
    touched: Option<&[store::Touched]>,
) -> Result<VaultReferences, ReadError> {
    let mut found = VaultReferences::default();
    let store = |error: StoreError| ReadError::Store(Box::new(error));
    let mut look = |kind, id, bytes: &[u8]| {
        let looked = found.look(kind, bytes);
        looked.map_err(|source| ReadError::Entity { kind, id, source })
    };
    match touched {
        Some(touched) => {
            let relevant = touched.iter();
            for one in relevant.filter(|one| VaultReferences::are_in(one.kind)) {
                if let Some(bytes) = view.get(one.kind, one.id).map_err(store)? {
                    look(one.kind, one.id, bytes)?;
                }
            }
        }
        None => {
            for kind in VaultReferences::kinds() {
                for entry in view.iter(kind).map_err(store)? {
                    let (id, bytes) = entry.map_err(store)?;
                    look(kind, id, bytes)?;
                }
            }
        }
    }
    Ok(found)
}

/// Returns whether more than half of the entities have changed. Then a new snapshot costs less than an update, and its
/// tables have no gaps.
fn replaces_much(view: &View<'_>, touched: &[store::Touched]) -> Result<bool, store::StoreError> {
    let relevant = touched.iter().filter(|one| KINDS.contains(&one.kind));
    let mut stays = 0;
    for kind in KINDS {
        stays += view.count(kind)?;
    }
    Ok(relevant.count() as u64 > stays / 2)
}

fn unreadable(error: ReadError) -> Error {
    Error::new(ErrorCode::DatabaseError, error.to_string())
}

fn unservable(errors: BuildErrors) -> Error {
    Error::new(ErrorCode::DeclarativeConfig, errors.to_string())
}
