//! The Status API (`status_listen`): state of the node for load balancers and monitoring. It cannot change the
//! configuration. Source: kong/status/init.lua, kong/status/ready.lua.

use crate::body::Body;
use crate::control::{Control, Readiness};
use crate::request::Call;
use crate::respond::{ApiResult, Failure, empty, message};
use axum::http::StatusCode;
use std::time::Duration;

/// Maximum time `/status/ready` waits for a revision that is not yet live in every worker, so that probes do not fail
/// during changes.
const READY_WAIT: Duration = Duration::from_millis(500);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) async fn ready(call: &Call<'_>) -> ApiResult {
    if call.method == "POST" {
        return drain(call);
    }
    let (status, text) = match settled(call.control).await {
        Readiness::Ready => (StatusCode::OK, "ready".to_owned()),
        not_ready => (StatusCode::SERVICE_UNAVAILABLE, reason(not_ready)),
    };
    Ok(message(status, &text))
}

async fn settled(control: &dyn Control) -> Readiness {
    let mut left = READY_WAIT;
    loop {
        match control.readiness() {
            Readiness::Building { .. } if !left.is_zero() => {
                tokio::time::sleep(LOOK_INTERVAL).await;
                left = left.saturating_sub(LOOK_INTERVAL);
            }
            readiness => return readiness,
        }
    }
}

fn reason(readiness: Readiness) -> String {
    match readiness {
        Readiness::Ready => "ready".to_owned(),
        Readiness::Draining => "draining".to_owned(),
        Readiness::Empty => "no configuration available (empty configuration present)".to_owned(),
        Readiness::Building { ready, workers } => {
            format!("router builds not yet complete, router ready in {ready} of {workers} workers")
        }
    }
}

/// Makes the node report that it is draining, until it exits.
fn drain(call: &Call<'_>) -> ApiResult {
    let given = match call.body()? {
        Body::Json(object) | Body::Form(object) => object,
        Body::None | Body::Yaml(_) => return Err(bad_status()),
    };
    let status = given.get("status").and_then(|status| status.as_str());
    if status != Some("draining") {
        return Err(bad_status());
    }
    call.control.announce_drain();
    Ok(empty(StatusCode::NO_CONTENT))
}

fn bad_status() -> Failure {
    Failure::bad_request("status: expected draining")
}
