//! The one thread that changes the configuration: from a document to the revision that all workers serve.
//!
//! One thread, because change sets have an order, and because a load of tens of thousands of entities must not take time
//! from the threads that serve requests.

use super::config;
use super::mirror::Mirror;
use super::stages::{Clock, Stage, Stages};
use crate::settings::ModelSettings;
use admin::control::{DeclarativeBody, Load, LoadError, Loaded};
use model::declarative::{self, Format, Loader, Options, Source};
use model::entities::Config;
use model::schema::Context;
use model::{EntityKind, Error, ErrorCode, codec};
use proxy::session::DataPlane;
use proxy::snapshot::{BuildErrors, BuildSettings, Changed, Snapshot};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use store::{Change, ChangeSet, CommitError, Journal, Rejected, Revision, Store, View};
use uuid::Uuid;

/// Under this name the hash of the configuration is kept with its revision.
const HASH: &str = "configuration_hash";

/// What it takes to change the configuration.
pub(crate) struct Writer {
    pub(crate) store: Store,
    pub(crate) plane: Arc<DataPlane>,
    pub(crate) model: ModelSettings,
    pub(crate) dbless: bool,
    pub(crate) build: BuildSettings,
    pub(crate) loader: Loader,
    pub(crate) stages: Arc<Stages>,
}

/// A source of configuration, and the hash that identifies it.
pub(crate) struct Input<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) hash: String,
    pub(crate) flatten_errors: bool,
}

impl Writer {
    /// A configuration from `POST /config`.
    pub(crate) fn load(&mut self, load: Load) -> Result<Loaded, LoadError> {
        let Load {
            body,
            check_hash,
            flatten_errors,
        } = load;
        let (source, hash) = match &body {
            DeclarativeBody::Text(text) => {
                let hash = declarative::hash(text);
                if check_hash && self.hash()? == hash {
                    return Ok(Loaded::Unchanged);
                }
                (Source::Text(text, Format::Auto), hash)
            }
            DeclarativeBody::Json(text) => {
                (Source::JsonBody(text), declarative::structured_hash(text))
            }
            DeclarativeBody::Structured(object) => {
                let hash = declarative::structured_hash(&codec::encode(object));
                (Source::Object(object.clone()), hash)
            }
        };
        self.replace(Input {
            source,
            hash,
            flatten_errors,
        })
    }

    /// Makes a document the whole configuration.
    pub(crate) fn replace(&mut self, input: Input<'_>) -> Result<Loaded, LoadError> {
        let options = Options {
            context: context(&self.model, self.dbless),
            flatten_errors: input.flatten_errors,
        };
        let started = Instant::now();
        let stages = Arc::clone(&self.stages);
        let mut clock = stages.start();
        let head = self.store.refresh().map_err(internal)?;
        let document = {
            let view = self.store.view().map_err(internal)?;
            let mirror = Mirror::new(&view);
            let loaded = self.loader.load(input.source, &options, &mirror, head.0);
            mirror.finish().map_err(internal)?;
            loaded.map_err(|error| LoadError::Invalid(Box::new(error)))?
        };
        clock.end(Stage::Validate);
        let validated = started.elapsed();
        let puts = document.puts.into_iter().map(|put| Change::Put {
            kind: put.kind,
            id: put.id,
            entity: put.entity,
        });
        let deletes = (document.deletes.into_iter()).map(|(kind, id)| Change::Delete { kind, id });
        let change_set = ChangeSet {
            changes: puts.chain(deletes).collect(),
            meta: vec![(HASH.to_owned(), Some(input.hash.into_bytes()))],
        };
        let changes = change_set.changes.len();
        let revision = self.commit(Some(head), change_set)?;
        self.loader.committed(revision.0);
        let total = started.elapsed();
        tracing::info!(%revision, changes, ?validated, ?total, "the configuration is live");
        Ok(Loaded::Live {
            revision,
            untransformed: document.untransformed,
        })
    }

    /// Takes over what another process has committed to the store, and gives the revision that is live then.
    pub(crate) fn follow(&mut self) -> Result<Revision, LoadError> {
        let revision = self.store.refresh().map_err(internal)?;
        let current = self.plane.snapshot.load();
        if current.revision < revision.0 {
            let snapshot = {
                let view = self.store.view().map_err(internal)?;
                compile(&view, Some(&current), &self.build)
            };
            let snapshot = snapshot.map_err(|error| LoadError::Invalid(Box::new(error)))?;
            self.plane.publish(Arc::new(snapshot));
            tracing::info!(%revision, "the configuration of the other process is live here");
        }
        Ok(revision)
    }

    /// Applies a change set and makes it live. The snapshot is built before anything is durable, so that a configuration
    /// that cannot be served is never the newest revision.
    pub(crate) fn commit(
        &mut self,
        expected_head: Option<Revision>,
        change_set: ChangeSet,
    ) -> Result<Revision, LoadError> {
        let current = self.plane.snapshot.load();
        let head = self.store.refresh().map_err(internal)?;
        // Not so when the stored configuration could not be served: then nothing of the snapshot can be kept.
        let is_current = current.revision == head.0;
        let rebuild = match is_current {
            true => rebuild(&change_set.changes, current.routes().len()),
            false => Rebuild::Parts(Changed::EVERYTHING),
        };
        let mut built = None;
        let build = &self.build;
        let mut clock = self.stages.start();
        let mut accept = |view: &View<'_>| {
            clock.end(Stage::Apply);
            // Unless another process has committed since: what it has changed is not known here.
            let is_next = view.revision().0 == head.0 + 1;
            let rebuild = if is_next { &rebuild } else { &EVERYTHING };
            built = Some(update(view, &current, rebuild, build, &mut clock).map_err(Rejected)?);
            Ok(())
        };
        let committed = self.store.commit(expected_head, change_set, &mut accept);
        let revision = committed.map_err(refused)?;
        let Some(snapshot) = built else {
            clock.end(Stage::Apply);
            return Ok(revision);
        };
        clock.end(Stage::Sync);
        self.plane.publish(Arc::new(snapshot));
        clock.end(Stage::Swap);
        Ok(revision)
    }

    /// The hash of the configuration in the store.
    pub(crate) fn hash(&self) -> Result<String, LoadError> {
        hash(&self.store).map_err(internal)
    }
}

/// The hash of the configuration in the store; zeros when there never was one.
pub(crate) fn hash(store: &Store) -> Result<String, store::StoreError> {
    let view = store.view()?;
    let hash = view.meta(HASH)?;
    Ok(hash.map_or_else(
        || declarative::EMPTY_HASH.to_owned(),
        |hash| String::from_utf8_lossy(hash).into_owned(),
    ))
}

/// The snapshot of a revision.
pub(crate) fn compile(
    view: &View<'_>,
    previous: Option<&Snapshot>,
    settings: &BuildSettings,
) -> Result<Snapshot, Error> {
    let config = config::read(view, Changed::EVERYTHING).map_err(unreadable)?;
    Snapshot::build(config, view.revision().0, previous, settings).map_err(unservable)
}

/// The snapshot of a revision, of which only what has changed is compiled.
fn update(
    view: &View<'_>,
    current: &Snapshot,
    rebuild: &Rebuild,
    settings: &BuildSettings,
    clock: &mut Clock<'_>,
) -> Result<Snapshot, Error> {
    let config = match rebuild {
        Rebuild::Routes(ids) => config::routes(view, ids),
        Rebuild::Parts(changed) => config::read(view, *changed),
    };
    let config = config.map_err(unreadable)?;
    clock.end(Stage::Read);
    let revision = view.revision().0;
    let snapshot = match rebuild {
        Rebuild::Routes(_) => Ok(current.put_routes(&config.routes, revision, settings)),
        Rebuild::Parts(changed) => current.update(config, revision, *changed, settings),
    };
    clock.end(Stage::Compile);
    snapshot.map_err(unservable)
}

/// What of a snapshot has to be made again.
enum Rebuild {
    /// Nothing but what depends on these routes, which were put.
    Routes(Vec<Uuid>),
    Parts(Changed),
}

const EVERYTHING: Rebuild = Rebuild::Parts(Changed::EVERYTHING);

/// When more routes than one in so many are put, the router is built anew.
const FEW_ROUTES: usize = 4;

fn rebuild(changes: &[Change], routes: usize) -> Rebuild {
    let changed = changed(changes);
    let put = changes
        .iter()
        .filter(|change| change.kind() == EntityKind::Routes);
    if changed.is_routes_only() && put.clone().count() <= routes / FEW_ROUTES {
        Rebuild::Routes(put.map(Change::id).collect())
    } else {
        Rebuild::Parts(changed)
    }
}

fn changed(changes: &[Change]) -> Changed {
    let mut changed = Changed::default();
    for change in changes {
        match change {
            Change::Put { kind, .. } => changed.put(*kind),
            Change::Delete { kind, .. } => changed.delete(*kind),
        }
    }
    changed
}

fn unreadable(error: config::ReadError) -> Error {
    Error::new(ErrorCode::DatabaseError, error.to_string())
}

fn unservable(errors: BuildErrors) -> Error {
    Error::new(ErrorCode::DeclarativeConfig, errors.to_string())
}

/// The snapshot of a configuration without entities.
pub(crate) fn empty_snapshot(settings: &BuildSettings) -> Result<Snapshot, Error> {
    Snapshot::build(Config::default(), 0, None, settings).map_err(unservable)
}

/// What validation needs to know now.
pub(crate) fn context(model: &ModelSettings, dbless: bool) -> Context {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Context {
        flavor: model.flavor,
        plugins: model.plugins.clone(),
        dbless,
        ..Context::at(now.unwrap_or_default())
    }
}

fn refused(error: CommitError) -> LoadError {
    match (error.to_error(), error) {
        (Some(error), _) => LoadError::Invalid(Box::new(error)),
        (None, CommitError::Full { .. }) => LoadError::TooLarge,
        (None, error) => internal(error),
    }
}

fn internal(error: impl std::fmt::Display) -> LoadError {
    LoadError::Internal(error.to_string())
}
