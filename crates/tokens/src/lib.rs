//! OAuth2 tokens and authorization codes. They are not configuration: they have a store of their own, whose operations
//! are those of the OAuth2 plugin and of the migration API ([`TokenStore`]).
//!
//! [`embedded`] keeps them in an LMDB environment on the node. Other stores must pass the same tests: the module
//! `contract`, with the feature `testing`.

#[cfg(feature = "testing")]
pub mod contract;
pub mod embedded;
mod fields;
mod place;
mod room;
mod row;
mod secret;
pub mod sessions;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod writer;

pub use place::Place;
pub use secret::{Keys, Made, Storage};
pub use store::{
    Code, Counts, Cursor, ImportOutcome, Imported, Issued, Known, Listed, NewCode, NewToken, Owner,
    Page, RefreshOutcome, Reply, State, StoreError, Texts, Token, TokenStore, Write, WriteOutcome,
};
