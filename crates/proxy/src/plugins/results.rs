//! The results of handlers: what a handler has decided once its wait is over, and what is logged about one that fails.

use super::chain::{ClientLeft, FilterFailed, PollGone};
use super::{Instance, Mark};
use plugin::{Flow, PluginDef, PluginError, Response, Step, Wait};
use std::future::poll_fn;
use std::task::Poll;

/// What a handler has decided, or that it was given up.
pub(super) enum Ran {
    Decided(Flow),
    ClientGone,
}

/// Waits for the result of a handler.
pub(super) async fn finish(
    step: Result<Step<'_>, PluginError>,
    mark: Mark<'_>,
    poll_gone: PollGone<'_>,
) -> Result<Ran, PluginError> {
    let Wait {
        mut future,
        ends_with_client,
    } = match step? {
        Step::Continue | Step::Leave => return Ok(Ran::Decided(Flow::Continue)),
        Step::Respond(response) => return decided(Flow::Respond(response)),
        Step::Exit(response) => return decided(Flow::Exit(response)),
        Step::InternalRedirect(redirect) => {
            return Ok(Ran::Decided(Flow::InternalRedirect(redirect)));
        }
        Step::ReadBody => return Ok(Ran::Decided(Flow::ReadBody)),
        Step::Wait(wait) => wait,
    };
    poll_fn(|cx| {
        mark.begin();
        let polled = future.as_mut().poll(cx);
        // The worker has other work meanwhile.
        mark.end();
        match polled {
            Poll::Ready(flow) => Poll::Ready(flow.and_then(decided)),
            Poll::Pending if ends_with_client => poll_gone(cx).map(|()| Ok(Ran::ClientGone)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

fn decided(flow: Flow) -> Result<Ran, PluginError> {
    flow.with_final_status().map(Ran::Decided)
}

/// Returns the response of a handler in a phase in which every response ends the request, and which cannot ask for the
/// request's body (again).
pub(super) fn ending(
    phase: &'static str,
    instance: &Instance,
    ran: Result<Ran, PluginError>,
    failed: &mut bool,
) -> Result<Option<Response>, ClientLeft> {
    let error = match ran {
        Ok(Ran::Decided(Flow::Continue)) => return Ok(None),
        Ok(Ran::ClientGone) => return Err(ClientLeft),
        Ok(Ran::Decided(Flow::Respond(response) | Flow::Exit(response))) => {
            return Ok(Some(response));
        }
        Ok(Ran::Decided(Flow::ReadBody)) => asked_too_often(),
        Ok(Ran::Decided(Flow::InternalRedirect(_))) => {
            PluginError::new("it redirects the request after the upstream has answered")
        }
        Err(error) => error,
    };
    report(phase, &instance.def, &error);
    *failed = true;
    Ok(Some(match phase {
        // Kong does not catch errors in this phase, so nginx shows its page.
        "rewrite" => Response::server_error(500),
        _ => Response::unexpected_error(),
    }))
}

/// Refuses a status that a header filter has set and that no final response has. The client would wait for another
/// response.
#[inline]
pub(super) fn check_status(
    before: u16,
    after: u16,
    instance: &Instance,
) -> Result<(), FilterFailed> {
    if after == before || (200..=599).contains(&after) {
        return Ok(());
    }
    report(
        "header_filter",
        &instance.def,
        &PluginError::not_final(after),
    );
    Err(FilterFailed)
}

pub(super) fn asked_too_often() -> PluginError {
    PluginError::new("it asks for the request's body where that cannot be read")
}

pub(super) fn report(phase: &'static str, def: &PluginDef, error: &PluginError) {
    let cause = std::error::Error::source(error).map(tracing::field::display);
    tracing::error!(plugin = &*def.name, phase, cause, "{error}");
}
