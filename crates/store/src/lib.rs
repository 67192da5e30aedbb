//! The store: every entity of the newest revision in an LMDB file of this node (the mirror), and the ordered revisions
//! that led there (the journal).
//!
//! - [`Store`] opens the file, hands out views ([`Store::view`], [`Reader`]) and is the local [`Journal`].
//! - [`View`] reads one revision: by id, by unique field, by reference, by tag, page by page.
//! - [`View::history`] reads older revisions: what each changed, and the state at each.
//! - [`Store::transact`] applies change sets in one write transaction: references, uniqueness, cascades, indexes,
//!   history; on disk before it returns.
//!
//! It knows entities as bytes with a few indexed fields. It does not validate them against their schema, and it never
//! builds a typed entity.

mod apply;
mod change;
mod checksum;
mod env;
mod error;
mod facts;
mod follow;
mod header;
mod history;
mod journal;
mod keys;
mod map;
mod mirror;
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

pub use change::{Change, ChangeSet, Origin, Revision, Touched};
pub use env::Recovery;
pub use error::{CommitError, Damage, OpenError, Rejected, StoreError, Violation};
pub use follow::{Changed, Effect, Event, Follower};
pub use journal::{Changes, Journal, JournalError};
pub use mirror::Mirror;
pub use model::declarative::KeyPart;
pub use page::{Page, TagFilter, Tagged};
pub use past::{Difference, History, PastPage, Period};
pub use reader::Reader;
pub use record::{Counts, RevisionInfo};
pub use store::{DEFAULT_MAX_SIZE, Options, Retention, Store};
pub use transaction::Transaction;
pub use verify::Inconsistency;
pub use view::View;
