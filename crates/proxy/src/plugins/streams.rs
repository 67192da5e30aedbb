//! Runs the plugins of TCP, TLS and UDP sessions, and those of TLS handshakes. Sessions have no consumer, so a plan alone
//! decides which instances run.
//! Source: kong/init.lua preread(), log(), ssl_certificate().

use super::results::report;
use super::{Doing, Instance, Instances, Mark, PhaseMark, Plan, RouteMark};
use model::entities::{PluginId, RouteId, ServiceId};
use plugin::{
    CertificateCx, Configured, ConfiguredName, ConfiguredNames, EndedStreamCx, Handler, Node,
    Phases, PluginError, Scope, ScopeSet, StreamConfigured, StreamCx, StreamEnd, StreamEntry,
    StreamFlow, StreamSession, StreamStep,
};
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

/// A plugin has ended a session or a handshake, or has failed. A failure was logged.
#[derive(Debug)]
pub struct Closed {
    pub plugin: Cow<'static, str>,
    pub end: StreamEnd,
    pub has_failed: bool,
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
    /// Where the worker notes which handler runs.
    pub doing: &'s Doing,
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
    pub async fn preread(
        self,
        plan: &Plan,
        session: &StreamSession<'_>,
        mark: RouteMark,
    ) -> Result<(), Closed> {
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
            let mark = self.doing.mark(PhaseMark::Preread, chosen.order, mark);
            mark.begin();
            let step = chosen.instance.plugin.preread(cx);
            decide("preread", chosen.instance, step, mark).await?;
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
            let none = RouteMark::default();
            let mark = (self.doing).mark(PhaseMark::Certificate, chosen.order, none);
            mark.begin();
            let step = chosen.instance.plugin.certificate(cx(configured));
            decide("certificate", chosen.instance, step, mark).await?;
        }
        Ok(())
    }

    /// Returns the plugins of a plan that log a session. `mark` is that of the route.
    pub fn loggers(
        self,
        plan: &Plan,
        (route, mark): (Option<RouteId>, RouteMark),
        service: Option<ServiceId>,
    ) -> Loggers {
        if !plan.has(Phases::LOG) {
            return Loggers::default();
        }
        let chosen = self.with(plan, Phases::LOG, route, service);
        let loggers = chosen.map(|chosen| Logger {
            plugin: chosen.instance.plugin.clone(),
            order: chosen.order,
            scope: chosen.scope,
            name: chosen
                .name
                .map(|name| (name.id, name.instance_name.map(Box::from))),
        });
        Loggers {
            all: loggers.collect(),
            route: mark,
        }
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
    mark: Mark<'_>,
) -> Result<(), Closed> {
    mark.end();
    let flow = match step {
        Ok(StreamStep::Continue) => return Ok(()),
        Ok(StreamStep::Close(end)) => Ok(StreamFlow::Close(end)),
        Ok(StreamStep::Wait(mut wait)) => {
            poll_fn(|cx| {
                mark.begin();
                let polled = wait.as_mut().poll(cx);
                mark.end();
                polled
            })
            .await
        }
        Err(error) => Err(error),
    };
    let (end, has_failed) = match flow {
        Ok(StreamFlow::Continue) => return Ok(()),
        Ok(StreamFlow::Close(end)) => (end, false),
        Err(error) => {
            report(phase, &instance.def, &error);
            (StreamEnd::silent(500), true)
        }
    };
    Err(Closed {
        plugin: instance.def.name.clone(),
        end,
        has_failed,
    })
}

/// The plugins that log a session. They are kept apart from their snapshot, which a session of several days must not
/// keep in memory.
#[derive(Default)]
pub struct Loggers {
    all: Box<[Logger]>,
    /// The route of the session. Its index is that of the configuration in which the session began.
    route: RouteMark,
}

struct Logger {
    plugin: Arc<dyn Handler>,
    /// Position of the plugin in the execution order.
    order: u16,
    scope: Scope,
    name: Option<(PluginId, Option<Box<str>>)>,
}

impl Loggers {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Runs the log phase of a session, in order. `doing` is where the worker notes which handler runs.
    pub fn log(
        &self,
        session: &StreamSession<'_>,
        (node, doing): (&Arc<Node>, &Doing),
        entry: &StreamEntry<'_>,
    ) {
        let _ends = doing.ends();
        for logger in &self.all {
            doing.begin(PhaseMark::StreamLog, logger.order, self.route);
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
