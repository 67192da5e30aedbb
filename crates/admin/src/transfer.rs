//! `/import` and `/export`: all entities of a store as one document. In Kong, only the command line can import and
//! export (kong/cmd/config.lua), without the running node. In Silverback, an import is a change like any other.

use crate::audit::Later;
use crate::control::{Control, Database};
use crate::entities::oauth2_tokens;
use crate::proposal::{self, Refusal};
use crate::request::Call;
use crate::respond::{ApiResult, Failure, json};
use crate::stream::Slot;
use crate::token_transfer::{self, TokensOfDocument};
use ::tokens::TokenStore;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use model::declarative::{
    self, Counts, Existing, ExportError, ExportFormat, Format, KeyPart, Options, Put,
};
use model::entities::Plugin;
use model::schema::{RouterFlavor, VaultReferences, registry};
use model::{EntityKind, codec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use store::{
    Change, ChangeSet, ExistingEntities, Origin, Revision, Store, StoreError, Transaction, View,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use uuid::Uuid;

/// The progress of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum Progress {
    Reading,
    Validating {
        done: usize,
        total: usize,
    },
    Writing,
    /// Compiling, syncing to disk, and passing the revision to the workers.
    MakingLive,
}

/// Content type of responses with one JSON object per line.
pub(crate) const LINES: &str = "application/x-ndjson";

// === import ===

/// The effect of an imported document.
#[derive(Debug)]
pub struct Merged {
    pub counts: Counts,
    /// Sentences about input that is probably a mistake.
    pub warnings: Vec<String>,
    /// The created and changed plugins.
    pub plugins: Vec<Plugin>,
    /// The vault references in created and changed entities.
    pub references: VaultReferences,
    /// The encoded OAuth2 tokens. They are imported once the other entities are committed.
    pub tokens: Vec<Vec<u8>>,
}

impl Merged {
    /// Adds the outcome of the import of the document's tokens.
    pub fn count_tokens(&mut self, tokens: TokensOfDocument) {
        self.counts.created += tokens.imported;
        self.counts.unchanged += tokens.present;
        self.warnings.extend(tokens.warnings);
    }

    /// Imports the OAuth2 tokens of the document, on another thread.
    async fn import_tokens(&mut self, control: Arc<dyn Control>) -> Result<(), Failure> {
        let entities = std::mem::take(&mut self.tokens);
        if entities.is_empty() {
            return Ok(());
        }
        let tokens = control
            .oauth2_tokens()
            .ok_or_else(oauth2_tokens::no_store)?;
        let now = control.context().now;
        let work =
            move || token_transfer::import_entities(control.store(), &*tokens, &entities, now);
        let done = tokio::task::spawn_blocking(work).await;
        self.count_tokens(done.map_err(Failure::internal)??);
        Ok(())
    }

    /// Returns the warnings about the document, the plugins (`notices`) and the vault references.
    pub fn all_warnings(self, notices: Vec<String>) -> Vec<String> {
        let warnings = self.warnings.into_iter().chain(notices);
        warnings.chain(self.references.notices()).collect()
    }
}

/// Merges a document into the state of a transaction.
pub fn merge(
    transaction: &mut Transaction<'_>,
    text: &[u8],
    format: Format,
    options: &Options,
    watch: &mut dyn FnMut(Progress),
) -> Result<Merged, Refusal> {
    watch(Progress::Reading);
    let document = {
        let view = transaction.view()?;
        let existing = ExistingEntities::new(&view);
        let mut validated = |done, total| watch(Progress::Validating { done, total });
        let merged = declarative::merge(text, format, options, &existing, &mut validated);
        existing.finish()?;
        merged.map_err(Failure::from)?
    };
    // Plugins that cannot be decoded are skipped here. Building the snapshot refuses them.
    let plugins = document.puts.iter();
    let plugins = plugins.filter(|put| put.kind == EntityKind::Plugins);
    let plugins = plugins.filter_map(|put| codec::decode(&put.entity).ok());
    let plugins = plugins.collect();
    let mut references = VaultReferences::default();
    for put in &document.puts {
        let looked = references.look(put.kind, &put.entity);
        looked.map_err(Failure::internal)?;
    }
    let Parted {
        changes,
        tokens,
        left_out,
        warnings,
    } = Parted::of(document.puts);
    let warnings = warnings.into_iter().chain(document.warnings);
    let warnings = warnings.map(|warning| format!("the imported configuration: {warning}"));
    let mut counts = document.counts;
    counts.created = counts.created.saturating_sub(tokens.len() + left_out);
    let merged = Merged {
        tokens,
        counts,
        warnings: warnings.collect(),
        plugins,
        references,
    };
    watch(Progress::Writing);
    transaction.apply(&ChangeSet {
        changes,
        meta: Vec::new(),
    })?;
    watch(Progress::MakingLive);
    Ok(merged)
}

/// The entities of a document, parted by where they belong.
pub struct Parted {
    pub changes: Vec<Change>,
    /// The encoded OAuth2 tokens, which are not configuration.
    pub tokens: Vec<Vec<u8>>,
    /// Number of entities that can only be left out, such as sessions.
    pub left_out: usize,
    /// A sentence about each kind of these.
    pub warnings: Vec<String>,
}

impl Parted {
    pub fn of(puts: Vec<Put>) -> Self {
        let (mut changes, mut tokens) = (Vec::with_capacity(puts.len()), Vec::new());
        let mut left_out: BTreeMap<&str, usize> = BTreeMap::new();
        for Put { kind, id, entity } in puts {
            let schema = registry().entity(kind);
            if oauth2_tokens::is(kind) {
                tokens.push(entity);
            } else if schema.is_apart {
                *left_out.entry(schema.name).or_default() += 1;
            } else {
                changes.push(Change::Put { kind, id, entity });
            }
        }
        let warnings = left_out.iter().map(|(kind, count)| {
            format!("the {kind} ({count}) are left out, because they are not configuration")
        });
        Self {
            warnings: warnings.collect(),
            left_out: left_out.values().sum(),
            changes,
            tokens,
        }
    }
}

/// Says why an import needs a database, and what to do instead.
pub const NO_DATABASE: &str = "with database = off a declarative file is the configuration: change that file and run \
    `silverback reload`, or post the whole configuration to /config. To import entities, start with database = lmdb";

/// `POST /import`: responds when the import is live. Clients that accept `application/x-ndjson` get progress reports
/// until then.
pub(crate) async fn import(call: &Call<'_>) -> ApiResult {
    if call.control.database() == Database::Off {
        return Err(Failure::bad_request(NO_DATABASE));
    }
    let format = match call.content_type {
        Some(kind) if kind.starts_with("application/json") => Format::Json,
        Some(kind) if kind.starts_with("application/yaml") || kind.starts_with("text/yaml") => {
            Format::Yaml
        }
        None if call.bytes.is_empty() => {
            return Err(Failure::bad_request("expected a declarative configuration"));
        }
        _ => return Err(Failure::UnsupportedMediaType),
    };
    let import = Import {
        control: call.app.shared(),
        origin: call.origin.clone(),
        text: call.bytes.clone(),
        format,
    };
    if !call.accept.is_some_and(|accept| accept.contains(LINES)) {
        let (imported, revision) = import.run(|_| {}).await?;
        call.record(revision, call.origin.message.clone());
        call.warn_some(imported.warnings.clone());
        return Ok(json(StatusCode::OK, &imported));
    }
    let (lines, told) = unbounded_channel();
    let (later, audited) = Later::channel();
    // The import continues if the client disconnects.
    tokio::spawn(async move {
        let progress = lines.clone();
        let imported = import
            .run(move |stage| drop(progress.send(json!(stage))))
            .await;
        let revision = imported.as_ref().ok().map(|(_, revision)| *revision);
        let (status, last) = match imported {
            Ok((imported, _)) => (StatusCode::OK, json!(imported)),
            Err(failure) => failed(failure).await,
        };
        if let Ok(audited) = audited.await {
            audited.end(status, revision);
        }
        let _ = lines.send(last);
    });
    let kind = [(CONTENT_TYPE, HeaderValue::from_static(LINES))];
    let mut response = (StatusCode::OK, kind, line_by_line(told)).into_response();
    response.extensions_mut().insert(later);
    Ok(response)
}

struct Import {
    control: Arc<dyn Control>,
    origin: Origin,
    text: Bytes,
    format: Format,
}

impl Import {
    async fn run(
        self,
        mut watch: impl FnMut(Progress) + Send + 'static,
    ) -> Result<(Imported, Revision), Failure> {
        let Self {
            control,
            origin,
            text,
            format,
        } = self;
        let options = Options {
            context: control.context(),
            flatten_errors: false,
        };
        let work = move |transaction: &mut Transaction<'_>| {
            merge(transaction, &text, format, &options, &mut watch)
        };
        let proposed = proposal::propose_document(&*control, origin, work).await;
        let (mut merged, revision) = proposed?;
        merged.import_tokens(Arc::clone(&control)).await?;
        for warning in &merged.warnings {
            tracing::warn!("{warning}");
        }
        // Building the snapshot has already logged the plugins that are not implemented and the vault references.
        let notices = control.notices(&merged.plugins);
        let counts = merged.counts;
        let imported = Imported {
            revision: revision.0,
            created: counts.created,
            updated: counts.updated,
            unchanged: counts.unchanged,
            warnings: merged.all_warnings(notices),
        };
        Ok((imported, revision))
    }
}

/// The result of an import. The OpenAPI document is generated from this struct.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Imported {
    revision: u64,
    created: usize,
    updated: usize,
    unchanged: usize,
    /// Sentences about input that is probably a mistake, and about plugins that are not implemented. Absent if there
    /// are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Returns the status and the error as the last line of a response, because status 200 has already been sent.
pub(crate) async fn failed(failure: Failure) -> (StatusCode, serde_json::Value) {
    let response = failure.into_response();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
    let body: Option<serde_json::Value> = body
        .ok()
        .and_then(|body| serde_json::from_slice(&body).ok());
    (status, json!({"status": status.as_u16(), "error": body}))
}

pub(crate) fn line_by_line(told: UnboundedReceiver<serde_json::Value>) -> Body {
    let lines = futures_util::stream::unfold(told, |mut told| async {
        let line = told.recv().await?;
        Some((Ok::<_, io::Error>(format!("{line}\n")), told))
    });
    Body::from_stream(lines)
}

// === export ===

/// The reason why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Tokens(#[from] ::tokens::StoreError),
    #[error("more than {MAX_TOKENS} OAuth2 tokens: export them apart, as lines of JSON")]
    TooManyTokens,
}

/// Writes all entities of a revision as a document, with these tokens. If this fails, the output is incomplete and must be
/// discarded.
pub fn export(
    view: &View<'_>,
    tokens: &Tokens,
    format: ExportFormat,
    flavor: RouterFlavor,
    out: &mut dyn Write,
) -> Result<(), Unreadable> {
    let existing = WithTokens {
        entities: ExistingEntities::new(view),
        tokens,
    };
    let written = declarative::export(&existing, format, flavor, out);
    existing.entities.finish()?;
    Ok(written?)
}

/// OAuth2 tokens as encoded entities.
#[derive(Debug, Default)]
pub struct Tokens(BTreeMap<Uuid, Vec<u8>>);

/// Largest number of tokens in a document, which is sorted in memory.
const MAX_TOKENS: usize = 100_000;

impl Tokens {
    /// Reads all tokens.
    pub fn read<'s>(
        view: &dyn Fn() -> Result<View<'s>, StoreError>,
        tokens: &dyn TokenStore,
        now: i64,
    ) -> Result<Self, Unreadable> {
        let mut read = BTreeMap::new();
        token_transfer::for_each_token::<Unreadable>(view, tokens, now, &mut |_, entity| {
            if read.len() == MAX_TOKENS {
                return Err(Unreadable::TooManyTokens);
            }
            let id = entity.str("id").and_then(|id| Uuid::try_parse(id).ok());
            read.extend(id.map(|id| (id, codec::encode(&entity))));
            Ok(())
        })?;
        Ok(Self(read))
    }
}

/// The entities of a store and tokens.
struct WithTokens<'v> {
    entities: ExistingEntities<'v>,
    tokens: &'v Tokens,
}

impl Existing for WithTokens<'_> {
    fn get(&self, kind: EntityKind, id: Uuid) -> Option<&[u8]> {
        match oauth2_tokens::is(kind) {
            true => self.tokens.0.get(&id).map(Vec::as_slice),
            false => self.entities.get(kind, id),
        }
    }

    fn id_by_unique(&self, kind: EntityKind, field: &str, value: &str) -> Option<Uuid> {
        self.entities.id_by_unique(kind, field, value)
    }

    fn id_by_cache_key(&self, kind: EntityKind, parts: &[KeyPart<'_>]) -> Option<Uuid> {
        self.entities.id_by_cache_key(kind, parts)
    }

    fn for_each(&self, kind: EntityKind, visit: &mut dyn FnMut(Uuid, &[u8])) {
        if !oauth2_tokens::is(kind) {
            return self.entities.for_each(kind, visit);
        }
        for (id, token) in &self.tokens.0 {
            visit(*id, token);
        }
    }
}

/// Writes the newest revision of a store.
pub(crate) fn write(
    store: &Store,
    format: ExportFormat,
    flavor: RouterFlavor,
    out: &mut dyn Write,
) -> Result<(), Unreadable> {
    export(&store.view()?, &Tokens::default(), format, flavor, out)
}

/// `GET /export`: responds with YAML unless the client requests JSON. The response shows one revision, even if the
/// client reads slowly while other requests change entities.
pub(crate) async fn show(call: &Call<'_>) -> ApiResult {
    let accepted = call.accept.unwrap_or_default();
    let format = match call.query("format") {
        Some("yaml") => ExportFormat::Yaml,
        Some("json") => ExportFormat::Json,
        None if accepted.contains("application/json") => ExportFormat::Json,
        None => ExportFormat::Yaml,
        Some(_) => return Err(Failure::bad_request("format: expected yaml or json")),
    };
    let store = call.control.store().clone();
    let flavor = call.control.context().flavor;
    let kind = match format {
        ExportFormat::Yaml => "application/yaml",
        ExportFormat::Json => "application/json",
    };
    let tokens = match call.query("oauth2_tokens") {
        Some("true") => Some(
            call.control
                .oauth2_tokens()
                .ok_or_else(oauth2_tokens::no_store)?,
        ),
        Some("false") | None => None,
        Some(_) => {
            return Err(Failure::bad_request(
                "oauth2_tokens: expected true or false",
            ));
        }
    };
    let now = call.control.context().now;
    let slot = Slot::take(call, "/export")?;
    let directory = store.directory().to_owned();
    let answer = slot.answer(&directory, HeaderValue::from_static(kind), move |chunks| {
        let read = tokens.map(|tokens| Tokens::read(&|| store.view(), &*tokens, now));
        let tokens = read.transpose()?.unwrap_or_default();
        let written = export(&store.view()?, &tokens, format, flavor, chunks);
        // Serving requests needs few of the pages that were read for the response.
        store.release_resident_pages();
        written
    });
    answer.await
}
