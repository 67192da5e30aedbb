//! OAuth2 tokens and authorization codes. They are not configuration: they have a store of their own, whose operations
//! are those of the OAuth2 plugin and of the migration API ([`TokenStore`]).
//!
//! [`embedded`] keeps them in an LMDB environment on the node. Other stores must pass the same tests: the module
//! `contract`, with the feature `testing`.

#[cfg(feature = "testing")]
pub mod contract;
pub mod embedded;
mod place;
mod row;
mod secret;
pub mod sessions;
mod store;

pub use place::Place;
pub use secret::{Keys, Made, Storage};
pub use store::{
    Code, ImportOutcome, Imported, Issued, Known, Listed, NewCode, NewToken, Owner, RefreshOutcome,
    Reply, State, StoreError, Texts, Token, TokenStore,
};
