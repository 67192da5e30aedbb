//! The only thread that changes the configuration. It turns a change or a document into a revision that all workers
//! serve.
//!
//! There is only one such thread because change sets must be applied in order. It serves no requests, so that loading
//! tens of thousands of entities does not delay them.

use super::notices;
use super::queue::Proposed;
use super::rebuild;
use super::stages::{Clock, Stage, Stages};
use crate::memory;
use crate::settings::ModelSettings;
use admin::control::{
    CONFIGURATION_HASH as HASH, DeclarativeBody, Load, LoadError, Loaded, Proposal,
};
use admin::token_transfer::import_entities;
use admin::transfer::Parted;
use model::codec;
use model::declarative::{self, Format, Loader, Options, Source};
use model::schema::{Context, VaultReferences};
use proxy::session::DataPlane;
use proxy::snapshot::{BuildSettings, Snapshot};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use store::{
    Change, ChangeSet, CommitError, ExistingEntities, Origin, Rejected, Revision, Store,
    Transaction,
};

#[cfg(test)]
pub(super) mod tests;

/// Number of history entries that are removed at a time. Removing them takes a few milliseconds. A group of changes
/// adds fewer entries, so compaction keeps up with changes.
const COMPACTED: usize = 1024;

/// Everything that is needed to change the configuration.
pub(crate) struct Writer {
    pub(crate) store: Store,
    pub(crate) plane: Arc<DataPlane>,
    pub(crate) model: ModelSettings,
    pub(crate) dbless: bool,
    pub(crate) build: BuildSettings,
    pub(crate) loader: Loader,
    pub(crate) stages: Arc<Stages>,
}

/// A configuration document, and the hash that identifies it.
pub(crate) struct Input<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) hash: String,
    pub(crate) flatten_errors: bool,
    pub(crate) origin: Origin,
}

impl Writer {
    /// Loads a configuration from `POST /config`.
    pub(crate) fn load(&mut self, load: Load) -> Result<Loaded, LoadError> {
        let Load {
            body,
            check_hash,
            flatten_errors,
            origin,
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
            origin,
        })
    }

    /// Replaces the whole configuration with a document.
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
            let existing = ExistingEntities::new(&view);
            let loaded = self.loader.load(input.source, &options, &existing, head.0);
            existing.finish().map_err(internal)?;
            loaded.map_err(|error| LoadError::Invalid(Box::new(error)))?
        };
        clock.end(Stage::Validate);
        let validated = started.elapsed();
        let mut references = VaultReferences::default();
        for put in &document.puts {
            references.look(put.kind, &put.entity).map_err(internal)?;
        }
        let parted = Parted::of(document.puts);
        let mut changes = parted.changes;
        let deletes = (document.deletes.into_iter()).map(|(kind, id)| Change::Delete { kind, id });
        // Kong treats an empty configuration as none, so the node is not ready.
        let hash = if document.is_empty {
            declarative::EMPTY_HASH.to_owned()
        } else {
            input.hash
        };
        changes.extend(deletes);
        let change_set = ChangeSet {
            changes,
            meta: vec![(HASH.to_owned(), Some(hash.into_bytes()))],
        };
        let changes = change_set.changes.len();
        let revision = self.commit(Some(head), &change_set, &input.origin)?;
        self.loader.committed(revision.0);
        // A response has only the first ones, and what is lost matters most.
        let mut warnings = parted.warnings;
        warnings.extend(self.import_tokens(&parted.tokens)?);
        warnings.extend(document.warnings);
        for warning in &mut warnings {
            *warning = format!("the declarative configuration: {warning}");
        }
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        // The log has those of new plugins, from the snapshot's build.
        warnings.extend(self.notices());
        warnings.extend(references.notices());
        let total = started.elapsed();
        tracing::info!(
            revision = revision.0,
            changes,
            ?validated,
            ?total,
            "the configuration is live"
        );
        Ok(Loaded::Live {
            revision,
            untransformed: document.untransformed,
            warnings,
        })
    }

    /// Imports the OAuth2 tokens of a document, which is live. Returns warnings about those that were refused.
    fn import_tokens(&self, tokens: &[Vec<u8>]) -> Result<Vec<String>, LoadError> {
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        let Some(store) = &self.plane.node.tokens else {
            return Ok(vec![
                "this node has no store for its OAuth2 tokens".to_owned(),
            ]);
        };
        let now = context(&self.model, self.dbless).now;
        let done = import_entities(&self.store, &**store, tokens, now);
        Ok(done.map_err(LoadError::Refused)?.warnings)
    }

    /// Returns notices about the plugins of the stored configuration that do not do what is configured.
    fn notices(&self) -> Vec<String> {
        let view = self.store.view();
        let notices = view.and_then(|view| notices::of_all(&view));
        notices.unwrap_or_else(|error| {
            tracing::warn!(%error, "plugins that do not do what is configured could not be listed");
            Vec::new()
        })
    }

    /// Serves the revisions that another process has committed to the store. Returns the newest revision.
    pub(crate) fn follow(&mut self) -> Result<Revision, LoadError> {
        let revision = self.store.refresh().map_err(internal)?;
        let current = self.plane.snapshot.load();
        if current.revision < revision.0 {
            let snapshot = {
                let view = self.store.view().map_err(internal)?;
                rebuild::whole(&view, Some(&current), &self.build)
            };
            let snapshot = snapshot.map_err(|error| LoadError::Invalid(Box::new(error)))?;
            self.plane.publish(Arc::new(snapshot));
            tracing::info!(
                revision = revision.0,
                "the configuration of the other process is live here"
            );
        }
        Ok(revision)
    }

    /// Carries out proposals. Each becomes a separate revision, and all become durable and live together. If the
    /// transaction fails as a whole, the proposals are tried one by one, so that each gets its own outcome.
    pub(crate) fn propose(&mut self, mut group: Vec<Proposed>) {
        // The transaction of a dry run is abandoned, so it cannot contain proposals that must be committed.
        if group.len() > 1 && !group.iter().any(|one| one.proposal.dry_run) {
            let outcomes = self.transact(&mut |transaction| {
                group
                    .iter_mut()
                    .map(|one| one.proposal.run(transaction))
                    .collect::<Result<Vec<_>, _>>()
            });
            match outcomes {
                Ok(outcomes) => {
                    for (one, outcome) in group.into_iter().zip(outcomes) {
                        one.end(outcome);
                    }
                    return;
                }
                Err(error) => tracing::debug!(%error, "changes are made one by one"),
            }
        }
        for mut one in group {
            let outcome = self.propose_one(&mut one.proposal);
            one.end(outcome);
        }
    }

    fn propose_one(&mut self, proposal: &mut Proposal) -> Result<Revision, LoadError> {
        if proposal.dry_run {
            return self.rehearse(proposal);
        }
        self.transact(&mut |transaction| proposal.run(transaction))?
    }

    /// Carries out a proposal except for the commit. The resulting snapshot is always built, because building it can
    /// fail. It is kept only if a preview is wanted.
    fn rehearse(&mut self, proposal: &mut Proposal) -> Result<Revision, LoadError> {
        let current = self.plane.snapshot.load();
        let (stages, build) = (Arc::clone(&self.stages), &self.build);
        let mut tried = None;
        let given_up = self.store.transact::<()>(&mut |transaction| {
            let head = transaction.head();
            let outcome = proposal.run(transaction)?;
            if outcome.is_ok() && transaction.head() > head {
                let next = next(transaction, head, &current, build, &mut stages.start())?;
                if let Some(preview) = &proposal.preview {
                    preview.set(Arc::new(next));
                }
            }
            tried = Some(outcome);
            Err(CommitError::Abandoned)
        });
        match (given_up, tried) {
            (Err(CommitError::Abandoned), Some(outcome)) => outcome,
            (Err(error), _) => Err(error.into()),
            (Ok(()), _) => Err(internal("a dry run was committed")),
        }
    }

    /// Applies a change set and makes it live.
    pub(crate) fn commit(
        &mut self,
        expected_head: Option<Revision>,
        change_set: &ChangeSet,
        origin: &Origin,
    ) -> Result<Revision, LoadError> {
        let revision = self.transact(&mut |transaction| {
            if let Some(expected) = expected_head {
                transaction.expect_head(expected)?;
            }
            transaction.apply(change_set)?;
            transaction.seal(origin)?;
            Ok(transaction.head())
        })?;
        Ok(revision)
    }

    /// Makes the revisions of a transaction durable and live. The snapshot is built before the commit, so that a
    /// configuration that cannot be served is never the newest revision.
    fn transact<T>(
        &mut self,
        work: &mut dyn FnMut(&mut Transaction<'_>) -> Result<T, CommitError>,
    ) -> Result<T, CommitError> {
        let current = self.plane.snapshot.load();
        let stages = Arc::clone(&self.stages);
        let mut clock = stages.start();
        let mut built = None;
        let build = &self.build;
        let done = self.store.transact(&mut |transaction| {
            let head = transaction.head();
            let done = work(transaction)?;
            clock.end(Stage::Apply);
            built = if transaction.head() > head {
                Some(next(transaction, head, &current, build, &mut clock)?)
            } else {
                None
            };
            Ok(done)
        })?;
        if let Some(snapshot) = built {
            clock.end(Stage::Sync);
            self.plane.publish(Arc::new(snapshot));
            clock.end(Stage::Swap);
        }
        Ok(done)
    }

    /// Gives memory that changes no longer use back to the operating system.
    pub(crate) fn give_back(&self) {
        memory::give_back();
        self.store.release_resident_pages();
    }

    /// Frees the pages that a killed `silverback check` may have kept.
    pub(crate) fn forget_dead_readers(&self) {
        if let Err(error) = self.store.forget_dead_processes() {
            tracing::warn!(%error, "the store may keep more than it needs");
        }
    }

    /// Removes some of the history that exceeds its retention, and returns whether there is more.
    pub(crate) fn compact(&self) -> bool {
        self.store.compact(COMPACTED).unwrap_or_else(|error| {
            tracing::warn!(%error, "old history cannot be removed");
            false
        })
    }

    /// Removes some old history if so much has accumulated that this cannot wait until the thread is idle.
    pub(crate) fn compact_when_overdue(&self) {
        if matches!(self.store.is_compaction_overdue(), Ok(true)) {
            self.compact();
        }
    }

    /// Returns the hash of the configuration in the store.
    pub(crate) fn hash(&self) -> Result<String, LoadError> {
        hash(&self.store).map_err(internal)
    }
}

/// Returns the hash of the configuration in the store, or zeros if there never was one.
pub(crate) fn hash(store: &Store) -> Result<String, store::StoreError> {
    let view = store.view()?;
    let hash = view.meta(HASH)?;
    Ok(hash.map_or_else(
        || declarative::EMPTY_HASH.to_owned(),
        |hash| String::from_utf8_lossy(hash).into_owned(),
    ))
}

/// Builds the snapshot of the state that a transaction has reached. `head` is the revision before the transaction.
fn next(
    transaction: &Transaction<'_>,
    head: Revision,
    current: &Snapshot,
    settings: &BuildSettings,
    clock: &mut Clock<'_>,
) -> Result<Snapshot, CommitError> {
    let view = transaction.view()?;
    // The served snapshot is older than `head` if the stored configuration could not be served, or if another process
    // has committed since.
    let is_current = current.revision == head.0;
    let snapshot = if is_current {
        rebuild::update(&view, current, &transaction.touched(), settings, clock)
    } else {
        rebuild::replace(&view, current, settings, clock)
    };
    Ok(snapshot.map_err(Rejected)?)
}

/// Returns the context of a validation at the present time.
pub(crate) fn context(model: &ModelSettings, dbless: bool) -> Context {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Context {
        flavor: model.flavor,
        plugins: model.plugins.clone(),
        dbless,
        ..Context::at(now.unwrap_or_default())
    }
}

fn internal(error: impl std::fmt::Display) -> LoadError {
    LoadError::Internal(error.to_string())
}
