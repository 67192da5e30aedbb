//! The OAuth2 tokens that a rollback would end. They are no configuration, so no revision has them: a token ends with its
//! client or its service, and one that a later rollback restores has no tokens.

use crate::entities::oauth2_tokens::{self, is_owned};
use crate::respond::Failure;
use model::EntityKind;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashSet;
use store::{Store, View};
use tokens::{Listed, TokenStore};
use uuid::Uuid;

/// Maximum number of tokens that are counted.
const MAX_TOKENS: usize = 100_000;
/// Maximum number of pages that are read for it, at least one for each client and service.
const MAX_PAGES: usize = 10_000;
/// Tokens of a page.
const PAGE: usize = 1_000;

/// OAuth2 tokens that a rollback would end.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct EndedTokens {
    count: u64,
    /// Whether there may be more: large numbers are not counted to the end.
    more: bool,
}

/// Whether tokens belong to entities of this kind.
pub(super) fn owns_tokens(kind: EntityKind) -> bool {
    kind == EntityKind::Services || kind.name() == "oauth2_credentials"
}

/// Counts the live tokens of clients and services that will be deleted. Returns `None` if there are none.
pub(super) fn count(
    store: &Store,
    tokens: &dyn TokenStore,
    deleted: &[(EntityKind, Uuid)],
    now: i64,
) -> Result<Option<EndedTokens>, Failure> {
    let Some(kind) = oauth2_tokens::kind() else {
        return Ok(None);
    };
    let mut counting = Counting {
        view: store.view()?,
        kind,
        now,
        pages: 0,
        seen: HashSet::new(),
    };
    let mut more = false;
    for (kind, id) in deleted {
        let of = match *kind {
            EntityKind::Services => Listed::OfService(*id),
            _ => Listed::OfCredential(*id),
        };
        let is_enough = counting.pages >= MAX_PAGES || counting.seen.len() >= MAX_TOKENS;
        if is_enough || !counting.add(tokens, of)? {
            more = true;
            break;
        }
    }
    let count = counting.seen.len() as u64;
    Ok((count > 0 || more).then_some(EndedTokens { count, more }))
}

struct Counting<'v> {
    view: View<'v>,
    kind: EntityKind,
    now: i64,
    pages: usize,
    /// A token of a client and a service that are both deleted ends once.
    seen: HashSet<Uuid>,
}

impl Counting<'_> {
    /// Counts the tokens of a client or service. Returns false if there are too many.
    fn add(&mut self, tokens: &dyn TokenStore, of: Listed) -> Result<bool, Failure> {
        let mut after = None;
        loop {
            self.pages += 1;
            let page = tokens.list(of, after, PAGE, self.now).wait()?;
            for token in page.tokens {
                if is_owned(&self.view, self.kind, &token)? {
                    self.seen.insert(token.id);
                }
            }
            match page.next {
                None => return Ok(true),
                Some(_) if self.pages >= MAX_PAGES || self.seen.len() >= MAX_TOKENS => {
                    return Ok(false);
                }
                next => after = next,
            }
        }
    }
}
