//! Creates, updates and deletes single entities. As in Kong, the input is validated completely before a node without a
//! database refuses the write, so that clients see their own mistakes first.
//! Source: kong/db/dao/init.lua, kong/db/strategies/off/init.lua.

use crate::body::Body;
use crate::control::{Control, Database, Refusal};
use crate::entities::find::{self, Found, Selector, select};
use crate::entities::{certificates, foreign, reference_to, target, ttl, view};
use crate::explain::conflicts;
use crate::infer::infer;
use crate::proposal::propose;
use crate::request::Call;
use crate::respond::Failure;
use model::entities::Plugin;
use model::error::brace_notation;
use model::schema::{VaultReferences, registry};
use model::value::from_object;
use model::{EntityKind, Error, ErrorCode, Object, Value};
use store::{Change, ChangeSet, Transaction, View};
use uuid::Uuid;

/// A write of one entity. It owns its input, because it is decided later, in the transaction that applies it.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) kind: EntityKind,
    pub(crate) action: Action,
    pub(crate) input: Input,
    /// The parent that the path names, and the field that references it.
    pub(crate) link: Option<(&'static str, Uuid)>,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// `POST`
    Insert,
    /// `PUT`: the body replaces the whole entity.
    Upsert(Selector),
    /// `PATCH`
    Update(Selector),
    /// `DELETE`: deleting a missing entity succeeds.
    Delete(Selector),
    /// `PUT /routes/{route}/service`: the body replaces the service, or creates one if the route has none. The
    /// transaction determines whether the route has one.
    UpsertReferenced {
        relation: &'static str,
        owner: Owner,
    },
}

/// The entity that references the written entity, or will reference it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) kind: EntityKind,
    pub(crate) id: Uuid,
}

/// The fields of a request body.
#[derive(Debug, Clone, Default)]
pub(crate) struct Input {
    fields: Object,
    /// Whether all values are text, because the body is a form. [`infer`] converts them to the types of the schema.
    is_form: bool,
}

impl Input {
    pub(crate) fn json(fields: Object) -> Self {
        Self {
            fields,
            is_form: false,
        }
    }

    pub(crate) fn of(call: &Call<'_>) -> Result<Self, Failure> {
        Ok(match call.body()? {
            Body::Form(fields) => Self {
                fields,
                is_form: true,
            },
            Body::Json(fields) => Self::json(fields),
            Body::None | Body::Yaml(_) => Self::default(),
        })
    }

    /// Returns the fields with their types. `plugin` is the name of the plugin that is configured, if known.
    pub(super) fn typed(&self, kind: EntityKind, plugin: Option<&str>) -> Object {
        let mut fields = self.fields.clone();
        if self.is_form {
            infer(kind, &mut fields, plugin);
        }
        fields
    }
}

/// The outcome of a write.
#[derive(Debug)]
pub(crate) struct Decided {
    /// The entity after the write; `None` if it is deleted.
    pub(crate) found: Option<Found>,
    pub(crate) changes: Vec<Change>,
}

/// Decides and commits the write of a request.
pub(crate) async fn run(call: &Call<'_>, write: Write) -> Result<Option<Found>, Failure> {
    if call.control.database() == Database::Off {
        // `decide` reports invalid input first, and then that writes need a database. Only deleting a missing entity
        // succeeds.
        return Ok(write.decide(call.control, &view(call)?)?.found);
    }
    let (control, kind) = (call.app.shared(), write.kind);
    let (found, _) = propose(call, call.origin.clone(), None, false, move |transaction| {
        apply(&write, &*control, transaction)
    })
    .await?;
    if let Some(found) = &found {
        match kind {
            EntityKind::Routes => conflicts::warn(call, vec![found.id]).await,
            EntityKind::Plugins => warn_of_plugins(call, [&found.entity]),
            _ => {}
        }
        let mut references = VaultReferences::default();
        references.look_at(kind, &found.entity);
        call.warn(references.notices().collect());
    }
    Ok(found)
}

/// Adds warnings about written plugins that do not do what is configured.
pub(crate) fn warn_of_plugins<'e>(call: &Call<'_>, written: impl IntoIterator<Item = &'e Object>) {
    let written = written.into_iter();
    let plugins = written.filter_map(|entity| from_object(entity).ok());
    let plugins: Vec<Plugin> = plugins.collect();
    if !plugins.is_empty() {
        call.warn(call.control.notices(&plugins));
    }
}

/// Decides a write on the state in a transaction and applies its changes there.
pub(crate) fn apply(
    write: &Write,
    control: &dyn Control,
    transaction: &mut Transaction<'_>,
) -> Result<Option<Found>, Refusal> {
    let decided = write.decide(control, &transaction.view()?)?;
    transaction.apply(&ChangeSet {
        changes: decided.changes,
        meta: Vec::new(),
    })?;
    Ok(decided.found)
}

impl Write {
    /// Decides the write: validates it against this state and returns the resulting changes. Nothing is written.
    pub(crate) fn decide(
        &self,
        control: &dyn Control,
        view: &View<'_>,
    ) -> Result<Decided, Failure> {
        match &self.action {
            Action::Insert => self.insert(control, view),
            Action::Upsert(selector) => self.upsert(control, view, selector),
            Action::Update(selector) => self.update(control, view, selector),
            Action::Delete(selector) => delete(control, view, self.kind, selector),
            Action::UpsertReferenced { relation, owner } => {
                self.upsert_referenced(control, view, relation, *owner)
            }
        }
    }

    fn linked(&self) -> Object {
        let mut input = self.input.typed(self.kind, None);
        if let Some((field, parent)) = self.link {
            input.insert(field, reference_to(parent));
        }
        input
    }

    fn insert(&self, control: &dyn Control, view: &View<'_>) -> Result<Decided, Failure> {
        let mode = certificates::Mode::Keep;
        let decided = prepare(control, view, self.kind, self.linked(), mode)?;
        refuse_without_database(control, "create", self.kind, None)?;
        if let Some(found) = &decided.found
            && find::by_id(view, self.kind, found.id)?.is_some()
        {
            return Err(primary_key_violation(found.id).into());
        }
        Ok(decided)
    }

    fn upsert(
        &self,
        control: &dyn Control,
        view: &View<'_>,
        selector: &Selector,
    ) -> Result<Decided, Failure> {
        let mut input = self.linked();
        let existing = select(view, self.kind, selector)?;
        let id = match (selector, existing) {
            (Selector::Id(id), _) => *id,
            (_, Some(found)) => found.id,
            (_, None) => Uuid::new_v4(),
        };
        input.insert("id", Value::from(id.to_string()));
        if let Some((field, value)) = selector.fixed()
            && !(matches!(selector, Selector::Nested { .. }) && input.contains(field))
        {
            input.insert(field, Value::from(value));
        }
        if let Selector::Sni(name) = selector {
            certificates::add_sni_of_path(&mut input, name);
        }
        let mode = certificates::Mode::Replace;
        let decided = prepare(control, view, self.kind, input, mode)?;
        refuse_without_database(control, "create or update", self.kind, Some(selector))?;
        Ok(decided)
    }

    fn upsert_referenced(
        &self,
        control: &dyn Control,
        view: &View<'_>,
        relation: &str,
        owner: Owner,
    ) -> Result<Decided, Failure> {
        let owned = find::by_id(view, owner.kind, owner.id)?.ok_or_else(Failure::not_found)?;
        if let Some(id) = find::reference(&owned.entity, relation) {
            return self.upsert(control, view, &Selector::Id(id));
        }
        let mut decided = self.upsert(control, view, &Selector::Id(Uuid::new_v4()))?;
        let id = decided.found.as_ref().map(|found| found.id);
        let link = Object::from_iter([(relation, id.map_or(Value::Null, reference_to))]);
        let schema = registry().entity(owner.kind);
        let linked = schema.merge(&owned.entity, link, &control.context())?;
        decided.changes.push(put(owner.kind, owner.id, &linked));
        Ok(decided)
    }

    fn update(
        &self,
        control: &dyn Control,
        view: &View<'_>,
        selector: &Selector,
    ) -> Result<Decided, Failure> {
        let kind = self.kind;
        let existing = select(view, kind, selector)?
            .filter(|found| !find::is_expired(control, kind, &found.entity));
        let plugin = existing.as_ref().and_then(|found| found.entity.str("name"));
        let mut patch = self.input.typed(kind, plugin);
        let Some(existing) = existing else {
            return Err(not_found(selector));
        };
        patch.remove("id");
        foreign::resolve(view, kind, &mut patch)?;
        let lifetime = ttl::take(control, kind, &mut patch)?;
        let snis = certificates::take(control, kind, &patch)?;
        let id = existing.id;
        let entity = merged(control, kind, existing.entity, patch, lifetime)?;
        let mode = certificates::Mode::Keep;
        let mut changes = vec![put(kind, id, &entity)];
        changes.extend(certificates::changes(control, view, id, snis, mode)?);
        refuse_without_database(control, "update", kind, Some(selector))?;
        Ok(Decided {
            found: Some(Found { id, entity }),
            changes,
        })
    }
}

fn delete(
    control: &dyn Control,
    view: &View<'_>,
    kind: EntityKind,
    selector: &Selector,
) -> Result<Decided, Failure> {
    let mut changes = Vec::new();
    if let Some(found) = select(view, kind, selector)? {
        refuse_without_database(control, "remove", kind, Some(selector))?;
        certificates::check_delete(view, kind, found.id)?;
        changes = certificates::deletes(view, kind, found.id)?;
        changes.push(Change::Delete { kind, id: found.id });
    }
    Ok(Decided {
        found: None,
        changes,
    })
}

/// Returns the entity with the patch applied. `lifetime` is the result of [`ttl::take`]. If it is `None`, the entity
/// keeps its time to live.
pub(super) fn merged(
    control: &dyn Control,
    kind: EntityKind,
    mut base: Object,
    patch: Object,
    lifetime: Option<Option<Value>>,
) -> Result<Object, Failure> {
    let (schema, context) = (registry().entity(kind), control.context());
    let stored_ttl = base.remove("ttl");
    let mut entity = schema.merge(&base, patch, &context)?;
    if let Some(end) = lifetime.unwrap_or(stored_ttl) {
        entity.insert("ttl", end);
    }
    Ok(entity)
}

/// Completes and validates a whole entity.
fn prepare(
    control: &dyn Control,
    view: &View<'_>,
    kind: EntityKind,
    mut input: Object,
    mode: certificates::Mode,
) -> Result<Decided, Failure> {
    foreign::resolve(view, kind, &mut input)?;
    if kind == EntityKind::Targets {
        target::check(&input)?;
    }
    let lifetime = ttl::take(control, kind, &mut input)?;
    let snis = certificates::take(control, kind, &input)?;
    let mut entity = registry()
        .entity(kind)
        .complete(input, &control.context())?;
    let id = entity
        .str("id")
        .and_then(find::parse_id)
        .ok_or_else(|| Failure::internal("a completed entity has no id"))?;
    if let Some(Some(end)) = lifetime {
        entity.insert("ttl", end);
    }
    if kind == EntityKind::Targets {
        target::normalise(&mut entity);
    }
    let mut changes = vec![put(kind, id, &entity)];
    changes.extend(certificates::changes(control, view, id, snis, mode)?);
    Ok(Decided {
        found: Some(Found { id, entity }),
        changes,
    })
}

fn put(kind: EntityKind, id: Uuid, entity: &Object) -> Change {
    Change::Put {
        kind,
        id,
        entity: model::codec::encode(entity),
    }
}

/// Refuses a write without a database. As in Kong, the text depends on how the path names the entity.
fn refuse_without_database(
    control: &dyn Control,
    operation: &str,
    kind: EntityKind,
    selector: Option<&Selector>,
) -> Result<(), Failure> {
    if control.database() != Database::Off {
        return Ok(());
    }
    let by = match selector {
        Some(Selector::Key { field, .. }) => format!(" by '{field}'"),
        _ => String::new(),
    };
    let message = format!(
        "cannot {operation} '{}' entities{by} when not using a database",
        kind.name()
    );
    Err(Error::new(ErrorCode::OperationUnsupported, message).into())
}

pub(super) fn primary_key_violation(id: Uuid) -> Error {
    let key = Object::from_iter([("id", Value::from(id.to_string()))]);
    let shown = brace_notation(&Value::Object(key.clone()));
    let message = format!("primary key violation on key '{shown}'");
    Error::new(ErrorCode::PrimaryKeyViolation, message).with_fields(key)
}

pub(super) fn not_found(selector: &Selector) -> Failure {
    let (field, value) = match selector {
        Selector::Id(id) => ("id", id.to_string()),
        Selector::Key { field, value } => (field.as_str(), value.clone()),
        Selector::Sni(_) | Selector::Nested { .. } => return Failure::not_found(),
    };
    let key = Object::from_iter([(field, Value::from(value))]);
    let shown = brace_notation(&Value::Object(key.clone()));
    let message = match selector {
        Selector::Id(_) => format!("could not find the entity with primary key '{shown}'"),
        _ => format!("could not find the entity with '{shown}'"),
    };
    let error = Error::new(ErrorCode::NotFound, message).with_fields(key);
    error.into()
}
