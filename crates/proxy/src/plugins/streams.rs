//! Runs the plugins of TCP, TLS and UDP sessions, and those of TLS handshakes. Sessions have no consumer, so a plan alone
//! decides which instances run.
//! Source: kong/init.lua preread(), log(), ssl_certificate().

use super::finish::report;
use super::{Instance, Instances, Plan};
use model::entities::{PluginId, RouteId, ServiceId};
use plugin::{
    CertificateCx, Configured, ConfiguredName, ConfiguredNames, EndedStreamCx, Handler, Node,
    Phases, PluginError, Scope, ScopeSet, StreamConfigured, StreamCx, StreamEnd, StreamEntry,
    StreamFlow, StreamSession, StreamStep,
};
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A plugin has ended a session or a handshake, or has failed. A failure was logged.
#[derive(Debug)]
pub struct Closed {
    pub plugin: Cow<'static, str>,
    pub end: StreamEnd,
}

impl fmt::Display for Closed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "by plugin {}", self.plugin)?;
        match &*self.end.message {
            "" => Ok(()),
            message => write!(formatter, ": {message}"),
        }
    }
}

impl Error for Closed {}

/// The plugins of a snapshot.
#[derive(Clone, Copy)]
pub struct Installed<'s> {
    pub instances: &'s Instances,
    pub names: &'s dyn ConfiguredNames,
    pub node: &'s Arc<Node>,
}

/// An instance of a plan, and what it is configured for.
struct Chosen<'s> {
    instance: &'s Instance,
    /// Position of the plugin in the execution order.
    order: u16,
    scope: Scope,
    name: Option<ConfiguredName<'s>>,
}

impl<'s> Installed<'s> {
    /// Returns the instances of a plan that have one of these phases. `route` and `service` are those of the plan.
    fn with(
        self,
        plan: &'s Plan,
        phases: Phases,
        route: Option<RouteId>,
        service: Option<ServiceId>,
    ) -> impl Iterator<Item = Chosen<'s>> {
        let slots = plan.slots.iter();
        let choices = slots.filter_map(|slot| Some((slot.order, slot.default?)));
        choices.filter_map(move |(order, choice)| {
            let instance = self.instances.get(choice.instance);
            let scope = Scope {
                route: route.filter(|_| choice.scopes.contains(ScopeSet::ROUTE)),
                service: service.filter(|_| choice.scopes.contains(ScopeSet::SERVICE)),
                consumer: None,
            };
            let runs = instance.phases.intersects(phases);
            runs.then(|| Chosen {
                instance,
                order,
                scope,
                name: self.names.configured_name(order, scope),
            })
        })
    }

    /// Runs the `preread` phase of a plan, in order, until a plugin closes the session.
    pub async fn preread(self, plan: &Plan, session: &StreamSession<'_>) -> Result<(), Closed> {
        let (route, service) = ids(session);
        for chosen in self.with(plan, Phases::PREREAD, route, service) {
            let configured = StreamConfigured {
                scope: chosen.scope,
                name: chosen.name,
            };
            let cx = StreamCx {
                session,
                configured,
                node: self.node,
            };
            let step = chosen.instance.plugin.preread(cx);
            decide("preread", chosen.instance, step).await?;
        }
        Ok(())
    }

    /// Runs the `certificate` phase of the global instances, in order, until a plugin ends the handshake.
    pub async fn certificate(
        self,
        globals: &Plan,
        cx: impl Fn(Configured<'s>) -> CertificateCx<'s>,
    ) -> Result<(), Closed> {
        for chosen in self.with(globals, Phases::CERTIFICATE, None, None) {
            let configured = Configured {
                scopes: ScopeSet::GLOBAL,
                consumer: None,
                plugin: chosen.order,
                names: self.names,
            };
            let step = chosen.instance.plugin.certificate(cx(configured));
            decide("certificate", chosen.instance, step).await?;
        }
        Ok(())
    }

    /// Returns the plugins of a plan that log a session.
    pub fn loggers(
        self,
        plan: &Plan,
        route: Option<RouteId>,
        service: Option<ServiceId>,
    ) -> Loggers {
        if !plan.has(Phases::LOG) {
            return Loggers::default();
        }
        let chosen = self.with(plan, Phases::LOG, route, service);
        let loggers = chosen.map(|chosen| Logger {
            plugin: chosen.instance.plugin.clone(),
            scope: chosen.scope,
            name: chosen
                .name
                .map(|name| (name.id, name.instance_name.map(Box::from))),
        });
        Loggers(loggers.collect())
    }
}

fn ids(session: &StreamSession<'_>) -> (Option<RouteId>, Option<ServiceId>) {
    let route = session.route.map(|route| RouteId(route.id));
    let service = session.service.map(|service| ServiceId(service.id));
    (route, service)
}

/// Waits for the result of a handler.
async fn decide(
    phase: &'static str,
    instance: &Instance,
    step: Result<StreamStep<'_>, PluginError>,
) -> Result<(), Closed> {
    let flow = match step {
        Ok(StreamStep::Continue) => return Ok(()),
        Ok(StreamStep::Close(end)) => Ok(StreamFlow::Close(end)),
        Ok(StreamStep::Wait(wait)) => wait.await,
        Err(error) => Err(error),
    };
    let end = match flow {
        Ok(StreamFlow::Continue) => return Ok(()),
        Ok(StreamFlow::Close(end)) => end,
        Err(error) => {
            report(phase, &instance.def, &error);
            StreamEnd::silent(500)
        }
    };
    Err(Closed {
        plugin: instance.def.name.clone(),
        end,
    })
}

/// The plugins that log a session. They are kept apart from their snapshot, which a session of several days must not
/// keep in memory.
#[derive(Default)]
pub struct Loggers(Box<[Logger]>);

struct Logger {
    plugin: Arc<dyn Handler>,
    scope: Scope,
    name: Option<(PluginId, Option<Box<str>>)>,
}

impl Loggers {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Runs the log phase of a session, in order.
    pub fn log(&self, session: &StreamSession<'_>, node: &Arc<Node>, entry: &StreamEntry<'_>) {
        for logger in &self.0 {
            let name = logger.name.as_ref();
            let name = name.map(|(id, instance_name)| ConfiguredName {
                id: *id,
                instance_name: instance_name.as_deref(),
            });
            let configured = StreamConfigured {
                scope: logger.scope,
                name,
            };
            logger.plugin.log_stream(&mut EndedStreamCx {
                session,
                configured,
                node,
                entry,
            });
        }
    }
}
