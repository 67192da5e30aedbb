//! The store: an LMDB file of this node. It contains every entity of the newest revision (the entity tables), and the
//! earlier changes in the order of their revisions (the change log).
//!
//! - [`Store`] opens the file, creates views ([`Store::view`], [`Reader`]) and is the local [`ChangeLog`].
//! - [`Inspection`] reads a store without changing a file, also while another process serves it.
//! - [`View`] reads one revision: by id, by unique field, by reference, by tag, page by page.
//! - [`View::history`] reads older revisions: the changes of each, and the state at each.
//! - [`Store::transact`] applies change sets in one write transaction. It checks references and uniqueness, deletes by
//!   cascade, and updates the indexes and the history. The changes are on disk when it returns.
//!
//! Entities are bytes with a few indexed fields. The store does not validate them against their schema and does not
//! decode them to typed entities. Consumers are the exception: requests need them with their credentials ([`Owned`]).

mod apply;
mod carried;
mod change;
mod change_log;
mod checksum;
mod created;
mod env;
mod error;
mod existing_entities;
mod facts;
mod follow;
mod header;
mod history;
mod keys;
mod map;
mod page;
mod past;
mod reader;
mod record;
mod rules;
mod scan;
mod store;
mod transaction;
mod verify;
mod view;

pub use carried::Owned;
pub use change::{Change, ChangeSet, Origin, Revision, Touched};
pub use change_log::{ChangeLog, ChangeLogError, Changes};
pub use env::Recovery;
pub use error::{CommitError, Damage, OpenError, Rejected, StoreError, Violation};
pub use existing_entities::ExistingEntities;
pub use follow::{Changed, Effect, Event, Follower};
pub use model::declarative::KeyPart;
pub use page::{Page, TagFilter, Tagged};
pub use past::{Difference, History, PastPage, Period};
pub use reader::Reader;
pub use record::{Counts, RevisionInfo};
pub use store::{DEFAULT_MAX_SIZE, Inspection, Options, Retention, Store, Usage};
pub use transaction::Transaction;
pub use verify::Inconsistency;
pub use view::View;
