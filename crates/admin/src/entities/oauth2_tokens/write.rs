//! Writes of single tokens.

use super::{by_id_owned, named, now, row, store};
use crate::entities::find::Selector;
use crate::entities::write::{Action, Input, merged, not_found, primary_key_violation};
use crate::entities::{foreign, reference_to, ttl, view};
use crate::request::Call;
use crate::respond::Failure;
use axum::http::StatusCode;
use model::schema::registry;
use model::{EntityKind, Object, Value};
use store::Violation;
use tokens::{Imported, Known, Token, WriteOutcome};
use uuid::Uuid;

/// How often a write is tried, if others write the same token meanwhile.
const MOST_TRIES: usize = 4;

/// A write of one token.
pub(super) struct Write {
    pub(super) kind: EntityKind,
    pub(super) input: Input,
    /// The parent that the path names, and the field that references it.
    pub(super) link: Option<(&'static str, Uuid)>,
}

/// What is to be written.
struct Decided {
    entity: Object,
    row: Imported,
    how: tokens::Write,
}

impl Write {
    /// Carries out the write, and returns the token.
    pub(super) async fn run(&self, call: &Call<'_>, action: Action) -> Result<Token, Failure> {
        let store = store(call)?;
        let mut replaces_orphan = false;
        for _ in 0..MOST_TRIES {
            let mut decided = self.decide(call, &action).await?;
            if replaces_orphan && decided.how == tokens::Write::Create {
                decided.how = tokens::Write::Put;
            }
            let id = decided.row.id;
            let written = store
                .write(decided.row, decided.how, now(call))
                .get()
                .await?;
            let (other, violation) = match written {
                WriteOutcome::Written => {
                    let found = store.find_by_id(id, now(call)).get().await?;
                    return found.ok_or_else(|| Failure::internal("the token has ended at once"));
                }
                // Somebody else has changed it meanwhile: decide again.
                WriteOutcome::NotFound => continue,
                WriteOutcome::IdTaken => (id, primary_key_violation(id).into()),
                WriteOutcome::AccessTaken(other) => (
                    other,
                    self.violation(id, other, row::ACCESS_TOKEN, &decided.entity),
                ),
                WriteOutcome::RefreshTaken(other) => (
                    other,
                    self.violation(id, other, row::REFRESH_TOKEN, &decided.entity),
                ),
            };
            // A token of a deleted entity is in nobody's way.
            let live = store.find_by_id(other, now(call)).get().await?;
            let is_orphan = live.is_some() && by_id_owned(call, self.kind, other).await?.is_none();
            if !is_orphan {
                return Err(violation);
            }
            store.revoke(other, now(call)).get().await?;
            replaces_orphan = other == id;
        }
        let text = "the token was changed by others meanwhile; try again";
        Err(Failure::Message(
            StatusCode::SERVICE_UNAVAILABLE,
            text.into(),
        ))
    }

    fn violation(&self, id: Uuid, existing: Uuid, field: &str, entity: &Object) -> Failure {
        let value = entity.get(field).cloned().unwrap_or_default();
        let violation = Violation::Unique {
            kind: self.kind,
            id,
            existing,
            key: Object::from_iter([(field, value)]),
        };
        violation.to_error().into()
    }

    async fn decide(&self, call: &Call<'_>, action: &Action) -> Result<Decided, Failure> {
        let mut input = self.input.typed(self.kind, None);
        if let Some((field, parent)) = self.link {
            input.insert(field, reference_to(parent));
        }
        match action {
            Action::Update(selector) => self.update(call, selector, input).await,
            Action::Upsert(selector) => {
                let id = match selector {
                    Selector::Id(id) => *id,
                    other => existing(call, self.kind, other)
                        .await?
                        .map_or_else(Uuid::new_v4, |token| token.id),
                };
                input.insert("id", Value::from(id.to_string()));
                if let Some((field, value)) = selector.fixed() {
                    input.insert(field, Value::from(value));
                }
                self.complete(call, input, tokens::Write::Put)
            }
            _ => self.complete(call, input, tokens::Write::Create),
        }
    }

    fn complete(
        &self,
        call: &Call<'_>,
        mut input: Object,
        how: tokens::Write,
    ) -> Result<Decided, Failure> {
        let (view, context) = (view(call)?, call.control.context());
        foreign::resolve(&view, self.kind, &mut input)?;
        let lifetime = ttl::take(call.control, self.kind, &mut input)?;
        let mut entity = registry().entity(self.kind).complete(input, &context)?;
        if let Some(Some(end)) = lifetime {
            entity.insert("ttl", end);
        }
        let row = row::row_of(&view, self.kind, &entity, context.now)?;
        Ok(Decided { entity, row, how })
    }

    async fn update(
        &self,
        call: &Call<'_>,
        selector: &Selector,
        mut patch: Object,
    ) -> Result<Decided, Failure> {
        let token = existing(call, self.kind, selector).await?;
        let token = token.ok_or_else(|| not_found(selector))?;
        let Some(texts) = &token.texts else {
            let text = "the key with which this token was sealed is missing on this node";
            return Err(Failure::Message(StatusCode::CONFLICT, text.into()));
        };
        let access_token = Known::parse(&texts.access_token.0);
        let (view, context) = (view(call)?, call.control.context());
        patch.remove("id");
        foreign::resolve(&view, self.kind, &mut patch)?;
        let lifetime = ttl::take(call.control, self.kind, &mut patch)?;
        let entity = row::entity_of(&token);
        let entity = merged(call.control, self.kind, entity, patch, lifetime)?;
        let row = row::row_of(&view, self.kind, &entity, context.now)?;
        let how = tokens::Write::Replace { access_token };
        Ok(Decided { entity, row, how })
    }
}

/// Returns the token that a path names.
async fn existing(
    call: &Call<'_>,
    kind: EntityKind,
    selector: &Selector,
) -> Result<Option<Token>, Failure> {
    match selector {
        Selector::Id(id) => by_id_owned(call, kind, *id).await,
        Selector::Key { value, .. } => named(call, kind, value).await,
        Selector::Sni(_) | Selector::Nested { .. } => Ok(None),
    }
}

/// Ends a token. It is refused at once.
pub(super) async fn delete(call: &Call<'_>, selector: &Selector) -> Result<(), Failure> {
    let store = store(call)?;
    let id = match selector {
        Selector::Id(id) => Some(*id),
        Selector::Key { value, .. } => {
            let found = store.find_by_access_token(value, now(call)).get().await?;
            found.map(|token| token.id)
        }
        Selector::Sni(_) | Selector::Nested { .. } => None,
    };
    if let Some(id) = id {
        store.revoke(id, now(call)).get().await?;
    }
    Ok(())
}
