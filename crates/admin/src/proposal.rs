//! Proposed changes. A proposal is decided on the newest state, inside the transaction that makes it durable, because
//! the state may have changed since the request arrived.

use crate::control::{Control, LoadError};
use crate::request::{Call, MAX_MESSAGE};
use crate::respond::Failure;
use axum::http::StatusCode;
use std::any::Any;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use store::{CommitError, Origin, Rejected, Revision, Store, StoreError, Transaction, View};

/// A proposed revision, which is accepted or refused as a whole.
pub struct Proposal {
    pub origin: Origin,
    /// If set, the proposal is refused unless this is the newest revision.
    pub expected_head: Option<Revision>,
    /// Whether to try everything, including compiling the configuration, but keep nothing.
    pub dry_run: bool,
    /// Receives the compiled configuration of a dry run.
    pub preview: Option<Preview>,
    /// Whether the proposal holds a document of many megabytes; only few of these may wait at a time.
    pub is_document: bool,
    prepare: Prepare,
}

/// The compiled configuration of a dry run. Its type is known only to the implementation of [`Control`].
#[derive(Debug, Clone, Default)]
pub struct Preview(Arc<Mutex<Option<Arc<dyn Any + Send + Sync>>>>);

impl Preview {
    pub fn set(&self, compiled: Arc<dyn Any + Send + Sync>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(compiled);
    }

    /// Returns `None` if nothing was set, or a value of another type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let compiled = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        compiled?.downcast().ok()
    }
}

type Prepare = Box<dyn FnMut(&mut Transaction<'_>) -> Result<(), Refusal> + Send>;

/// The reason why a proposal is not carried out.
#[derive(Debug)]
pub enum Refusal {
    /// The proposal is invalid.
    Failure(Failure),
    Commit(CommitError),
}

impl Proposal {
    /// Creates a proposal. `prepare` applies the changes; it may be called several times, on different states.
    pub fn new(
        origin: Origin,
        prepare: impl FnMut(&mut Transaction<'_>) -> Result<(), Refusal> + Send + 'static,
    ) -> Self {
        Self {
            origin,
            expected_head: None,
            dry_run: false,
            preview: None,
            is_document: false,
            prepare: Box::new(prepare),
        }
    }

    /// Creates the revision in a transaction that may contain other revisions too. Returns the newest revision if
    /// nothing changes.
    ///
    /// `Ok(Err(..))` means that the proposal was refused and the transaction is as before. After an outer error, the
    /// transaction must not be used any more.
    pub fn run(
        &mut self,
        transaction: &mut Transaction<'_>,
    ) -> Result<Result<Revision, LoadError>, CommitError> {
        let expected = match self.expected_head {
            Some(expected) => transaction.expect_head(expected),
            None => Ok(()),
        };
        let prepared = expected
            .map_err(Refusal::Commit)
            .and_then(|()| (self.prepare)(transaction));
        let refused = match prepared {
            Ok(()) => {
                let sealed = transaction.seal(&self.origin)?;
                return Ok(Ok(sealed.unwrap_or(transaction.head())));
            }
            Err(Refusal::Failure(failure)) => LoadError::Refused(failure),
            Err(Refusal::Commit(
                error @ (CommitError::Violations(_) | CommitError::Conflict { .. }),
            )) if !transaction.is_spoiled() => error.into(),
            Err(Refusal::Commit(error)) => return Err(error),
        };
        transaction.discard()?;
        Ok(Err(refused))
    }
}

impl fmt::Debug for Proposal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Proposal")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl From<CommitError> for LoadError {
    fn from(error: CommitError) -> Self {
        match (error.to_error(), error) {
            (Some(error), _) => Self::Invalid(Box::new(error)),
            (None, CommitError::Full { .. }) => Self::TooLarge,
            (None, CommitError::Disk(error)) => Self::Disk(error),
            (None, CommitError::Conflict { expected, head }) => Self::Conflict { expected, head },
            (None, CommitError::Store(error)) => Self::Refused(error.into()),
            (None, error) => Self::Internal(error.to_string()),
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<CommitError> for Refusal {
    fn from(error: CommitError) -> Self {
        Self::Commit(error)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Commit(error.into())
    }
}

/// Submits a proposal; returns the result of `work` if it was accepted.
pub(crate) async fn propose<T: Send + 'static>(
    call: &Call<'_>,
    origin: Origin,
    expected_head: Option<Revision>,
    dry_run: bool,
    work: impl FnMut(&mut Transaction<'_>) -> Result<T, Refusal> + Send + 'static,
) -> Result<(T, Revision), Failure> {
    let preview = (dry_run && call.warns_of_conflicts()).then(|| call.preview.clone());
    let message = origin.message.clone();
    let (mut proposal, outcome) = prepare_bounded(origin, work)?;
    proposal.expected_head = expected_head;
    proposal.dry_run = dry_run;
    proposal.preview = preview;
    let revision = call.control.commit(proposal).await.map_err(refused)?;
    let proposed = (take(&outcome)?, revision);
    if !dry_run {
        call.record(revision, message);
    }
    Ok(proposed)
}

/// Submits a document. This takes no [`Call`], because a document may be processed after its request has ended.
pub(crate) async fn propose_document<T: Send + 'static>(
    control: &dyn Control,
    origin: Origin,
    work: impl FnMut(&mut Transaction<'_>) -> Result<T, Refusal> + Send + 'static,
) -> Result<(T, Revision), Failure> {
    let (mut proposal, outcome) = prepare_bounded(origin, work)?;
    proposal.is_document = true;
    let revision = control.commit(proposal).await.map_err(refused)?;
    Ok((take(&outcome)?, revision))
}

/// Carries out a proposal on a store that no gateway serves, if `check` accepts the resulting state.
pub(crate) fn carry_out<T: Send + 'static>(
    store: &Store,
    check: &mut dyn FnMut(&View<'_>) -> Result<(), model::Error>,
    (origin, expected_head, dry_run): (Origin, Option<Revision>, bool),
    work: impl FnMut(&mut Transaction<'_>) -> Result<T, Refusal> + Send + 'static,
) -> Result<(T, Revision), Failure> {
    let (mut proposal, outcome) = prepare(origin, work);
    proposal.expected_head = expected_head;
    let mut tried = None;
    let done = store.transact(&mut |transaction| {
        let result = proposal.run(transaction)?;
        if result.is_ok() {
            check(&transaction.view()?).map_err(Rejected)?;
        }
        tried = Some(result);
        if dry_run {
            Err(CommitError::Abandoned)
        } else {
            Ok(())
        }
    });
    match (done, tried) {
        (Ok(()) | Err(CommitError::Abandoned), Some(result)) => {
            let revision = result.map_err(refused)?;
            Ok((take(&outcome)?, revision))
        }
        (Err(error), _) => Err(refused(error.into())),
        (Ok(()), None) => Err(Failure::internal("a proposal was not run")),
    }
}

/// Receives the result of a proposal's work.
type Outcome<T> = Arc<Mutex<Option<T>>>;

fn prepare_bounded<T: Send + 'static>(
    origin: Origin,
    work: impl FnMut(&mut Transaction<'_>) -> Result<T, Refusal> + Send + 'static,
) -> Result<(Proposal, Outcome<T>), Failure> {
    if (origin.message.as_ref()).is_some_and(|message| message.len() > MAX_MESSAGE) {
        let text = format!("message: longer than {MAX_MESSAGE} bytes");
        return Err(Failure::bad_request(text));
    }
    Ok(prepare(origin, work))
}

fn prepare<T: Send + 'static>(
    origin: Origin,
    mut work: impl FnMut(&mut Transaction<'_>) -> Result<T, Refusal> + Send + 'static,
) -> (Proposal, Outcome<T>) {
    let outcome = Outcome::default();
    let prepare = {
        let outcome = Arc::clone(&outcome);
        move |transaction: &mut Transaction<'_>| {
            let done = work(transaction)?;
            *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
            Ok(())
        }
    };
    (Proposal::new(origin, prepare), outcome)
}

fn take<T>(outcome: &Outcome<T>) -> Result<T, Failure> {
    let done = outcome
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    done.ok_or_else(|| Failure::internal("a proposal was accepted without being run"))
}

fn refused(error: LoadError) -> Failure {
    let say = |status, text: &'static str| Failure::Message(status, text.into());
    match error {
        LoadError::Refused(failure) => failure,
        LoadError::Invalid(error) => Failure::Error(error),
        LoadError::Conflict { expected, head } => Failure::Message(
            StatusCode::CONFLICT,
            format!("the newest revision is {head}, not {expected}").into(),
        ),
        LoadError::Unavailable => say(
            StatusCode::NOT_IMPLEMENTED,
            "writing single entities is not available in this mode",
        ),
        LoadError::TooLarge => say(
            StatusCode::INSUFFICIENT_STORAGE,
            "the store has reached its largest size (lmdb_map_size): there is no room for this change",
        ),
        LoadError::Disk(error) => unwritable(&error),
        LoadError::Busy => say(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many changes are waiting",
        ),
        LoadError::Exiting => say(StatusCode::SERVICE_UNAVAILABLE, "Kong currently exiting"),
        error @ (LoadError::TimedOut | LoadError::Internal(_)) => {
            Failure::Internal(format!("{error:?}"))
        }
    }
}

/// Response for a failed write. The client receives only the cause. The full error may contain paths, so it is only
/// logged.
pub(crate) fn unwritable(error: &io::Error) -> Failure {
    tracing::error!(%error, "a change cannot be written");
    let cause = match error.kind() {
        io::ErrorKind::StorageFull => "the disk is full",
        io::ErrorKind::QuotaExceeded => "the disk quota is used up",
        io::ErrorKind::FileTooLarge => "the largest size of a file (ulimit -f) is reached",
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "the store is read-only"
        }
        // LMDB reports an I/O error for a short write, and the last write before a disk is full is a short write.
        _ => "the disk is full or failing",
    };
    let text = format!("the change cannot be written: {cause}");
    Failure::Message(StatusCode::INSUFFICIENT_STORAGE, text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{EntityKind, Object, codec};
    use store::{Change, ChangeLog, ChangeSet, Options};
    use uuid::Uuid;

    /// With very many changes, a violated uniqueness rule is found when half of them are already written.
    #[test]
    fn violations_of_very_many_changes_are_reported() {
        plugins::install();
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(directory.path(), Options::default()).unwrap();
        let consumer = |number: u128| Change::Put {
            kind: EntityKind::Consumers,
            id: Uuid::from_u128(number),
            entity: codec::encode(&Object::from_iter([(
                "username",
                (number % 2000).to_string().into(),
            )])),
        };
        let changes = ChangeSet {
            changes: (0..2001).map(consumer).collect(),
            meta: Vec::new(),
        };
        let mut proposal = Proposal::new(Origin::default(), move |transaction| {
            Ok(transaction.apply(&changes)?)
        });
        let error = store
            .transact(&mut |transaction| proposal.run(transaction))
            .unwrap_err();
        let LoadError::Invalid(error) = LoadError::from(error) else {
            panic!("expected LoadError::Invalid");
        };
        assert_eq!(
            error.message,
            "UNIQUE violation detected on '{username=\"0\"}'"
        );
        assert_eq!(store.head(), Revision(0));
    }
}
