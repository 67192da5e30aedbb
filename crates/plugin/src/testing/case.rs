//! The configured plugins of a test, and the node that they run on.

use super::call::Call;
use super::entities::FakeEntities;
use crate::configured::{ConfiguredName, ConfiguredNames, Scope, ScopeSet};
use crate::def::{
    BuildCx, Implementation, LuaSettings, NodeIdentity, Phases, PluginDef, UntrustedLua,
};
use crate::entities::Entities;
use crate::handler::{Handler, Maker};
use crate::node::{BODY_BUFFER, CACHE_SIZE, Node, NodeParts};
use crate::request::{Consumer, Request};
use crate::worker_part::{Life, free_ended_parts};
use expr::Block;
use model::entities::{ConsumerId, PluginId, RouteId, ServiceId};
use model::schema::{Context, registry};
use model::{EntityKind, Object, Value};
use net::dns::Resolver;
use net::tls::Trust;
use serde_json::Value as Json;
use services::{Background, Clock};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokens::TokenStore;
use tokens::sessions::SessionStore;
use uuid::Uuid;

/// The route of each request, unless the test gives another one.
pub const ROUTE: Uuid = Uuid::from_u128(0x40e);
/// The service of each request, unless the test gives another one.
pub const SERVICE: Uuid = Uuid::from_u128(0x5e41ce);

/// The time of the node's clock at first, since 1970.
const START: Duration = Duration::from_secs(1_700_000_000);

/// Configured plugins on a node. The plugins are built and started before the first request.
pub struct Case {
    plugins: Vec<Planned>,
    identity: NodeIdentity,
    entities: Arc<dyn Entities>,
    tokens: Option<Arc<dyn TokenStore>>,
    sessions: Option<Arc<dyn SessionStore>>,
    lua: LuaSettings,
    trusted_ips: Vec<Block>,
    configuration: String,
    clock: Clock,
    background: Option<Background>,
    node: Option<Arc<Node>>,
    running: OnceLock<Running>,
}

/// A plugin that is to be built.
struct Planned {
    def: Arc<PluginDef>,
    config: Value,
    scope: Scope,
    instance_name: Option<String>,
}

/// The plugins of a case, after their start.
pub(super) struct Running {
    pub(super) node: Arc<Node>,
    /// In execution order. The instances of one plugin follow each other.
    pub(super) instances: Vec<Instance>,
}

pub(super) struct Instance {
    pub(super) handler: Arc<dyn Handler>,
    life: Arc<Life>,
    pub(super) def: Arc<PluginDef>,
    pub(super) phases: Phases,
    /// Position of the plugin in the execution order. All instances of a plugin have the same.
    pub(super) order: u16,
    pub(super) scope: Scope,
    id: PluginId,
    instance_name: Option<String>,
}

/// Returns the configuration of a plugin as its schema completes it, or the errors of the schema as JSON.
pub fn completed(plugin: &str, config: Json) -> Result<Value, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut input = Object::new();
    input.push("name", Value::from(plugin));
    input.push("config", value(config));
    let schema = registry().entity(EntityKind::Plugins);
    let entity = schema.process(input, &Context::at(now.unwrap_or_default()));
    match entity {
        Ok(mut entity) => Ok(entity.remove("config").unwrap_or_default()),
        Err(problems) => {
            Err(serde_json::to_string(&problems).expect("problems can be written as JSON"))
        }
    }
}

/// Returns the reason why a configuration is refused, by its schema or when the plugin is built. Panics if it is not.
pub fn refusal(def: &PluginDef, config: Json) -> String {
    let (identity, life) = Default::default();
    let cx = BuildCx {
        identity: &identity,
        lua: &LuaSettings::default(),
        life: &life,
    };
    let built = completed(&def.name, config).map(|config| build(def, &config, &cx));
    match built {
        Err(problems) => problems,
        Ok(Err(error)) => error,
        Ok(Ok(_)) => panic!("the plugin {} accepts the configuration", def.name),
    }
}

fn value(json: Json) -> Value {
    serde_json::from_value(json).expect("JSON is a value")
}

fn maker(def: &PluginDef) -> &dyn Maker {
    match &def.implementation {
        Implementation::Ready(maker) => &**maker,
        Implementation::Later { .. } => panic!("the plugin {} is not implemented", def.name),
    }
}

pub(super) fn build(
    def: &PluginDef,
    config: &Value,
    cx: &BuildCx<'_>,
) -> Result<Arc<dyn Handler>, String> {
    let built = maker(def).build(config, cx);
    built.map_err(|error| error.to_string())
}

impl Case {
    /// A plugin with a configuration that its schema completes. It applies to all requests. Panics if the schema
    /// refuses the configuration.
    pub fn new(def: impl Into<Arc<PluginDef>>, config: Json) -> Self {
        Self::empty().and(def, config)
    }

    /// A plugin with a complete configuration, for plugins without a schema.
    pub fn complete(def: impl Into<Arc<PluginDef>>, config: Json) -> Self {
        Self::empty().and_complete(def, config)
    }

    /// A case without plugins.
    pub fn empty() -> Self {
        Self {
            plugins: Vec::new(),
            identity: NodeIdentity::default(),
            entities: Arc::new(FakeEntities::default()),
            tokens: None,
            sessions: None,
            lua: LuaSettings::default(),
            trusted_ips: Vec::new(),
            configuration: "{}".to_owned(),
            clock: Clock::fixed(UNIX_EPOCH + START),
            background: None,
            node: None,
            running: OnceLock::new(),
        }
    }

    /// Adds a plugin. If a plugin is added several times, the first instance whose scope contains the request runs.
    #[must_use]
    pub fn and(self, def: impl Into<Arc<PluginDef>>, config: Json) -> Self {
        let def = def.into();
        let config = completed(&def.name, config)
            .unwrap_or_else(|problems| panic!("the schema of {} refuses: {problems}", def.name));
        self.push(def, config)
    }

    /// Adds a plugin with a complete configuration.
    #[must_use]
    pub fn and_complete(self, def: impl Into<Arc<PluginDef>>, config: Json) -> Self {
        self.push(def.into(), value(config))
    }

    fn push(mut self, def: Arc<PluginDef>, config: Value) -> Self {
        self.plugins.push(Planned {
            def,
            config,
            scope: Scope::default(),
            instance_name: None,
        });
        self
    }

    /// Sets the plugin that was added last for the route.
    #[must_use]
    pub fn on_route(self) -> Self {
        self.for_route(ROUTE)
    }

    /// Sets the plugin that was added last for this route.
    #[must_use]
    pub fn for_route(mut self, id: Uuid) -> Self {
        self.last().scope.route = Some(RouteId(id));
        self
    }

    /// Sets the plugin that was added last for the service.
    #[must_use]
    pub fn on_service(mut self) -> Self {
        self.last().scope.service = Some(ServiceId(SERVICE));
        self
    }

    /// Sets the plugin that was added last for a consumer.
    #[must_use]
    pub fn for_consumer(mut self, id: Uuid) -> Self {
        self.last().scope.consumer = Some(ConsumerId(id));
        self
    }

    /// Sets the `instance_name` of the plugin that was added last.
    #[must_use]
    pub fn named(mut self, instance_name: &str) -> Self {
        self.last().instance_name = Some(instance_name.to_owned());
        self
    }

    fn last(&mut self) -> &mut Planned {
        self.plugins.last_mut().expect("the case has a plugin")
    }

    /// Sets the entities of the node. A test that changes them between requests keeps an `Arc` of them.
    #[must_use]
    pub fn entities(mut self, entities: impl Into<Arc<FakeEntities>>) -> Self {
        self.entities = entities.into();
        self
    }

    #[must_use]
    pub fn identity(mut self, id: &str, hostname: &str) -> Self {
        self.identity = NodeIdentity {
            id: id.to_owned(),
            hostname: hostname.to_owned(),
        };
        self
    }

    /// Sets the setting `trusted_ips`.
    #[must_use]
    pub fn trusted_ips(mut self, blocks: Vec<Block>) -> Self {
        self.trusted_ips = blocks;
        self
    }

    /// Gives the node a store of sessions.
    #[must_use]
    pub fn sessions(mut self, sessions: Arc<dyn SessionStore>) -> Self {
        self.sessions = Some(sessions);
        self
    }

    /// Gives the node a store of tokens.
    #[must_use]
    pub fn tokens(mut self, tokens: Arc<dyn TokenStore>) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Sets what Lua code sees of the settings.
    #[must_use]
    pub fn configuration(mut self, configuration: &Json) -> Self {
        self.configuration = configuration.to_string();
        self
    }

    /// Sets the setting `untrusted_lua`.
    #[must_use]
    pub fn untrusted_lua(mut self, setting: UntrustedLua) -> Self {
        self.lua.untrusted = setting;
        self
    }

    /// Sets all settings of Lua code.
    #[must_use]
    pub fn lua(mut self, settings: LuaSettings) -> Self {
        self.lua = settings;
        self
    }

    /// Sets the clock of the node. Otherwise it stands still at 1700000000 seconds after 1970, until
    /// `case.node().clock.advance(…)`.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Runs the node's background tasks, such as queues, on the runtime of the test, so that a paused clock of tokio
    /// applies to them. Otherwise they have a thread.
    #[must_use]
    pub fn here(mut self) -> Self {
        self.background = Some(Background::here());
        self
    }

    /// Runs the plugins on this node: on one with other services, or on that of an earlier case, as after a change of the
    /// configuration. Its identity and entities replace those of the case.
    #[must_use]
    pub fn on(mut self, node: Arc<Node>) -> Self {
        self.node = Some(node);
        self
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.running().node
    }

    /// Begins a request with this method and target, such as `GET /a?x=1`. Its client is 127.0.0.1, its host `a.test`,
    /// its scheme `http`.
    pub fn request(&self, line: &str) -> Call<'_> {
        Call::new(self, line)
    }

    /// Builds and starts the plugins as a publication does, unless that has happened.
    pub(super) fn running(&self) -> &Running {
        self.running.get_or_init(|| self.start())
    }

    fn make_node(&self) -> Arc<Node> {
        let background = self.background.clone();
        let node = Node::new(NodeParts {
            identity: self.identity.clone(),
            entities: self.entities.clone(),
            tokens: self.tokens.clone(),
            sessions: self.sessions.clone(),
            metrics: services::Metrics::new(1),
            trust: Trust::Anyone,
            resolver: Resolver::default(),
            background: background
                .unwrap_or_else(|| Background::start().expect("a thread can be started")),
            cache_size: CACHE_SIZE,
            trusted_ips: self.trusted_ips.clone(),
            configuration: self.configuration.clone(),
            body_buffer: BODY_BUFFER,
        });
        let mut node = node.expect("a client that trusts anyone needs no certificates");
        node.clock = self.clock.clone();
        Arc::new(node)
    }

    fn start(&self) -> Running {
        let node = self.node.clone().unwrap_or_else(|| self.make_node());
        let mut planned: Vec<(usize, &Planned)> = self.plugins.iter().enumerate().collect();
        planned.sort_by_key(|(_, one)| std::cmp::Reverse((one.def.priority, &*one.def.name)));
        let mut instances: Vec<Instance> = Vec::new();
        for (at, one) in planned {
            let life = Arc::default();
            let cx = BuildCx {
                identity: &node.identity,
                lua: &self.lua,
                life: &life,
            };
            let handler = build(&one.def, &one.config, &cx)
                .unwrap_or_else(|error| panic!("{} cannot be built: {error}", one.def.name));
            let order = match instances.last() {
                Some(last) if last.def.name == one.def.name => last.order,
                Some(last) => last.order + 1,
                None => 0,
            };
            instances.push(Instance {
                phases: handler.phases(one.def.phases),
                handler,
                life,
                def: one.def.clone(),
                order,
                scope: one.scope,
                id: PluginId(Uuid::from_u128(0x91091 + at as u128)),
                instance_name: one.instance_name.clone(),
            });
        }
        let running = Running { node, instances };
        running.publish();
        running
    }
}

impl Running {
    fn publish(&self) {
        let of_plugins = || {
            self.instances
                .chunk_by(|one, other| one.order == other.order)
        };
        for same in of_plugins() {
            maker(&same[0].def).init_worker(&self.node, 0);
        }
        for instance in &self.instances {
            instance.handler.start(&self.node);
        }
        for same in of_plugins() {
            let mut handlers = same.iter().map(|one| &*one.handler);
            maker(&same[0].def).configure(&self.node, &mut handlers);
        }
    }

    /// The positions of the instances that apply before routing: one for each plugin.
    pub(super) fn globals(&self) -> Vec<usize> {
        self.choose(|scope| *scope == Scope::default())
    }

    /// Returns the position of a plugin's instance that applies to a request. `order` names the plugin.
    pub(super) fn pick(
        &self,
        order: u16,
        request: &Request<'_>,
        consumer: Option<&Consumer>,
    ) -> Option<usize> {
        let contains = |scope: &Scope| {
            let is = |wanted: Option<Uuid>, id: Option<Uuid>| wanted.is_none() || wanted == id;
            is(
                scope.route.map(|id| id.0),
                request.route.map(|route| route.id),
            ) && is(
                scope.service.map(|id| id.0),
                request.service.map(|service| service.id),
            ) && is(
                scope.consumer.map(|id| id.0),
                consumer.map(|consumer| consumer.id.0),
            )
        };
        let chosen = self.choose(contains);
        let mut of_plugin = chosen.into_iter();
        of_plugin.find(|at| self.instances[*at].order == order)
    }

    /// The position of the first instance of each plugin whose scope fits.
    fn choose(&self, fits: impl Fn(&Scope) -> bool) -> Vec<usize> {
        let mut chosen: Vec<usize> = Vec::new();
        for (at, instance) in self.instances.iter().enumerate() {
            let last = chosen.last().map(|last| self.instances[*last].order);
            if last != Some(instance.order) && fits(&instance.scope) {
                chosen.push(at);
            }
        }
        chosen
    }

    pub(super) fn plugins(&self) -> u16 {
        self.instances.last().map_or(0, |last| last.order + 1)
    }
}

/// Ends the plugins as a publication without them does.
impl Drop for Running {
    fn drop(&mut self) {
        for instance in &self.instances {
            instance.life.end();
        }
        free_ended_parts();
    }
}

impl ConfiguredNames for Running {
    fn configured_name(&self, plugin: u16, scope: Scope) -> Option<ConfiguredName<'_>> {
        let mut instances = self.instances.iter();
        let found = instances.find(|one| one.order == plugin && one.scope == scope)?;
        Some(ConfiguredName {
            id: found.id,
            instance_name: found.instance_name.as_deref(),
        })
    }
}

impl Instance {
    pub(super) fn scopes(&self) -> ScopeSet {
        let Scope {
            route,
            service,
            consumer,
        } = self.scope;
        let sets = [
            (route.is_some(), ScopeSet::ROUTE),
            (service.is_some(), ScopeSet::SERVICE),
            (consumer.is_some(), ScopeSet::CONSUMER),
        ];
        let sets = sets.into_iter().filter(|(is_set, _)| *is_set);
        sets.fold(ScopeSet::GLOBAL, |all, (_, set)| all.with(set))
    }
}
