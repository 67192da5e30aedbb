//! A fake gateway that has only a store.

use admin::control::{
    Access, Api as Apis, Audit, Connections, Database, DeclarativeBody, Failure, Load, LoadError,
    Loaded, LogLevel, Memory, Metric, Node, Pids, ProfileOrder, Proposal, Readiness, Role,
    UpstreamHealth,
};
use admin::explain::{Among, Cause, Conflicts, Example, Named, Never, Search, Subsystem, Tie};
use admin::{Connection, Control, Extensions, Limits};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use axum::response::Response;
use futures_util::future::BoxFuture;
use model::declarative::{self, Format, Source};
use model::schema::{Context, EnabledPlugins, RouterFlavor, VaultReferences, registry};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::{Change, ChangeLog, ChangeSet, CommitError, ExistingEntities, Origin, Store};
use tempfile::TempDir;
use tokens::TokenStore;
use tokens::embedded::Embedded;
use tower::ServiceExt;
use uuid::Uuid;

/// The entries of the audit log.
pub(crate) type Audits = Arc<Mutex<Vec<Audit>>>;

/// The statuses in the access log.
pub(crate) type Statuses = Arc<Mutex<Vec<u16>>>;

pub(crate) struct Fake {
    store: Store,
    node: Node,
    database: Database,
    hash: Mutex<[u8; 16]>,
    log_level: Mutex<LogLevel>,
    metrics: Vec<Metric>,
    readiness: Mutex<Readiness>,
    audits: Audits,
    statuses: Statuses,
    gate: Mutex<Option<Receiver<()>>>,
    health: Option<UpstreamHealth>,
    extensions: Option<Extensions>,
    tokens: Arc<dyn TokenStore>,
    _directory: TempDir,
}

impl Fake {
    pub(crate) fn new(database: Database) -> Self {
        Self::with_options(database, store::Options::default())
    }

    pub(crate) fn with_options(database: Database, options: store::Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        plugins::install();
        let (store, _) = Store::open(&directory.path().join("store.lmdb"), options).unwrap();
        let keys = tokens::Keys::new(&[7; 64], 1);
        let tokens = directory.path().join("tokens");
        let tokens = Embedded::open(&tokens, 1 << 28, keys, tokens::Storage::Sealed).unwrap();
        Self {
            tokens: Arc::new(tokens),
            store,
            node: Node {
                id: Uuid::from_u128(7),
                hostname: "host.test".into(),
                version: "0.1.0".into(),
                kong_version: "3.9.1".into(),
                role: Role::Traditional,
                server_header: true,
                latency_header: true,
                gui_origins: Vec::new(),
                max_body_size: Some(10_000),
                max_config_size: Some(1 << 20),
            },
            database,
            hash: Mutex::default(),
            log_level: Mutex::new(LogLevel::Notice),
            metrics: Vec::new(),
            readiness: Mutex::new(Readiness::Ready),
            audits: Audits::default(),
            statuses: Statuses::default(),
            gate: Mutex::default(),
            health: None,
            extensions: None,
            _directory: directory,
        }
    }

    pub(crate) fn with_node(mut self, change: impl FnOnce(&mut Node)) -> Self {
        change(&mut self.node);
        self
    }

    pub(crate) fn with_metrics(mut self, metrics: Vec<Metric>) -> Self {
        self.metrics = metrics;
        self
    }

    pub(crate) fn audits(&self) -> Audits {
        Arc::clone(&self.audits)
    }

    pub(crate) fn statuses(&self) -> Statuses {
        Arc::clone(&self.statuses)
    }

    /// Blocks the first call of `context` until the sender sends or is dropped, at most for ten seconds. Validations
    /// call `context`.
    pub(crate) fn with_gate(self, gate: Receiver<()>) -> Self {
        *self.gate.lock().unwrap() = Some(gate);
        self
    }

    /// Sets the health of every upstream.
    pub(crate) fn with_health(self, health: UpstreamHealth) -> Self {
        let health = Some(health);
        Self { health, ..self }
    }

    pub(crate) fn with_endpoints(mut self, endpoints: Vec<plugin::Endpoint>) -> Self {
        let node = plugin::Node::bare().unwrap();
        self.extensions = Some(Extensions { endpoints, node });
        self
    }

    pub(crate) fn with_readiness(self, readiness: Readiness) -> Self {
        *self.readiness.lock().unwrap() = readiness;
        self
    }

    fn load(&self, load: Load) -> Result<Loaded, LoadError> {
        let invalid = |error| LoadError::Invalid(Box::new(error));
        let mut hash = [0; 16];
        let options = declarative::Options {
            context: self.context(),
            flatten_errors: load.flatten_errors,
        };
        let view = self.store.view().unwrap();
        let existing = ExistingEntities::new(&view);
        let source = match &load.body {
            DeclarativeBody::Json(text) => Source::JsonBody(text),
            DeclarativeBody::Structured(object) => Source::Object(object.clone()),
            DeclarativeBody::Text(text) => {
                hash = digest(text);
                if load.check_hash && hash == *self.hash.lock().unwrap() {
                    return Ok(Loaded::Unchanged);
                }
                Source::Text(text, Format::Auto)
            }
        };
        let document = declarative::Loader::new()
            .load(source, &options, &existing, 0)
            .map_err(invalid)?;
        existing.finish().unwrap();
        drop(view);
        let mut references = VaultReferences::default();
        for put in &document.puts {
            references.look(put.kind, &put.entity).unwrap();
        }
        let puts = document.puts.into_iter().map(|put| Change::Put {
            kind: put.kind,
            id: put.id,
            entity: put.entity,
        });
        let deletes = document
            .deletes
            .into_iter()
            .map(|(kind, id)| Change::Delete { kind, id });
        let changes = ChangeSet {
            changes: puts.chain(deletes).collect(),
            meta: Vec::new(),
        };
        let revision = self.apply(changes)?;
        *self.hash.lock().unwrap() = hash;
        Ok(Loaded::Live {
            revision,
            untransformed: document.untransformed,
            warnings: document
                .warnings
                .into_iter()
                .chain(references.notices())
                .collect(),
        })
    }

    fn apply(&self, changes: ChangeSet) -> Result<store::Revision, LoadError> {
        match self.store.commit(None, changes, &Origin::default()) {
            Ok(revision) => Ok(revision),
            Err(error) => match error.to_error() {
                Some(error) => Err(LoadError::Invalid(Box::new(error))),
                None => Err(LoadError::Internal(error.to_string())),
            },
        }
    }
}

/// Any hash function is sufficient, because only equality is tested.
fn digest(text: &[u8]) -> [u8; 16] {
    *Uuid::new_v5(&Uuid::NAMESPACE_OID, text).as_bytes()
}

impl Control for Fake {
    fn upstream_health(&self, _: Uuid) -> Option<UpstreamHealth> {
        self.health.clone()
    }

    fn profile(&self, _: ProfileOrder) -> BoxFuture<'_, Result<Vec<u8>, Failure>> {
        Box::pin(async { Ok(b"samples".to_vec()) })
    }

    fn load_declarative(&self, load: Load) -> BoxFuture<'_, Result<Loaded, LoadError>> {
        Box::pin(async move { self.load(load) })
    }

    fn commit(&self, mut proposal: Proposal) -> BoxFuture<'_, Result<store::Revision, LoadError>> {
        Box::pin(async move {
            // Let other requests run first. This is as in the gateway, where another thread carries out proposals.
            tokio::task::yield_now().await;
            let mut tried = None;
            let done = self.store.transact(&mut |transaction| {
                let outcome = proposal.run(transaction)?;
                tried = Some(outcome);
                if proposal.dry_run {
                    return Err(CommitError::Abandoned);
                }
                Ok(())
            });
            match (done, tried) {
                (_, Some(outcome)) => outcome,
                (Err(error), None) => Err(error.into()),
                (Ok(()), None) => unreachable!("the transaction was not run"),
            }
        })
    }

    /// Reports a contradiction for each requested route. A search among all routes reports two ties between routes: one
    /// for an HTTP request and one for a stream.
    fn conflicts(&self, search: Search) -> BoxFuture<'_, Result<Conflicts, Failure>> {
        let Among::Routes(ids) = search.among else {
            let found = Conflicts {
                ties: vec![tied_requests(), tied_streams()],
                ..Conflicts::default()
            };
            return Box::pin(async { Ok(found) });
        };
        let never = ids.into_iter().map(|id| Never {
            route: Named { id, name: None },
            subsystem: Subsystem::Http,
            expression: "http.path == \"\"".to_owned(),
            whole: true,
            reason: Cause::Contradiction,
            by: Vec::new(),
        });
        let never = never.collect();
        let found = Conflicts {
            never,
            ..Conflicts::default()
        };
        Box::pin(async { Ok(found) })
    }

    fn oauth2_tokens(&self) -> Option<Arc<dyn TokenStore>> {
        Some(Arc::clone(&self.tokens))
    }

    fn store(&self) -> &Store {
        &self.store
    }

    fn context(&self) -> Context {
        let gate = self.gate.lock().unwrap().take();
        if let Some(gate) = gate {
            let _ = gate.recv_timeout(Duration::from_secs(10));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Context {
            flavor: RouterFlavor::TraditionalCompatible,
            plugins: EnabledPlugins::Bundled,
            dbless: self.database == Database::Off,
            ..Context::at(now)
        }
    }

    fn database(&self) -> Database {
        self.database
    }

    fn node(&self) -> &Node {
        &self.node
    }

    fn enabled_plugins(&self) -> Vec<String> {
        registry()
            .plugins()
            .map(|plugin| plugin.name.to_owned())
            .collect()
    }

    fn extensions(&self) -> Option<Extensions> {
        self.extensions.clone()
    }

    fn settings(&self) -> Value {
        serde_json::json!({ "database": "off", "pg_password": "******" })
    }

    fn pids(&self) -> Pids {
        Pids {
            master: 1,
            workers: vec![1, 1],
        }
    }

    fn connections(&self) -> Connections {
        Connections::default()
    }

    fn memory(&self) -> Memory {
        Memory::default()
    }

    fn metrics(&self) -> Vec<Metric> {
        self.metrics.clone()
    }

    fn configuration_hash(&self) -> [u8; 16] {
        *self.hash.lock().unwrap()
    }

    fn readiness(&self) -> Readiness {
        *self.readiness.lock().unwrap()
    }

    fn announce_drain(&self) {
        *self.readiness.lock().unwrap() = Readiness::Draining;
    }

    fn logs_access(&self, _api: Apis) -> bool {
        true
    }

    fn log_access(&self, _api: Apis, access: &Access) {
        self.statuses.lock().unwrap().push(access.status);
    }

    fn audit(&self, audit: &Audit) {
        self.audits.lock().unwrap().push(audit.clone());
    }

    fn log_level(&self) -> LogLevel {
        *self.log_level.lock().unwrap()
    }

    fn set_log_level(&self, level: LogLevel, _timeout: Duration) {
        *self.log_level.lock().unwrap() = level;
    }
}

/// A response with its body.
pub(crate) struct FakeResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl FakeResponse {
    pub(crate) fn json(&self) -> Value {
        match self.text.as_str() {
            "" => Value::String(String::new()),
            text => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

/// An Admin API without sockets. All requests come from the operator.
pub(crate) struct Api {
    router: Router,
    connection: Arc<Connection>,
}

impl Api {
    pub(crate) fn new(fake: Fake) -> Self {
        Self::of(admin::router(Arc::new(fake)))
    }

    pub(crate) fn status(fake: Fake) -> Self {
        Self::of(admin::status_router(Arc::new(fake)))
    }

    fn of(router: Router) -> Self {
        Self {
            router,
            connection: Connection::of_operator(Limits::default()),
        }
    }

    pub(crate) fn with_limits(mut self, limits: Limits) -> Self {
        self.connection = Connection::of_operator(limits);
        self
    }

    pub(crate) fn router(&self) -> Router {
        self.router.clone()
    }

    pub(crate) fn off() -> Self {
        Self::new(Fake::new(Database::Off))
    }

    pub(crate) fn lmdb() -> Self {
        Self::new(Fake::new(Database::Lmdb))
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> FakeResponse {
        let response = self.exchange(method, path, headers, body.into()).await;
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        FakeResponse {
            status: parts.status.as_u16(),
            headers: parts.headers,
            // Metrics can be compressed or in protobuf.
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    /// Returns a response without reading its body.
    pub(crate) async fn open(&self, path: &str) -> Response {
        self.exchange("GET", path, &[], Body::empty()).await
    }

    async fn exchange(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.extension(Arc::clone(&self.connection));
        let request = request.body(body).unwrap();
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> FakeResponse {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn json(&self, method: &str, path: &str, body: &Value) -> FakeResponse {
        let headers = [("content-type", "application/json")];
        self.send(method, path, &headers, body.to_string()).await
    }

    pub(crate) async fn form(&self, method: &str, path: &str, body: &'static str) -> FakeResponse {
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        self.send(method, path, &headers, body).await
    }
}

fn tied_requests() -> Tie {
    tie(
        Subsystem::Http,
        Example {
            protocol: "http".to_owned(),
            method: Some("GET".to_owned()),
            path: Some("/".to_owned()),
            host: None,
            headers: BTreeMap::new(),
            sni: String::new(),
            source: None,
            destination: ":80".to_owned(),
        },
    )
}

fn tied_streams() -> Tie {
    tie(
        Subsystem::Stream,
        Example {
            protocol: "tls".to_owned(),
            method: None,
            path: None,
            host: None,
            headers: BTreeMap::new(),
            sni: "a.test".to_owned(),
            source: Some("127.0.0.1:40000".to_owned()),
            destination: "127.0.0.1:9000".to_owned(),
        },
    )
}

fn tie(subsystem: Subsystem, example: Example) -> Tie {
    let named = || Named {
        id: Uuid::nil(),
        name: None,
    };
    Tie {
        first: named(),
        second: named(),
        subsystem,
        example,
    }
}
