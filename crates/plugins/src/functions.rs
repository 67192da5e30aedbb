//! What pre-function and post-function have in common: the user's Lua code in the phases of a request.
//! Source: kong/plugins/pre-function/_handler.lua.

use lua::{Ending, Forbidden, Globals, Outcome, Phase, Progress, Scripts, Snippets, Target};
use model::Value;
use plugin::{
    BuildCx, BuildError, CertificateCx, Chunk, Filtered, Flow, LogCx, PerWorker, Phases, Plugin,
    PluginError, RequestCx, RequestState, ResponseCx, Step, StreamFlow, StreamStep,
};
use serde::Deserialize;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

#[cfg(test)]
mod request_tests;
#[cfg(test)]
mod tests;

pub(crate) const PHASES: Phases = Phases::CERTIFICATE
    .with(Phases::REWRITE)
    .with(Phases::ACCESS)
    .with(Phases::HEADER_FILTER)
    .with(Phases::BODY_FILTER)
    .with(Phases::LOG);

/// The name of one of the two plugins.
pub(crate) trait Name: Send + Sync + 'static {
    const NAME: &'static str;
}

/// The configuration: the snippets of each phase.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    certificate: Texts,
    rewrite: Texts,
    access: Texts,
    header_filter: Texts,
    body_filter: Texts,
    log: Texts,
}

/// The snippets of a phase. All workers share the texts.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Vec<String>")]
struct Texts(Arc<[String]>);

impl From<Vec<String>> for Texts {
    fn from(texts: Vec<String>) -> Self {
        Self(texts.into())
    }
}

pub(crate) struct Functions<N> {
    config: Config,
    globals: Result<Globals, Forbidden>,
    scripts: PerWorker<PhaseScripts>,
    name: PhantomData<N>,
}

/// The compiled snippets of a worker.
struct PhaseScripts {
    certificate: Scripts,
    rewrite: Scripts,
    access: Scripts,
    header_filter: Scripts,
    body_filter: Scripts,
    log: Scripts,
}

/// The state of a request.
#[derive(Default)]
pub(crate) struct Own {
    /// Snippets that wait for the client's body.
    waiting: Option<Progress>,
    /// Whether a snippet has ended the body. As in nginx, nothing follows then.
    body_has_ended: bool,
}

impl<N: Name> Plugin for Functions<N> {
    type Config = Config;
    type Own = Own;

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        Ok(Self {
            config,
            globals: Globals::new(cx.lua),
            scripts: cx.per_worker(),
            name: PhantomData,
        })
    }

    fn phases(&self, _: Phases) -> Phases {
        let Config {
            certificate,
            rewrite,
            access,
            header_filter,
            body_filter,
            log,
        } = &self.config;
        [
            (certificate, Phases::CERTIFICATE),
            (rewrite, Phases::REWRITE),
            (access, Phases::ACCESS),
            (header_filter, Phases::HEADER_FILTER),
            (body_filter, Phases::BODY_FILTER),
            (log, Phases::LOG),
        ]
        .into_iter()
        .filter(|(snippets, _)| !snippets.0.is_empty())
        .fold(Phases::NONE, |phases, (_, phase)| match self.globals {
            Ok(_) => phases.with(phase),
            // Kong compiles all snippets in whatever phase comes first, so that each phase fails.
            Err(_) => PHASES,
        })
    }

    fn rewrite<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: &'a mut Own,
    ) -> Result<Step<'a>, PluginError> {
        self.run_request(Phase::Rewrite, cx, own)
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: &'a mut Own,
    ) -> Result<Step<'a>, PluginError> {
        self.run_request(Phase::Access, cx, own)
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        _: &mut Own,
    ) -> Result<Filtered, PluginError> {
        let target = Target::response(Phase::HeaderFilter, cx).of(N::NAME);
        match self.scripts()?.header_filter.run(&target) {
            Outcome::Ended(Ending::Respond(response) | Ending::AtOnce(response)) => {
                Ok(Filtered::Replace(response))
            }
            outcome => done(outcome).map(|()| Filtered::Continue),
        }
    }

    fn body_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Own,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        if own.body_has_ended {
            chunk.data.clear();
            return Ok(());
        }
        let was_last = chunk.last;
        let outcome = {
            let target = Target::piece(cx, chunk).of(N::NAME);
            self.scripts()?.body_filter.run(&target)
        };
        own.body_has_ended = chunk.last && !was_last;
        done(outcome)
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, _: &mut Own) {
        let request_id = cx.request.request_id;
        let target = Target::log(cx).of(N::NAME);
        let run = || done(self.scripts()?.log.run(&target));
        if let Err(error) = run() {
            tracing::error!(plugin = N::NAME, phase = "log", request_id, "{error}");
        }
    }

    fn certificate<'a>(&'a self, cx: CertificateCx<'a>) -> Result<StreamStep<'a>, PluginError> {
        let mut state = RequestState::default();
        let outcome = {
            let target = Target::certificate(&cx, &mut state).of(N::NAME);
            self.scripts()?.certificate.run(&target)
        };
        let (mut progress, mut pending) = match outcome {
            Outcome::Waits(progress, pending) => (progress, pending),
            outcome => return done(outcome).map(|()| StreamStep::Continue),
        };
        Ok(StreamStep::wait(async move {
            loop {
                pending.await;
                let outcome = {
                    let target = Target::certificate(&cx, &mut state).of(N::NAME);
                    self.scripts()?.certificate.resume(progress, &target)
                };
                match outcome {
                    Outcome::Waits(next, future) => (progress, pending) = (next, future),
                    outcome => return done(outcome).map(|()| StreamFlow::Continue),
                }
            }
        }))
    }
}

impl<N: Name> Functions<N> {
    /// Returns the compiled snippets of this worker.
    fn scripts(&self) -> Result<Rc<PhaseScripts>, PluginError> {
        let globals = match &self.globals {
            Ok(globals) => globals,
            Err(forbidden) => return Err(PluginError::new(forbidden.to_string())),
        };
        let of = |texts: &Texts| {
            Scripts::new(Snippets {
                texts: texts.0.clone(),
                globals: globals.clone(),
            })
        };
        let config = &self.config;
        Ok(self.scripts.get(|| PhaseScripts {
            certificate: of(&config.certificate),
            rewrite: of(&config.rewrite),
            access: of(&config.access),
            header_filter: of(&config.header_filter),
            body_filter: of(&config.body_filter),
            log: of(&config.log),
        }))
    }

    fn run_request<'a>(
        &'a self,
        phase: Phase,
        mut cx: RequestCx<'a, '_>,
        own: &'a mut Own,
    ) -> Result<Step<'a>, PluginError> {
        let scripts = self.scripts()?;
        let waiting = own.waiting.take();
        let outcome = {
            let scripts = scripts.of(phase);
            let target = Target::request(phase, &mut cx).of(N::NAME);
            match waiting {
                None => scripts.run(&target),
                Some(progress) => scripts.resume(progress, &target),
            }
        };
        let (mut progress, mut pending) = match flow(outcome, own)? {
            Next::Decided(flow) => return Ok(flow.into()),
            Next::Waits(progress, pending) => (progress, pending),
        };
        Ok(Step::wait(async move {
            loop {
                pending.await;
                let outcome = {
                    let scripts = self.scripts()?;
                    let target = Target::request(phase, &mut cx).of(N::NAME);
                    scripts.of(phase).resume(progress, &target)
                };
                match flow(outcome, own)? {
                    Next::Decided(flow) => return Ok(flow),
                    Next::Waits(next, future) => (progress, pending) = (next, future),
                }
            }
        }))
    }
}

fn flow(outcome: Outcome, own: &mut Own) -> Result<Next, PluginError> {
    Ok(match outcome {
        Outcome::Done => Next::Decided(Flow::Continue),
        Outcome::Ended(Ending::Respond(response)) => Next::Decided(Flow::Respond(response)),
        Outcome::Ended(Ending::AtOnce(response)) => Next::Decided(Flow::Exit(response)),
        Outcome::Ended(Ending::Redirect(redirect)) => {
            Next::Decided(Flow::InternalRedirect(redirect))
        }
        Outcome::Failed(error) => return Err(PluginError::new(error)),
        Outcome::Waits(progress, pending) => Next::Waits(progress, pending),
        Outcome::WaitsForBody(progress) => {
            own.waiting = Some(progress);
            Next::Decided(Flow::ReadBody)
        }
    })
}

impl PhaseScripts {
    fn of(&self, phase: Phase) -> &Scripts {
        match phase {
            Phase::Rewrite => &self.rewrite,
            _ => &self.access,
        }
    }
}

/// What follows after snippets of `rewrite` or `access` have run.
enum Next {
    Decided(Flow),
    Waits(Progress, lua::Pending),
}

/// The result of snippets in a phase that can neither wait nor end the request.
fn done(outcome: Outcome) -> Result<(), PluginError> {
    match outcome {
        Outcome::Done => Ok(()),
        Outcome::Failed(error) => Err(PluginError::new(error)),
        Outcome::Ended(_) | Outcome::Waits(..) | Outcome::WaitsForBody(_) => Err(PluginError::new(
            "it can neither wait nor end the request in this phase",
        )),
    }
}

/// Checks the syntax of a snippet. Source: kong/plugins/pre-function/_schema.lua.
pub(crate) fn check(plugin: &str, text: &Value) -> Result<(), Value> {
    let Some(text) = text.as_str() else {
        return Ok(());
    };
    lua::check_syntax(text)
        .map_err(|error| format!("error parsing {plugin}: {error}").as_str().into())
}
